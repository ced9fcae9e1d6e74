"""An adaptive Runge-Kutta solver for many RC cars at once.

The source integrates with scipy's RK45 at loose tolerances, so its step sizes are part of the task.
This is the same algorithm, compiled, in double precision on the CPU.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from surefoot.envs.rc_car.dynamics import CAR, STATE, RCCarParameters, rates

# The Dormand-Prince pair: stages, the last one with the fifth-order weights, and their difference
# to the fourth order. The right-hand side does not depend on time, so the nodes are not needed.
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40)
_SAFETY, _MIN_FACTOR, _MAX_FACTOR = 0.9, 0.2, 10.0
# With sixteen lanes the compiler's vector arithmetic rounds differently from lane to lane.
_LANES = 8


def integrate(
    state: np.ndarray,
    command: np.ndarray,
    dt: float,
    car: RCCarParameters = CAR,
    rtol: float = 1e-3,
    atol: float = 1e-5,
) -> np.ndarray:
    """States [N, 6] after `dt` seconds under constant commands [N, 2], in float64 on the CPU.

    Adaptive Dormand-Prince steps; each car has its step sizes, chosen as in scipy's RK45.
    """
    count = len(state)
    cars = np.zeros((count + -count % _LANES, STATE + 2))  # padded with cars at rest
    cars[:count, :STATE], cars[:count, STATE:] = state, command
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        return np.array(_integrate(cars, dt, rtol, atol, car))[:count]


class _Lanes(NamedTuple):
    """Cars within their environment step, in parallel."""

    car: Array  # [W] index of the car; an empty lane has at least the number of cars
    t: Array  # [W]
    h: Array  # [W] step size to try
    retry: Array  # [W] the last attempt failed
    y: Array  # [6, W]
    slope: Array  # [6, W] at y
    command: Array  # [3, W] wheel speed, cos and sin of steering


@partial(jax.jit, static_argnames="car")
def _integrate(cars: Array, dt: Array, rtol: Array, atol: Array, car: RCCarParameters) -> Array:
    """`integrate` for cars (state, command) [N, 8], N a multiple of the number of lanes.

    A lane that finishes a car takes the next waiting one. Near the jumps of the tyre forces a car
    may need hundreds of attempts where most need six, and the others must not wait for it. The
    number of lanes is fixed, so each car's result does not depend on the number of cars.
    """
    count = len(cars)

    def start(group: Array) -> Array:
        y, (wheel, steering) = jnp.split(group.T, [STATE])
        command = jnp.stack([wheel, jnp.cos(steering), jnp.sin(steering)])
        slope = rates(jnp, y, command, car)
        h = _first_step(y, slope, command, dt, rtol, atol, car)
        return jnp.concatenate([h[None], y, slope, command]).T

    waiting = jax.lax.map(start, cars.reshape(-1, _LANES, cars.shape[-1])).reshape(count, -1)

    def load(ids: Array) -> _Lanes:
        h, y, slope, command = jnp.split(
            waiting[jnp.minimum(ids, count - 1)].T, [1, 1 + STATE, 1 + 2 * STATE]
        )
        return _Lanes(ids, jnp.zeros(_LANES), h[0], jnp.zeros(_LANES, bool), y, slope, command)

    def step(carry: tuple[_Lanes, Array, Array]) -> tuple[_Lanes, Array, Array]:
        lanes, following, result = carry
        lanes = _attempt(lanes, dt, rtol, atol, car)
        # Like scipy, give up when the step size falls below the resolution of time, or is NaN.
        done = (lanes.t >= dt) | (lanes.retry & ~(lanes.h >= _smallest_step(lanes.t)))

        def refill() -> tuple[_Lanes, Array, Array]:
            written = result.at[jnp.where(done, lanes.car, count)].set(lanes.y.T, mode="drop")
            fresh = load(following + jnp.cumsum(done) - 1)
            swapped = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, lanes)
            return swapped, following + done.sum(), written

        return jax.lax.cond(done.any(), refill, lambda: (lanes, following, result))

    first = load(jnp.arange(_LANES))
    carry = (first, jnp.asarray(_LANES), jnp.zeros((count, STATE)))
    return jax.lax.while_loop(lambda carry: (carry[0].car < count).any(), step, carry)[2]


def _attempt(lanes: _Lanes, dt: Array, rtol: Array, atol: Array, car: RCCarParameters) -> _Lanes:
    """One step in each lane, accepted where its error is small enough."""
    _, t, h, retry, y, slope, command = lanes
    end = jnp.minimum(t + jnp.maximum(h, _smallest_step(t)), dt)
    h = end - t
    slopes, new = [slope], y
    for weights in _STAGES:
        new = y + h * _weighted(weights, slopes)
        slopes.append(rates(jnp, new, command, car))
    scale = atol + rtol * jnp.maximum(jnp.abs(y), jnp.abs(new))
    error = _rms(h * _weighted(_ERROR, slopes) / scale)
    accept = error < 1.0
    factor = _SAFETY * jnp.maximum(error, 1e-30) ** -0.2
    grow = jnp.minimum(factor, jnp.where(retry, 1.0, _MAX_FACTOR))
    # fmax: the step also shrinks where the error is NaN.
    return lanes._replace(
        t=jnp.where(accept, end, t),
        h=h * jnp.where(accept, grow, jnp.fmax(factor, _MIN_FACTOR)),
        retry=~accept,
        y=jnp.where(accept, new, y),
        # The last stage lies at the end of the step: it is the first slope of the next one.
        slope=jnp.where(accept, slopes[-1], slope),
    )


def _first_step(
    y: Array,
    slope: Array,
    command: Array,
    dt: Array,
    rtol: Array,
    atol: Array,
    car: RCCarParameters,
) -> Array:
    """First step sizes [W] (Hairer, Norsett, Wanner: Solving ODEs I, section II.4)."""
    scale = atol + rtol * jnp.abs(y)
    d0, d1 = _rms(y / scale), _rms(slope / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    probe = jnp.minimum(jnp.where(small, 1e-6, 0.01 * d0 / d1), dt)
    d2 = _rms((rates(jnp, y + probe * slope, command, car) - slope) / scale) / probe
    steepest = jnp.maximum(d1, d2)
    flat = steepest <= 1e-15
    guess = jnp.where(flat, jnp.maximum(1e-6, 1e-3 * probe), (0.01 / steepest) ** 0.2)
    return jnp.minimum(jnp.minimum(100 * probe, guess), dt)


def _weighted(weights: Sequence[float], slopes: Sequence[Array]) -> Array:
    return sum((w * k for w, k in zip(weights, slopes, strict=True) if w), start=0.0)  # type: ignore[return-value]


def _rms(x: Array) -> Array:
    """Root mean square over the components of x [6, W]."""
    return jnp.sqrt(jnp.sum(x * x, axis=0) / STATE)


def _smallest_step(t: Array) -> Array:
    """Ten times the spacing of floating-point numbers at t."""
    return jnp.maximum(10 * (jnp.nextafter(t, jnp.inf) - t), 1e-300)
