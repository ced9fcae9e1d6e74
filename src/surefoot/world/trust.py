"""Trust in imagination: the performance ratio, and imagined against real episodes."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from surefoot.core.arrays import Index, Scalar


def performance_ratio(new: Float[Array, " elites"], old: Float[Array, " elites"]) -> Scalar:
    """Fraction of the elites in which the new policy's return exceeds the old one's (eq. pr).

    Both returns must come from the same initial states and random numbers in each elite. Their
    difference is then much less noisy than the returns.
    """
    return jnp.mean(new > old)


RISE = 0.1
"""Share of the best reward by which a reward must exceed it to count as rising quickly."""


def well_above(reward: Float[np.ndarray, " S"], best: Float[np.ndarray, " S"]) -> np.ndarray:
    """Whether rewards clearly exceed the best ones so far; not if there are none (NaN)."""
    return reward > best + RISE * np.abs(best)


def next_reach(
    reach: Float[np.ndarray, " S"], mismatch: Bool[np.ndarray, " S"], most: int
) -> Float[np.ndarray, " S"]:
    """Steps from real states that imagination is trusted for in the next epoch.

    Long rollouts in a model that is wrong exploit its errors. A quarter of the steps remains.
    """
    least = max(1, most // 4)
    return np.clip(np.where(mismatch, 0.7, 1.3) * reach, least, most).astype(np.float32)


class CostRatio(eqx.Module):
    """Real over imagined episode cost, from exponentially weighted sums over real batches.

    A factor, unlike a difference, lets the estimated cost fall to 0 with the imagined cost.
    """

    real: Float[Array, " k"]
    """Weighted sum of real costs."""
    imagined: Float[Array, " k"]
    """Weighted sum of the costs imagined for the same policies."""
    variance: Float[Array, " k"]
    """Variance of the sum of real costs."""

    @staticmethod
    def none(k: int) -> "CostRatio":
        """The state before the first real batch."""
        return CostRatio(jnp.zeros(k), jnp.zeros(k), jnp.zeros(k))

    def seen(
        self,
        real: Float[Array, " k"],
        error: Float[Array, " k"],
        imagined: Float[Array, " k"],
        episodes: int,
        memory: float,
    ) -> "CostRatio":
        """The state after another real batch, whose mean cost has the standard error `error`."""
        # Few episodes may all be cheap by luck: costs spread about as much as their mean.
        variance = jnp.maximum(jnp.square(error), jnp.square(imagined) / episodes)
        return CostRatio(
            memory * self.real + real,
            memory * self.imagined + imagined,
            memory**2 * self.variance + variance,
        )

    def value(self, limit: Float[Array, " k"]) -> Float[Array, " k"]:
        """The ratio, drawn towards 1 the more, the less certain the real cost is.

        One limit's worth of cost on either side keeps small costs from deciding.
        """
        prior = jnp.where(limit > 0, limit, 1.0)
        largest = jnp.maximum(self.real, self.imagined) + prior
        certainty = 1 / (1 + 2 * self.variance / jnp.square(largest))
        return ((self.real + prior) / (self.imagined + prior)) ** certainty


class EpisodeCosts(eqx.Module):
    """Costs of whole imagined episodes, which take several rollouts; one place per rollout."""

    running: Float[Array, "B k"]
    """Cost of the present episode so far; NaN if its beginning was not imagined."""
    finished: Float[Array, "B k"]
    """Cost of the last episode that ended in this place; NaN before the first."""

    @staticmethod
    def none(n: int, k: int) -> "EpisodeCosts":
        return EpisodeCosts(jnp.full((n, k), jnp.nan), jnp.full((n, k), jnp.nan))

    def seen(
        self, cost: Float[Array, "B k"], began: Bool[Array, " B"], over: Bool[Array, " B"]
    ) -> "EpisodeCosts":
        """The state after rollouts of these costs; episodes `began` with them or are `over`."""
        running = jnp.where(began[:, None], 0.0, self.running) + cost
        whole = over[:, None] & ~jnp.isnan(running)
        # The next episode in this place must begin with a rollout of its own.
        left = jnp.where(over[:, None], jnp.nan, running)
        return EpisodeCosts(left, jnp.where(whole, running, self.finished))

    def quantile(self, q: float, otherwise: Float[Array, " k"]) -> Float[Array, " k"]:
        """The q-quantile of the finished episodes' costs; `otherwise` before the first."""
        value = jnp.nanquantile(self.finished, q, 0)
        return jnp.where(jnp.isnan(value), otherwise, value)

    def within(self, limit: Float[Array, " k"]) -> Scalar:
        """Share of the finished episodes within all limits; NaN before the first."""
        known = ~jnp.isnan(self.finished).any(-1)
        return ((self.finished <= limit).all(-1) & known).sum() / known.sum()


