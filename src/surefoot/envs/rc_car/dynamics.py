"""Physics of a drifting RC car, and the formulas of driving it on a circle.

A bicycle model with brush tyres after r-pad/aa_simulation. A state is (x, y, psi, vx, vy, r):
position and heading in the world, velocities in the frame of the car. A command is (wheel speed in
m/s, steering angle in rad). `xp` is numpy or jax.numpy: the same formulas serve the real task and
its model. All functions take any leading batch axes.
"""

from dataclasses import dataclass
from math import pi

from surefoot.core.config import NonNegative, Positive, check
from surefoot.envs.geometry import A, Namespace

STATE = 6
_TINY = 1e-12


@dataclass(frozen=True)
class RCCarParameters:
    """The car: masses, lengths, tyres and limits, in SI units."""

    mass: Positive = 2.645
    """Mass of the car."""
    front_length: Positive = 0.137
    """From the centre of mass to the front axle."""
    rear_length: Positive = 0.120
    """From the centre of mass to the rear axle."""
    front_load: Positive = 12.1
    """Normal force on the front axle."""
    rear_load: Positive = 13.8178
    """Normal force on the rear axle."""
    longitudinal_stiffness: Positive = 103.94
    """Tyre force per unit of longitudinal slip."""
    cornering_stiffness: Positive = 56.4
    """Tyre force per unit of the slip angle's tangent."""
    yaw_inertia: Positive = 0.0558
    """Moment of inertia about the vertical axis."""
    static_friction: Positive = 1.37
    """Friction coefficient of a tyre that grips."""
    kinetic_friction: Positive = 1.96
    """Friction coefficient of the sliding rear tyre. As in the source it exceeds the static one, so
    the rear force jumps where sliding begins."""
    linear_drag: NonNegative = 0.025
    """Deceleration per unit of body velocity."""
    yaw_drag: NonNegative = 0.02
    """Yaw deceleration per unit of yaw rate."""
    dead_band: Positive = 0.01
    """Speeds, and differences of speed, below this make no slip."""
    max_wheel_speed: Positive = 10.0
    """Largest wheel speed of a command; the smallest is 0."""
    max_steering: Positive = pi / 6
    """Largest steering angle to either side."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class InitialSpread:
    """Spread of an episode's first state around driving on the circle, to either side."""

    distance: NonNegative = 0.25
    """Distance from the circle."""
    heading: NonNegative = pi / 3
    """Angle between the heading and the circle's tangent."""
    lateral_speed: NonNegative = 0.6
    """Body velocity to the side."""
    yaw_rate: NonNegative = 2.0
    """Turn rate."""

    def __post_init__(self) -> None:
        check(self)


CAR = RCCarParameters()
SPREAD = InitialSpread()


def to_command(xp: Namespace, action: A, car: RCCarParameters = CAR) -> A:
    """Commands (wheel speed, steering) [..., 2] from actions [..., 2] in [-1, 1]."""
    wheel = 0.5 * car.max_wheel_speed * (action[..., 0] + 1.0)
    return xp.stack([wheel, car.max_steering * action[..., 1]], axis=-1)


def rates(
    xp: Namespace,
    psi: A,
    vx: A,
    vy: A,
    r: A,
    wheel: A,
    cos_steering: A,
    sin_steering: A,
    car: RCCarParameters,
) -> tuple[A, A, A, A, A, A]:
    """The time derivatives of x, y, psi, vx, vy and r.

    The source takes tangents of slip angles folded into +-pi/2. The tangent of the folded angle of
    a velocity (u, v) is v / |u|, so neither angles nor a division by forward speed are needed.
    """
    speed = xp.abs(vx)
    slow = speed < car.dead_band
    still = slow & (xp.abs(vy) < car.dead_band)

    # Front: the slip is the axle's velocity seen from the steered wheel.
    side = vy + car.front_length * r
    along = xp.abs(vx * cos_steering + side * sin_steering)
    across = xp.where(still, 0.0, side * cos_steering - vx * sin_steering)
    grip = car.static_friction * car.front_load
    slip = car.cornering_stiffness / (3.0 * grip) * across / xp.maximum(along, _TINY)
    slip = xp.clip(slip, -1.0, 1.0)
    magnitude = xp.abs(slip)
    front = -grip * slip * (3.0 - (3.0 - magnitude) * magnitude)

    # Rear: with K = |wheel - vx| / |vx|, both K / (1 + K) and tan / (1 + K) have the denominator
    # |vx| + |wheel - vx|, which vanishes only where both numerators do.
    spin = wheel - vx
    idle = slow & (wheel < car.dead_band)
    spin = xp.where((xp.abs(spin) < car.dead_band) | idle, 0.0, spin)
    scale = 1.0 / xp.maximum(speed + xp.abs(spin), _TINY)
    pull = car.longitudinal_stiffness * spin * scale
    push = xp.where(still, 0.0, vy - car.rear_length * r) * (car.cornering_stiffness * scale)
    grip = car.static_friction * car.rear_load
    sliding = 3.0 * grip
    total = xp.sqrt(pull * pull + push * push)
    share = total / sliding
    # Force per unit of combined slip.
    per_slip = xp.where(
        share <= 1.0,
        1.0 - share * (1.0 - share / 3.0),
        car.kinetic_friction * car.rear_load / xp.maximum(total, sliding),
    )
    # A wheel that turns under a car at rest pulls with all its grip, and holds nothing sideways.
    spinning = slow & (spin != 0.0)
    rear_x = xp.where(spinning, grip * xp.sign(wheel), pull * per_slip)
    rear_y = xp.where(spinning, 0.0, -push * per_slip)

    front_y = front * cos_steering
    cos, sin = xp.cos(psi), xp.sin(psi)
    return (
        vx * cos - vy * sin,
        vx * sin + vy * cos,
        r,
        (rear_x - front * sin_steering) / car.mass + r * vy - car.linear_drag * vx,
        (front_y + rear_y) / car.mass - r * vx - car.linear_drag * vy,
        (car.front_length * front_y - car.rear_length * rear_y) / car.yaw_inertia
        - car.yaw_drag * r,
    )


