"""Lagrange multipliers: one per constraint, raised while its cost exceeds its limit.

A new update rule is an entry in `RULES`, and its name in `MultiplierConfig.kind`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from surefoot.core.arrays import Flag, Index, Scalar
from surefoot.core.config import NonNegative, Positive, Share, Width, check

Vector = Float[Array, " k"]
LARGEST_ERROR = 1.5
"""Log-pi: bound of log(cost / limit), so that one extreme measurement cannot set lambda."""
Rate = Scalar | float
"""Factor on a learning rate."""
TYPICAL_SPREAD = 0.125
"""Log-pi: least deviation of the cost advantages, in units of the limit or, if it is larger, of the
first cost. Otherwise few first costs would start lambda high."""
TINY = 1e-6
LEAST_BALANCE, MOST_BALANCE = 0.05, 10.0
"""Log-pi: bounds of lambda times the deviation of the cost advantages, in deviations of the
reward's. Outside them a smaller or larger lambda changes little, and would take long to return. The
lower one takes a typical deviation: a policy that does nothing has no costs to weigh."""


@dataclass(frozen=True)
class MultiplierConfig:
    """How the multipliers follow the measured costs."""

    kind: Literal["projected", "softplus", "pid", "log-pi"] = "projected"
    """Update rule: projected ascent (the paper), softplus with Adam (safety-starter-agents), PID
    control of lambda, or PI control of its logarithm, which works at any scale of the task."""
    learning_rate: Positive = 0.05
    """Step size of projected ascent or of Adam; controllers have gains instead."""
    initial: NonNegative = 1.0
    """Value before the first update; the initial integral of PID control. For log-pi: the initial
    weight of the cost advantages in units of the reward advantages."""
    maximum: Positive | None = None
    """Upper bound of a multiplier; None for no bound."""
    normalise: bool = False
    """Measure violations relative to the limit, (J_C - d) / d. PID control always does."""
    proportional_gain: NonNegative = 0.1
    """PID: weight of the smoothed violation. Log-pi: weight of the present one."""
    integral_gain: NonNegative = 0.01
    """PID and log-pi: weight of each violation added to the integral."""
    derivative_gain: NonNegative = 0.01
    """PID: weight of the rise of the smoothed cost over the last `derivative_delay` updates."""
    derivative_delay: Width = 10
    """PID: number of updates over which the rise of the cost is measured."""
    smoothing: Share = 0.95
    """PID: weight of the past in the moving average of the cost."""

    def __post_init__(self) -> None:
        check(self)
        if self.kind in ("softplus", "log-pi") and self.initial == 0:
            raise ValueError(
                f"initial={self.initial} must be positive for {self.kind}, which never reaches 0"
            )
        # The initial value of log-pi is not in the units of lambda.
        least = 1e-6 if self.kind == "log-pi" else max(self.initial, 1e-6)
        if self.maximum is not None and self.maximum < least:
            raise ValueError(
                f"maximum={self.maximum} must be at least 1e-6 and at least initial={self.initial}"
            )


NO_MULTIPLIER = MultiplierConfig(initial=0.0)
"""The start of a learner that keeps no limit: multipliers of 0."""


class PIDMemory(eqx.Module):
    """Past costs relative to the limit, for PID control."""

    integral: Vector
    smoothed: Vector
    history: Float[Array, "delay k"]
    """Smoothed costs of the last updates, oldest first."""
    updates: Index


class LogMemory(eqx.Module):
    """The integral of log-pi control."""

    integral: Vector
    started: Flag
    """Whether the first update has set the integral."""


class MultiplierState(eqx.Module):
    """`raw` is lambda, or z with lambda = softplus(z) or exp(z); `memory` belongs to the rule."""

    raw: Vector
    memory: optax.OptState | PIDMemory | LogMemory | None


class Scales(NamedTuple):
    """Scales of the advantages that lambda weighs against each other."""

    reward: Scalar
    """What the cost advantages were divided by; see `PPOConfig.scale_costs`."""
    costs: Vector
    """Standard deviation of the cost advantages after that; the reward's is 1."""


def _unit(limit: Vector) -> Vector:
    """The limit, or 1 where it is 0 and so defines no unit."""
    return jnp.where(limit > 0, limit, 1.0)


def _violation(config: MultiplierConfig, cost: Vector, limit: Vector) -> Vector:
    return (cost - limit) / _unit(limit) if config.normalise else cost - limit


def _project(config: MultiplierConfig, lam: Vector) -> Vector:
    return jnp.clip(lam, 0.0, config.maximum)


def _inverse_softplus(y: Float[Array, "*k"]) -> Float[Array, "*k"]:
    return y + jnp.log(-jnp.expm1(-y))


def _project_init(config: MultiplierConfig, start: Vector) -> MultiplierState:
    return MultiplierState(start, None)


def _project_update(
    config: MultiplierConfig,
    state: MultiplierState,
    cost: Vector,
    limit: Vector,
    scales: Scales,
    rate: Rate,
) -> MultiplierState:
    """Gradient ascent on lambda, projected onto [0, maximum]."""
    step = config.learning_rate * _violation(config, cost, limit)
    return MultiplierState(_project(config, state.raw + step), None)