class Progress(eqx.Module):
    """Whether a reward still rises quickly, from noisy values of it."""

    smoothed: Scalar
    best: Scalar
    """The smoothed reward at its last gain."""
    updates: Index
    stale: Index
    """Updates since the last gain."""

    @staticmethod
    def none() -> "Progress":
        zero = jnp.zeros((), jnp.int32)
        return Progress(jnp.zeros(()), jnp.full((), -jnp.inf), zero, zero)

    def seen(self, reward: Scalar) -> "Progress":
        """The state after another value; a gain is 5 % of the best so far."""
        smoothed = jnp.where(self.updates > 0, 0.9 * self.smoothed + 0.1 * reward, reward)
        gained = ~(smoothed <= self.best + 0.05 * jnp.abs(self.best))  # also over -inf
        return Progress(
            smoothed,
            jnp.where(gained, smoothed, self.best),
            self.updates + 1,
            jnp.where(gained, 0, self.stale + 1),
        )


NO_WINDOW = -2


def episode_totals(
    totals: Float[Array, "B m"],
    survived: Bool[Array, " B"],
    window: Int[Array, " B"],
    windows: int,
    last_share: float = 1.0,
) -> Float[Array, " m"]:
    """Expected totals of a whole episode, from rollouts that each cover one window of it.

    An episode is a chain of `windows` windows that ends at its time limit or by termination. The
    expected total is the sum over windows of the probability to reach a window times its mean.

    Args:
        totals: Totals of each rollout up to its end.
        survived: Whether each rollout did not terminate.
        window: The window that each rollout covers; -1 if unknown; NO_WINDOW if it does not count.
        windows: Number of windows in an episode that does not terminate.
        last_share: Length of the last window in units of the others.

    Windows without a rollout take the mean of all rollouts.
    """
    member = (window[:, None] == jnp.arange(windows)).astype(totals.dtype)
    count = member.sum(0)[:, None]
    share = jnp.ones(windows).at[-1].set(last_share)[:, None]
    values = jnp.concatenate([totals, survived[:, None].astype(totals.dtype)], -1)
    counts = (window != NO_WINDOW).astype(totals.dtype)
    mean = counts @ values / jnp.maximum(counts.sum(), 1.0)
    pooled = mean * jnp.concatenate(
        [jnp.broadcast_to(share, (windows, totals.shape[1])), jnp.ones((windows, 1))], -1
    )
    means = jnp.where(count > 0, member.T @ values / jnp.maximum(count, 1.0), pooled)
    reached = jnp.concatenate([jnp.ones(1), jnp.cumprod(means[:-1, -1])])
    return reached @ means[:, :-1]


def mismatched(
    real: Float[Array | np.ndarray, "*S k"],
    real_error: Float[Array | np.ndarray, "*S k"],
    imagined: Float[Array | np.ndarray, "*S k"],
    scale: Float[Array | np.ndarray, "*#S k"] | float,
) -> Bool[Array, "*S k"]:
    """Whether real and imagined totals differ by over two standard errors and half of `scale`."""
    difference = jnp.abs(real - imagined)
    return (difference > 2 * real_error) & (difference > 0.5 * scale)
