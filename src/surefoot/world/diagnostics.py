"""Diagnostics of the learned model: calibration of one step, and error growth over rollouts."""

from statistics import NormalDist
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from surefoot.core.arrays import RandomKey
from surefoot.core.spaces import ActionSpec
from surefoot.world.ensemble import Ensemble, predict_all
from surefoot.world.imagination import LearnedWorld, Replay, replay
from surefoot.world.model import State, TaskModel, training_rows

LEVELS = (0.5, 0.9, 0.95)
"""Levels of the central intervals whose coverage is measured."""
_HALF_WIDTHS = np.array([NormalDist().inv_cdf(0.5 + level / 2) for level in LEVELS], "float32")
ROLLOUTS = 600
"""Least number of rollouts in a trial."""


class Calibration(eqx.Module):
    """Predicted against observed spread; a calibrated model covers LEVELS and has `chi2` = 1."""

    coverage: Float[Array, "levels D"]
    """Fraction of the targets inside the central 50 %, 90 % and 95 % predicted intervals."""
    chi2: Float[Array, " D"]
    """Mean squared standardised residual: above 1 is overconfident, below 1 underconfident."""


def calibration(
    mean: Float[Array, "*B D"], std: Float[Array, "*B D"], target: Float[Array, "*B D"]
) -> Calibration:
    """Compare predicted Gaussians with observed targets, averaged over all leading axes.

    Missing targets, which are NaN, are left out.
    """
    z = ((target - mean) / std).reshape(-1, mean.shape[-1])
    inside = jnp.abs(z) <= jnp.asarray(_HALF_WIDTHS)[:, None, None]
    inside = jnp.where(jnp.isnan(z), jnp.nan, inside)
    return Calibration(jnp.nanmean(inside, axis=1), jnp.nanmean(jnp.square(z), axis=0))


class OneStep(eqx.Module):
    """Errors of the elites' predictions of real steps, averaged over elites and steps."""

    rmse: Float[Array, " D"]
    """Root mean square error of each Gaussian output, in its unit."""
    share: Float[Array, " D"]
    """Mean square error as a fraction of the output's variance in the training data."""
    loss: Float[Array, " D"]
    """Negative log-likelihood as in fitting: of normalised outputs, up to constants."""
    calibration: Calibration
    binary_loss: Float[Array, " b"]
    """Cross-entropy of each binary output."""
    predicted_rate: Float[Array, " b"]
    """Mean predicted probability of each binary output."""
    real_rate: Float[Array, " b"]
    """Observed frequency of each binary output."""


def one_step(
    ensemble: Ensemble, inputs: Float[Array, "N F"], targets: Float[Array, "N outputs"]
) -> OneStep:
    """Compare the elites' predictions with the targets of real steps."""
    mean, std, logits = (out[ensemble.elites] for out in predict_all(ensemble, inputs))
    d = mean.shape[-1]
    real, label = jnp.broadcast_to(targets[:, :d], mean.shape), targets[:, d:]
    over = (0, 1)
    mse = jnp.nanmean(jnp.square(mean - real), over)
    nll = jnp.square((mean - real) / std) + 2 * jnp.log(std / ensemble.target_std)
    return OneStep(
        rmse=jnp.sqrt(mse),
        share=mse / jnp.square(ensemble.target_std),
        loss=jnp.nanmean(nll, over),
        calibration=calibration(mean, std, real),
        binary_loss=(jax.nn.softplus(logits) - label * logits).mean(over),
        predicted_rate=jax.nn.sigmoid(logits).mean(over),
        real_rate=label.mean(0),
    )


def rollout_rmse(error: Float[Array, "H B D"], weight: Float[Array, "H B"]) -> Float[Array, "H D"]:
    """Root mean square error per output after 1, 2, ... H steps of the same actions.

    Rollouts with a `weight` of 0 are left out; the error is NaN where all are.
    """
    square = jnp.square(error) * weight[..., None]
    return jnp.sqrt(square.sum(axis=1) / weight.sum(axis=1)[:, None])


class RealSteps(NamedTuple):
    """T real steps of n environments of one seed, arrays [T, n, ...]."""

    before: Float[np.ndarray, "T n R"]
    """Records of the states before each step."""
    action: Shaped[np.ndarray, "T n ..."]
    reward: Float[np.ndarray, "T n"]
    cost: Float[np.ndarray, "T n k"]
    after: Float[np.ndarray, "T n R"]
    """Records of the states after each step, the final ones where an episode ended."""
    terminated: Bool[np.ndarray, "T n"]
    ended: Bool[np.ndarray, "T n"]
    """Terminated or truncated."""