def _softplus_init(config: MultiplierConfig, start: Vector) -> MultiplierState:
    raw = _inverse_softplus(start)
    return MultiplierState(raw, optax.adam(config.learning_rate).init(raw))


def _softplus_update(
    config: MultiplierConfig,
    state: MultiplierState,
    cost: Vector,
    limit: Vector,
    scales: Scales,
    rate: Rate,
) -> MultiplierState:
    """Adam on z, where lambda = softplus(z)."""
    memory, violation = state.memory, _violation(config, cost, limit)
    assert memory is not None and not isinstance(memory, PIDMemory | LogMemory)
    step, moments = optax.adam(config.learning_rate).update(-violation, memory)
    z = state.raw + jnp.asarray(step)
    if config.maximum is not None:
        z = jnp.minimum(z, _inverse_softplus(jnp.float32(config.maximum)))
    return MultiplierState(z, moments)


def _pid_init(config: MultiplierConfig, start: Vector) -> MultiplierState:
    history = jnp.zeros((config.derivative_delay, len(start)), jnp.float32)
    memory = PIDMemory(start, jnp.zeros_like(start), history, jnp.zeros((), jnp.int32))
    return MultiplierState(start, memory)


def _pid_update(
    config: MultiplierConfig,
    state: MultiplierState,
    cost: Vector,
    limit: Vector,
    scales: Scales,
    rate: Rate,
) -> MultiplierState:
    """PID control (Stooke et al., 2020), with averages that start at the first cost.

    If they started at zero, the first measurements would count as a steep rise.
    """
    memory, unit = state.memory, _unit(limit)
    assert isinstance(memory, PIDMemory)
    cost, limit = cost / unit, limit / unit
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


def _log_pi_init(config: MultiplierConfig, start: Vector) -> MultiplierState:
    z = jnp.log(start)
    return MultiplierState(z, LogMemory(z, jnp.zeros((), bool)))


def _log_pi_update(
    config: MultiplierConfig,
    state: MultiplierState,
    cost: Vector,
    limit: Vector,
    scales: Scales,
    rate: Rate,
) -> MultiplierState:
    """PI control of z = log lambda on log(cost / limit).

    A factor per update serves every scale of reward and cost. The integral stands still where
    lambda already decides the update or has no part in it: it would wind up or down without effect.
    """
    memory, unit = state.memory, _unit(limit)
    assert isinstance(memory, LogMemory)
    error = jnp.log(jnp.maximum(cost, TINY * unit) / jnp.maximum(limit, TINY * unit))
    error = jnp.clip(error, -LARGEST_ERROR, LARGEST_ERROR)
    spread = jnp.maximum(scales.costs, TYPICAL_SPREAD * jnp.maximum(unit, cost) / scales.reward)
    start = jnp.log(config.initial / spread)
    integral = jnp.where(memory.started, memory.integral, start)
    lam = jnp.exp(integral)
    rises, falls = lam * scales.costs < MOST_BALANCE, lam * spread > LEAST_BALANCE
    effective = jnp.where(error > 0, rises, falls)
    most = None if config.maximum is None else math.log(config.maximum)
    integral = jnp.clip(integral + rate * config.integral_gain * effective * error, max=most)
    z = jnp.clip(integral + config.proportional_gain * error, max=most)
    return MultiplierState(z, LogMemory(integral, jnp.ones((), bool)))


class Rule(NamedTuple):
    """An update rule."""

    init: Callable[[MultiplierConfig, Vector], MultiplierState]
    """The state at a value of lambda."""
    value: Callable[[Vector], Vector]
    """Lambda from `MultiplierState.raw`."""
    update: Callable[
        [MultiplierConfig, MultiplierState, Vector, Vector, Scales, Rate], MultiplierState
    ]
    """The state after measuring costs, given their limits and the scales of the advantages."""


RULES = {
    "projected": Rule(_project_init, lambda raw: raw, _project_update),
    "softplus": Rule(_softplus_init, jax.nn.softplus, _softplus_update),
    "pid": Rule(_pid_init, lambda raw: raw, _pid_update),
    "log-pi": Rule(_log_pi_init, jnp.exp, _log_pi_update),
}


def init(config: MultiplierConfig, k: int) -> MultiplierState:
    """Multipliers of k constraints, all at `config.initial`."""
    return RULES[config.kind].init(config, jnp.full(k, config.initial, jnp.float32))


def value(config: MultiplierConfig, state: MultiplierState) -> Vector:
    """Lambda, one per constraint."""
    return RULES[config.kind].value(state.raw)


def update(
    config: MultiplierConfig,
    state: MultiplierState,
    cost: Vector,
    limit: Vector,
    scales: Scales,
    rate: Rate = 1.0,
) -> MultiplierState:
    """Update lambda from the measured costs J_C and their limits d; it grows where J_C > d.

    `cost` is the limited return in the units of the limit, such as the undiscounted cost of an
    episode. It must not be a surrogate. `rate` is the factor on the policy's learning rate: a
    policy that moves slowly needs an integral that does.
    """
    return RULES[config.kind].update(config, state, cost, limit, scales, rate)