def observe(xp: Namespace, state: A, radius: float) -> A:
    """Observations of states [..., 6]: (d, theta, d', theta') [..., 4].

    Distance from the circle (positive outside), angle between its tangent and the heading, and
    their rates. As in the source, the rates use body velocities in place of world velocities.
    """
    x, y, psi, vx, vy, r = (state[..., i] for i in range(STATE))
    rho = xp.maximum(xp.sqrt(x * x + y * y), _TINY)
    return xp.stack(
        [
            rho - radius,
            _heading_error(xp, x, y, psi),
            (x * vx + y * vy) / rho,
            (x * vy - y * vx) / (rho * rho) - r,
        ],
        axis=-1,
    )


def reward(
    xp: Namespace,
    state: A,
    radius: float,
    target_speed: float,
    speed_weight: float = 0.25,
    heading_weight: float = 0.25,
) -> A:
    """Reward [...] for driving at the target speed on the circle, along it: states [..., 6]."""
    x, y, psi = state[..., 0], state[..., 1], state[..., 2]
    miss = xp.abs(_distance(xp, state, radius))
    excess = speed(xp, state) - target_speed
    # Only headings more than a quarter turn off the tangent are penalised.
    against = xp.maximum(0.0, xp.abs(_heading_error(xp, x, y, psi)) - pi / 2)
    return -miss - speed_weight * excess * excess - heading_weight * against * against


def fast_reward(xp: Namespace, state: A) -> A:
    """Reward [...] for speed alone, squared: states [..., 6]."""
    v = speed(xp, state)
    return v * v


def cost(xp: Namespace, state: A, radius: float, epsilon: float) -> A:
    """1 where the car is at least `epsilon` outside the circle, else 0: states [..., 6]."""
    return xp.where(_distance(xp, state, radius) >= epsilon, 1.0, 0.0)


def speed(xp: Namespace, state: A) -> A:
    """Speed [...] over ground of states [..., 6]."""
    vx, vy = state[..., 3], state[..., 4]
    return xp.sqrt(vx * vx + vy * vy)


def initial_state(
    xp: Namespace,
    uniform: A,
    radius: float,
    target_speed: float,
    spread: InitialSpread = SPREAD,
) -> A:
    """First states [..., 6] of episodes from uniform numbers [..., 5] in [0, 1).

    West of the centre, heading roughly south (counter-clockwise), at up to twice the target speed.
    The numbers are used in the order x, psi, vx, vy, r.
    """
    either = 2.0 * uniform - 1.0
    x = -radius + spread.distance * either[..., 0]
    psi = 1.5 * pi + spread.heading * either[..., 1]
    vx = 2.0 * target_speed * uniform[..., 2]
    vy = spread.lateral_speed * either[..., 3]
    r = spread.yaw_rate * either[..., 4]
    return xp.stack([x, xp.zeros_like(x), psi, vx, vy, r], axis=-1)


def _distance(xp: Namespace, state: A, radius: float) -> A:
    x, y = state[..., 0], state[..., 1]
    return xp.sqrt(x * x + y * y) - radius


def _heading_error(xp: Namespace, x: A, y: A, psi: A) -> A:
    """Angle from the heading to the circle's counter-clockwise tangent, in [-pi, pi)."""
    angle = xp.arctan2(-x, y) + pi - psi
    return angle - 2 * pi * xp.floor((angle + pi) / (2 * pi))
