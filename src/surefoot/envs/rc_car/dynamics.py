"""The RC-car task: options, physics of a drifting car, reward, cost and observations.

A bicycle model with brush tyres after r-pad/aa_simulation. A state is (x, y, psi, vx, vy, r):
position and heading in the world, velocities in the frame of the car. A command is (wheel speed in
m/s, steering angle in rad). `xp` is numpy or jax.numpy: the same formulas serve the real task and
its model. All functions take any leading batch axes.
"""

from dataclasses import dataclass
from math import pi
from typing import Literal

from surefoot.core.config import Count, NonNegative, Positive, check
from surefoot.envs.geometry import A, Namespace

STATE = 6
OBSERVATION_SIZE = 4
DRAWS = 5  # random numbers of one initial state
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


@dataclass(frozen=True)
class RCCarConfig:
    """Options of the RC-car task.

    The car, the circle reward, its weights and the spread of initial states are those of
    r-pad/aa_simulation. The MBPPO-Lagrangian paper names that simulator, a cost limit of 5 and
    150,000 steps, but none of the following; ours are the simulator's settings:

    - `radius`, `target_speed`: 1 m and 1 m/s, its circle task.
    - `dt`: 0.1 s, as in its training scripts (the class default there is 0.035 s).
    - `epsilon`: 0.05 m, its safety margin, which counts outside the circle only.
    - `reward`: "circle". "fast" rewards speed alone, so that reward and cost conflict.
    - `max_episode_steps`: 100, its horizon. At 0.1 s the target speed makes 1.6 rounds.
    """

    radius: Positive = 1.0
    """Radius of the circle, around the origin, in m."""
    target_speed: Positive = 1.0
    """Target of the circle reward, in m/s; episodes start at up to twice this speed."""
    dt: Positive = 0.1
    """Seconds per environment step."""
    epsilon: Positive = 0.05
    """A step costs 1 when it ends this far, in m, or farther outside the circle."""
    reward: Literal["circle", "fast"] = "circle"
    """circle: stay on it at the target speed; fast: speed squared."""
    speed_weight: Positive = 0.25
    """Weight of the squared speed error in the circle reward."""
    heading_weight: Positive = 0.25
    """Weight, in the circle reward, of heading against the direction of travel."""
    max_episode_steps: Count = 100
    """Steps after which an episode is truncated."""
    rtol: Positive = 1e-3
    """Relative tolerance of the integration."""
    atol: Positive = 1e-5
    """Absolute tolerance of the integration."""
    spread: InitialSpread = SPREAD
    """Spread of initial states around driving on the circle."""
    car: RCCarParameters = CAR
    """The parameters of the car."""

    def __post_init__(self) -> None:
        check(self)


def rates(xp: Namespace, state: A, command: A, car: RCCarParameters) -> A:
    """Time derivatives [6, ...] of states [6, ...].

    A command [3, ...] is the wheel speed and the cosine and sine of the steering angle.

    The source takes tangents of slip angles folded into +-pi/2. The tangent of the folded angle of
    a velocity (u, v) is v / |u|, so neither angles nor a division by forward speed are needed.
    """
    _, _, psi, vx, vy, r = state
    wheel, cos_steering, sin_steering = command
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
    return xp.stack(
        [
            vx * cos - vy * sin,
            vx * sin + vy * cos,
            r,
            (rear_x - front * sin_steering) / car.mass + r * vy - car.linear_drag * vx,
            (front_y + rear_y) / car.mass - r * vx - car.linear_drag * vy,
            (car.front_length * front_y - car.rear_length * rear_y) / car.yaw_inertia
            - car.yaw_drag * r,
        ]
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


def judge(xp: Namespace, config: RCCarConfig, state: A) -> tuple[A, A]:
    """Reward [...] and cost [...] of a step that ends in states [..., 6]."""
    c = config
    x, y, psi, vx, vy, _ = (state[..., i] for i in range(STATE))
    outside = xp.sqrt(x * x + y * y) - c.radius
    cost = xp.where(outside >= c.epsilon, 1.0, 0.0)
    speed = xp.sqrt(vx * vx + vy * vy)
    if c.reward == "fast":
        return speed * speed, cost
    excess = speed - c.target_speed
    # Only headings more than a quarter turn off the tangent are penalised.
    against = xp.maximum(0.0, xp.abs(_heading_error(xp, x, y, psi)) - pi / 2)
    reward = -xp.abs(outside) - c.speed_weight * excess * excess
    return reward - c.heading_weight * against * against, cost


def initial_state(xp: Namespace, config: RCCarConfig, uniform: A) -> A:
    """First states [..., 6] of episodes from uniform numbers [..., 5] in [0, 1).

    West of the centre, heading roughly south (counter-clockwise), at up to twice the target speed.
    The numbers are used in the order x, psi, vx, vy, r.
    """
    spread, either = config.spread, 2.0 * uniform - 1.0
    x = -config.radius + spread.distance * either[..., 0]
    psi = 1.5 * pi + spread.heading * either[..., 1]
    vx = 2.0 * config.target_speed * uniform[..., 2]
    vy = spread.lateral_speed * either[..., 3]
    r = spread.yaw_rate * either[..., 4]
    return xp.stack([x, xp.zeros_like(x), psi, vx, vy, r], axis=-1)


def _heading_error(xp: Namespace, x: A, y: A, psi: A) -> A:
    """Angle from the heading to the circle's counter-clockwise tangent, in [-pi, pi)."""
    angle = xp.arctan2(-x, y) + pi - psi
    return angle - 2 * pi * xp.floor((angle + pi) / (2 * pi))