class Segments(NamedTuple):
    """B segments of real steps, each within one episode."""

    start: Int[np.ndarray, " B"]
    """First step of each segment."""
    place: Int[np.ndarray, " B"]
    """Environment of each segment."""
    within: Bool[np.ndarray, "H B"]
    """Whether a segment includes its step number h; it ends where its episode terminates."""

    def take(self, x: Shaped[np.ndarray, "T n ..."]) -> Shaped[np.ndarray, "H B ..."]:
        """The values of the segments' steps; the last one is repeated after an end."""
        last = self.start + self.within.sum(0) - 1
        t = np.minimum(self.start + np.arange(len(self.within))[:, None], last)
        return x[t, self.place]


def segments(
    ended: Bool[np.ndarray, "T n"], terminated: Bool[np.ndarray, "T n"], horizon: int, count: int
) -> Segments:
    """`count` segments of `horizon` steps, spread evenly over all segments in the real steps.

    No segment crosses the end of an episode. Segments that termination cuts short are included, so
    that the steps before a termination are tested. Segments that truncation cuts short are not.
    """
    left, to_termination = np.zeros(ended.shape, int), np.zeros(ended.shape, bool)
    steps, terminates = np.zeros(ended.shape[1], int), np.zeros(ended.shape[1], bool)
    for t in reversed(range(len(ended))):
        steps = np.where(ended[t], 1, steps + 1)
        terminates = np.where(ended[t], terminated[t], terminates)
        left[t], to_termination[t] = steps, terminates
    place, start = np.nonzero(((left >= horizon) | to_termination).T)
    if not len(start):
        raise ValueError(f"horizon={horizon} must be at most {left.max()}, the longest episode")
    pick = np.linspace(0, len(start) - 1, count).round().astype(int)
    start, place = start[pick], place[pick]
    return Segments(start, place, np.arange(horizon)[:, None] < left[start, place])


class Trial(NamedTuple):
    """Imagined against real outcomes of one seed, in H steps of B rollouts."""

    one: OneStep
    rmse: Float[np.ndarray, "H F"]
    """Error of each feature, in standard deviations of the training data."""
    error: Float[np.ndarray, "H B"]
    """Root mean square of these errors over the features of one rollout."""
    counted: Bool[np.ndarray, "H B"]
    """Whether imagined and real features are comparable."""
    imagined_reward: Float[np.ndarray, "H B"]
    """Cumulative, like all fields below."""
    real_reward: Float[np.ndarray, "H B"]
    imagined_cost: Float[np.ndarray, "H B k"]
    real_cost: Float[np.ndarray, "H B k"]


class Diagnostic:
    """Compares ensembles for one task model with real steps."""

    def __init__(self, model: TaskModel, actions: ActionSpec, horizon: int):
        self.model, self.actions, self.horizon = model.for_horizon(horizon), actions, horizon
        self._one_step, self._replay = jax.jit(self._compare_steps), jax.jit(self._compare_rollouts)
        self._restore = jax.jit(self.model.restore)

    def __call__(self, ensemble: Ensemble, real: RealSteps, key: RandomKey) -> Trial:
        """Imagine the actions of real segments, and compare with the real outcomes."""
        elites = ensemble.elites.shape[0]
        cut = segments(real.ended, real.terminated, self.horizon, -(-ROLLOUTS // elites) * elites)
        start_key, roll_key = jax.random.split(key)
        states = self._restore(start_key, real.before[cut.start, cut.place])
        states, comparable = self.model.follow_real(states, real.before, real.ended, *cut)
        imagined, error = jax.device_get(
            self._replay(ensemble, states, cut.take(real.action), cut.take(real.after), roll_key)
        )
        alive = imagined.alive > 0
        counted = comparable & alive & (imagined.events == 0)
        rewards = imagined.reward, cut.take(real.reward)
        costs = imagined.cost, cut.take(real.cost)
        lasting = cut.within & alive, cut.within
        return Trial(
            jax.device_get(self._one_step(ensemble, real)),
            np.asarray(rollout_rmse(error, counted.astype(np.float32))),
            np.sqrt(np.square(error).mean(-1)),
            counted,
            *(np.cumsum(x * w, 0) for x, w in zip(rewards, lasting, strict=True)),
            *(np.cumsum(x * w[..., None], 0) for x, w in zip(costs, lasting, strict=True)),
        )

    def _compare_steps(self, ensemble: Ensemble, real: RealSteps) -> OneStep:
        flat = [jnp.asarray(x).reshape(-1, *x.shape[2:]) for x in real]
        rows = training_rows(self.model, self.actions, *flat[:-1])
        return one_step(ensemble, **rows)

    def _compare_rollouts(
        self,
        ensemble: Ensemble,
        states: State,
        taken: Shaped[Array, "H B ..."],
        after: Float[Array, "H B R"],
        key: RandomKey,
    ) -> tuple[Replay, Float[Array, "H B F"]]:
        """Imagined outcomes, and errors of the features in standard deviations of the data."""
        imagined = replay(LearnedWorld(self.model, self.actions, ensemble), taken, states, key)
        truth = jax.vmap(jax.vmap(self.model.record_features))(after)
        return imagined, (imagined.features - truth) / ensemble.input_std[: truth.shape[-1]]
