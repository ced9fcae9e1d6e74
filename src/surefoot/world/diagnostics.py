"""How far to believe the learned model: is its noise the real noise, and how fast does it drift?"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Shaped

from surefoot.core.spaces import ActionSpec
from surefoot.world.ensemble import Ensemble, predict_all
from surefoot.world.imagination import imagine
from surefoot.world.model import Bounds, State, TaskModel

LEVELS = (0.5, 0.9, 0.95)
# Half-width, in standard deviations, of the central interval of each level.
_HALF_WIDTHS = np.array([NormalDist().inv_cdf(0.5 + level / 2) for level in LEVELS], "float32")


class Calibration(eqx.Module):
    """Predicted against observed spread; a calibrated model covers LEVELS and has `chi2` = 1."""

    coverage: Float[Array, "levels D"]
    """Share of the targets inside the central 50 %, 90 % and 95 % predicted intervals."""
    chi2: Float[Array, " D"]
    """Mean squared standardised residual: above 1 the model is too sure, below 1 not enough."""


def calibration(
    mean: Float[Array, "*B D"], std: Float[Array, "*B D"], target: Float[Array, "*B D"]
) -> Calibration:
    """Compare the Gaussians predicted for some rows with what was observed there.

    Leading axes are averaged over, so predictions of several members may be stacked.
    """
    z = ((target - mean) / std).reshape(-1, mean.shape[-1])
    inside = jnp.abs(z) <= jnp.asarray(_HALF_WIDTHS)[:, None, None]
    return Calibration(coverage=inside.mean(axis=1), chi2=jnp.square(z).mean(axis=0))


class OneStep(eqx.Module):
    """What the elites said of real steps, mean over elites and steps."""

    rmse: Float[Array, " D"]
    """Root mean square error of each Gaussian output, in its own unit."""
    share: Float[Array, " D"]
    """The same squared, as a share of the output's variance in the data the model was fitted to."""
    loss: Float[Array, " D"]
    """Negative log-likelihood as in fitting: of normalised outputs, up to constants."""
    calibration: Calibration
    binary_loss: Float[Array, " b"]
    """Cross-entropy of each binary output."""
    predicted_rate: Float[Array, " b"]
    """Mean predicted probability of each binary output."""
    real_rate: Float[Array, " b"]
    """How often it came true."""


def one_step(
    ensemble: Ensemble, inputs: Float[Array, "N F"], targets: Float[Array, "N outputs"]
) -> OneStep:
    """Compare the elites' predictions with what really followed."""
    mean, std, logits = (out[ensemble.elites] for out in predict_all(ensemble, inputs))
    d = mean.shape[-1]
    real, label = jnp.broadcast_to(targets[:, :d], mean.shape), targets[:, d:]
    over = (0, 1)
    mse = jnp.square(mean - real).mean(over)
    nll = jnp.square((mean - real) / std) + 2 * jnp.log(std / ensemble.target_std)
    return OneStep(
        rmse=jnp.sqrt(mse),
        share=mse / jnp.square(ensemble.target_std),
        loss=nll.mean(over),
        calibration=calibration(mean, std, real),
        binary_loss=(jax.nn.softplus(logits) - label * logits).mean(over),
        predicted_rate=jax.nn.sigmoid(logits).mean(over),
        real_rate=label.mean(0),
    )


class Replay(eqx.Module):
    """What imagination makes of H actions that were really taken, in B rollouts."""

    seen: Float[Array, "H B W"]
    """What was looked at, after each step."""
    reward: Float[Array, "H B"]
    cost: Float[Array, "H B k"]
    alive: Float[Array, "H B"]
    """1 up to and including the step that ends a rollout, 0 after it."""


def replay(
    knowledge: TaskModel,
    actions: ActionSpec,
    ensemble: Ensemble,
    states: State,
    taken: Shaped[Array, "H B ..."],
    key: Key[Array, ""],
    look: Callable[[State], Float[Array, " W"]],
) -> Replay:
    """Imagine `taken` from `states` (leading axis B), and `look` at every state that follows.

    It is `imagine` itself that runs, with its random elites and its noise: so even a perfect model
    of a noisy world errs, by sqrt(2) times the spread of what may follow. And actions that were
    taken cannot answer to where imagination has drifted, as a policy would: over long horizons
    this shows the worst.
    """
    horizon, size = taken.shape[:2]
    width = 1 if actions.discrete else actions.size

    def policy(obs: Float[Array, "B O"], _: Key[Array, ""]) -> Shaped[Array, "B ..."]:
        return obs[:, 0].astype(jnp.int32) if actions.discrete else obs[:, :width]

    orders = jnp.moveaxis(taken.reshape(horizon, size, width).astype(jnp.float32), 0, 1)
    follower = cast(TaskModel, _Follower(knowledge, look))
    rollout, _ = imagine(
        follower, actions, ensemble, policy,
        _Following(states, orders, jnp.zeros(size, jnp.int32)), horizon, key,
    )  # fmt: skip
    obs = jnp.concatenate([rollout.obs, rollout.last_obs[None]])
    return Replay(obs[1:, :, width:], rollout.reward, rollout.cost, rollout.alive)


class _Following(NamedTuple):
    """An imagined state with the actions to take from it on."""

    state: State
    orders: Float[Array, "H A"]
    t: Int[Array, ""]


@dataclass(frozen=True)
class _Follower:
    """A knowledge whose policy sees the action to take, and behind it what is looked at."""

    inner: TaskModel
    look: Callable[[State], Array]

    @property
    def feature_size(self) -> int:
        return self.inner.feature_size

    def features(self, state: _Following) -> Float[Array, " F"]:
        return self.inner.features(state.state)

    def observe(self, state: _Following) -> Float[Array, " A+W"]:
        return jnp.concatenate([state.orders[state.t], self.look(state.state)])

    def advance(
        self, state: _Following, action: Array, prediction: Array, binary: Array, bounds: Bounds
    ) -> tuple[Any, ...]:
        after, *rest = self.inner.advance(state.state, action, prediction, binary, bounds)
        return _Following(after, state.orders, state.t + 1), *rest


def rollout_rmse(
    predicted: Float[Array, "H B D"],
    real: Float[Array, "H B D"],
    weight: Float[Array, "H B"] | None = None,
) -> Float[Array, "H D"]:
    """Root mean square error per output after 1, 2, ... H steps of the same actions.

    With a `weight`, 0 leaves a rollout out; where all are left out, the error is NaN.
    """
    if predicted.shape != real.shape:
        raise ValueError(f"predicted {predicted.shape}: must have the shape of real {real.shape}")
    weight = jnp.ones(real.shape[:2]) if weight is None else weight
    square = jnp.square(predicted - real) * weight[..., None]
    return jnp.sqrt(square.sum(axis=1) / weight.sum(axis=1)[:, None])
