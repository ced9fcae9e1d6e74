"""The Lagrange multipliers: the price of each constraint, raised while it is broken."""

from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from surefoot.core.config import check_types


@dataclass(frozen=True)
class MultiplierConfig:
    """How the multipliers follow the measured costs."""

    kind: Literal["projected", "softplus", "pid"] = "projected"
    """Projected ascent (the paper), softplus with Adam (safety-starter-agents), or PID control."""
    learning_rate: float = 0.05
    """Step of the projected ascent or of Adam; PID control has its gains instead."""
    initial: float = 1.0
    """Value before the first update; PID control starts its integral there."""
    maximum: float | None = None
    """Upper bound of a multiplier; none if not given."""
    normalise: bool = False
    """Measure violations in units of the limit, (J_C - d) / d. PID control always does."""
    proportional_gain: float = 0.1
    """PID: weight of the smoothed violation."""
    integral_gain: float = 0.01
    """PID: how fast the integral of the violation grows."""
    derivative_gain: float = 0.01
    """PID: weight of the rise of the smoothed cost over the last `derivative_delay` updates."""
    derivative_delay: int = 10
    """PID: how many updates back a rise of the cost is measured from."""
    smoothing: float = 0.95
    """PID: share of the past kept in the moving average of the cost."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.kind not in ("projected", "softplus", "pid"):
            raise ValueError(f"kind = {self.kind!r}: must be 'projected', 'softplus' or 'pid'")
        for name in ("proportional_gain", "integral_gain", "derivative_gain", "initial"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must not be negative")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate = {self.learning_rate}: must be positive")
        if self.kind == "softplus" and self.initial == 0:
            raise ValueError("initial = 0: must be positive for softplus, which never reaches 0")
        if self.maximum is not None and not self.maximum >= max(self.initial, 1e-6):
            raise ValueError(
                f"maximum = {self.maximum}: must be positive and at least initial = {self.initial}"
            )
        if self.derivative_delay < 1:
            raise ValueError(f"derivative_delay = {self.derivative_delay}: must be at least 1")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing = {self.smoothing}: must be in [0, 1)")


class PIDMemory(eqx.Module):
    """What PID control remembers of past costs, all in units of the limit."""

    integral: Float[Array, " k"]
    smoothed: Float[Array, " k"]
    history: Float[Array, "delay k"]
    updates: Int[Array, ""]


class MultiplierState(eqx.Module):
    """`raw` is lambda itself, or z with lambda = softplus(z); `memory` is the kind's own."""

    raw: Float[Array, " k"]
    memory: Any


def init(config: MultiplierConfig, k: int) -> MultiplierState:
    """Multipliers of k constraints, all at `config.initial`."""
    start = jnp.full(k, config.initial, jnp.float32)
    if config.kind == "softplus":
        raw = _inverse_softplus(start)
        return MultiplierState(raw, optax.adam(config.learning_rate).init(raw))
    if config.kind == "pid":
        zeros = jnp.zeros(k, jnp.float32)
        history = jnp.zeros((config.derivative_delay, k), jnp.float32)
        memory = PIDMemory(start, zeros, history, jnp.zeros((), jnp.int32))
        return MultiplierState(start, memory)
    return MultiplierState(start, None)


def value(config: MultiplierConfig, state: MultiplierState) -> Float[Array, " k"]:
    """lambda, one per constraint."""
    return jax.nn.softplus(state.raw) if config.kind == "softplus" else state.raw


def update(
    config: MultiplierConfig,
    state: MultiplierState,
    cost: Float[Array, " k"],
    limit: Float[Array, " k"],
) -> MultiplierState:
    """One update from the measured costs J_C and their limits d: lambda grows where J_C > d.

    `cost` is the return to be limited, in the limit's units (such as the undiscounted cost of an
    episode), never a surrogate.
    """
    # A limit of 0 offers no unit of its own, so its violation stays as it is.
    unit = jnp.where(limit > 0, limit, 1.0)
    violation = (cost - limit) / unit if config.normalise else cost - limit
    if config.kind == "projected":
        return MultiplierState(_project(config, state.raw + config.learning_rate * violation), None)
    if config.kind == "softplus":
        step, moments = optax.adam(config.learning_rate).update(-violation, state.memory)
        z = state.raw + jnp.asarray(step)
        if config.maximum is not None:
            z = jnp.minimum(z, _inverse_softplus(jnp.float32(config.maximum)))
        return MultiplierState(z, moments)
    return _pid(config, state.memory, cost / unit, limit / unit)


def _pid(
    config: MultiplierConfig, memory: PIDMemory, cost: Float[Array, " k"], limit: Float[Array, " k"]
) -> MultiplierState:
    """Stooke et al. (2020), with the averages started at the first cost instead of at zero.

    Started at zero they would take the first measurements for a steep rise.
    """
    first = memory.updates == 0
    mixed = config.smoothing * memory.smoothed + (1 - config.smoothing) * cost
    smoothed = jnp.where(first, cost, mixed)
    history = jnp.where(first, jnp.broadcast_to(cost, memory.history.shape), memory.history)
    rise = jnp.maximum(smoothed - history[0], 0.0)
    integral = _project(config, memory.integral + config.integral_gain * (cost - limit))
    raw = config.proportional_gain * (smoothed - limit) + integral + config.derivative_gain * rise
    history = jnp.concatenate([history[1:], smoothed[None]])
    memory = PIDMemory(integral, smoothed, history, memory.updates + 1)
    return MultiplierState(_project(config, raw), memory)


def _project(config: MultiplierConfig, lam: Float[Array, " k"]) -> Float[Array, " k"]:
    return jnp.clip(lam, 0.0, config.maximum)


def _inverse_softplus(y: Float[Array, "*k"]) -> Float[Array, "*k"]:
    return y + jnp.log(-jnp.expm1(-y))
