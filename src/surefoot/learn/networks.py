"""The networks of a learner: policy, critics and observation scaling.

Every network takes batches of any shape `[..., D]` as they are, without `vmap`: a layer is one
matrix product over all rows, which is what keeps updates fast on a CPU.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

LOG_2PI = 1.8378770664093453


def orthogonal(noise: Float[Array, "i o"]) -> Float[Array, "i o"]:
    """Gaussian noise made a matrix with orthonormal rows or columns, whichever are fewer.

    Its orthogonal factor, by Newton's iteration, which needs products only. A QR decomposition
    would need LAPACK, which JAX has been seen to wait for without end on a CPU of two cores when
    several seeds start together.
    """
    tall = noise if noise.shape[0] >= noise.shape[1] else noise.T
    # Within the iteration's reach every singular value grows to 1; 40 rounds suffice even for one
    # a million times smaller than the greatest.
    tall = tall / jnp.linalg.norm(tall)
    with jax.default_matmul_precision("highest"):
        grow = lambda _, m: 1.5 * m - 0.5 * m @ (m.T @ m)
        tall = jax.lax.fori_loop(0, 40, grow, tall)
    return tall if noise.shape[0] >= noise.shape[1] else tall.T


class MLP(eqx.Module):
    """Fully connected layers, `x @ w + b`, with `activation` between them."""

    weights: list[Array]
    biases: list[Array]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        key: PRNGKeyArray,
        last_gain: float = 1.0,
        activation: Callable[[Array], Array] = jnp.tanh,
    ):
        """Orthogonal weights: gain sqrt(2) in hidden layers, `last_gain` in the last; no bias."""
        if len(sizes) < 2:
            raise ValueError(f"sizes = {tuple(sizes)}: needs at least an input and an output size")
        shapes = list(pairwise(sizes))
        gains = [2**0.5] * (len(shapes) - 1) + [last_gain]
        # Drawn all at once: every draw of its own takes half a second to compile.
        noise = jax.random.normal(key, (sum(i * o for i, o in shapes),))
        ends = list(accumulate(i * o for i, o in shapes))
        self.weights = [
            gain * orthogonal(noise[end - i * o : end].reshape(i, o))
            for gain, end, (i, o) in zip(gains, ends, shapes, strict=True)
        ]
        self.biases = [jnp.zeros(out, jnp.float32) for _, out in shapes]
        self.activation = activation

    def __call__(self, x: Float[Array, "*batch i"]) -> Float[Array, "*batch o"]:
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = self.activation(x @ w + b)
        return x @ self.weights[-1] + self.biases[-1]


class Gaussian(eqx.Module):
    """A diagonal Gaussian over `[..., A]`; `log_std` may be one row `[A]` shared by all."""

    mean: Float[Array, "*batch A"]
    log_std: Float[Array, "*#batch A"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*batch A"]:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Float[Array, "*batch A"]:
        return self.mean

    def log_prob(self, action: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * (z * z + LOG_2PI) - self.log_std, -1)

    def entropy(self) -> Float[Array, "*batch"]:
        entropy = jnp.sum(self.log_std + 0.5 * (1 + LOG_2PI), -1)
        return jnp.broadcast_to(entropy, self.mean.shape[:-1])

    def kl(self, new: Any) -> Float[Array, "*batch"]:
        """KL(self || new), exact, for `new` of the same kind."""
        gap = (new.mean - self.mean) * jnp.exp(-new.log_std)
        log_ratio = new.log_std - self.log_std
        return jnp.sum(log_ratio + 0.5 * (jnp.exp(-2 * log_ratio) + gap * gap - 1), -1)


class Categorical(eqx.Module):
    """A choice among A actions by unnormalised `logits`."""

    logits: Float[Array, "*batch A"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*batch"]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "*batch"]:
        return jnp.argmax(self.logits, -1)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]

    def entropy(self) -> Float[Array, "*batch"]:
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, -1)

    def kl(self, new: Any) -> Float[Array, "*batch"]:
        """KL(self || new), exact, for `new` of the same kind."""
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - jax.nn.log_softmax(new.logits)), -1)


class Actor(eqx.Module):
    """The policy: a Gaussian with state-independent `log_std`, or a categorical if `discrete`.

    Gaussian actions are unbounded and their log-probabilities are those of the unbounded action;
    `ActionSpec` clips what is sent to an environment.
    """

    network: MLP
    log_std: Float[Array, " A"] | None
    discrete: bool = eqx.field(static=True)

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        key: PRNGKeyArray,
        *,
        discrete: bool = False,
        hidden: Sequence[int] = (64, 64),
        initial_log_std: float = -0.5,
    ):
        """`action_dim` is the length of an action, or the number of choices if `discrete`."""
        # A small last layer starts every state near the same, centred action.
        self.network = MLP([obs_dim, *hidden, action_dim], key, last_gain=0.01)
        self.log_std = None if discrete else jnp.full(action_dim, initial_log_std, jnp.float32)
        self.discrete = discrete

    def heads(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch A"]:
        """The network's output: means, or logits if `discrete`."""
        return self.network(obs)

    def distribution(self, heads: Float[Array, "*batch A"]) -> Gaussian | Categorical:
        """The distribution that `heads` stands for under this actor's `log_std`."""
        return Categorical(heads) if self.log_std is None else Gaussian(heads, self.log_std)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Gaussian | Categorical:
        return self.distribution(self.heads(obs))

    def sample(self, obs: Float[Array, "*batch D"], key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """An action per row: float `[..., A]`, or integer `[...]` if `discrete`."""
        return self(obs).sample(key)

    def mode(self, obs: Float[Array, "*batch D"]) -> Shaped[Array, "..."]:
        """The most probable action per row."""
        return self(obs).mode()

    def log_prob(
        self, obs: Float[Array, "*batch D"], action: Shaped[Array, "..."]
    ) -> Float[Array, "*batch"]:
        return self(obs).log_prob(action)

    def entropy(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        return self(obs).entropy()


def kl(old: Actor, new: Actor, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
    """Exact KL(old || new) of the two policies at every observation."""
    return old(obs).kl(new(obs))


class Critics(eqx.Module):
    """1 + k value networks, the reward's first and then one per constraint, stacked in one."""

    network: MLP

    def __init__(
        self,
        obs_dim: int,
        constraints: int,
        key: PRNGKeyArray,
        *,
        hidden: Sequence[int] = (64, 64),
    ):
        keys = jax.random.split(key, 1 + constraints)
        self.network = eqx.filter_vmap(lambda k: MLP([obs_dim, *hidden, 1], k))(keys)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch signals"]:
        if jax.default_backend() != "cpu":
            values = jax.vmap(lambda network: network(obs))(self.network)
            return jnp.moveaxis(values[..., 0], 0, -1)
        # One by one: a batched product of the stack takes a CPU a tenth longer per update.
        signals = self.network.biases[0].shape[0]
        networks = [jax.tree.map(lambda x, i=i: x[i], self.network) for i in range(signals)]
        return jnp.stack([network(obs)[..., 0] for network in networks], -1)


class Normalizer(eqx.Module):
    """Running mean and variance of observations; calling it gives them mean 0 and variance 1."""

    mean: Float[Array, " D"]
    var: Float[Array, " D"]
    count: Float[Array, ""]

    def __init__(self, obs_dim: int):
        self.mean = jnp.zeros(obs_dim, jnp.float32)
        self.var = jnp.ones(obs_dim, jnp.float32)
        self.count = jnp.zeros((), jnp.float32)

    def update(
        self, obs: Float[Array, "*batch D"], mask: Bool[Array, "*batch"] | None = None
    ) -> "Normalizer":
        """Merge the statistics of the rows of `obs` (where `mask` is true) into the running ones.

        Chan's parallel form: exact for any split of the data into batches.
        """
        where = None if mask is None else mask[..., None]
        axes = tuple(range(obs.ndim - 1))
        count = jnp.float32(obs.size // obs.shape[-1]) if mask is None else jnp.sum(mask * 1.0)
        # An empty batch divides by one instead of zero, and then carries no weight.
        rows = jnp.maximum(count, 1.0)
        mean = jnp.sum(obs, axes, where=where) / rows
        var = jnp.sum((obs - mean) ** 2, axes, where=where) / rows
        total = jnp.maximum(self.count + count, 1.0)
        share, gap = count / total, mean - self.mean
        kept = self.count / total
        merged = (
            self.mean + share * gap,
            kept * self.var + share * var + kept * share * gap * gap,
            self.count + count,
        )
        return eqx.tree_at(lambda n: (n.mean, n.var, n.count), self, merged)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        """Scaled observations, cut at 10 deviations so that a rare feature cannot dominate."""
        return jnp.clip((obs - self.mean) * jax.lax.rsqrt(self.var + 1e-8), -10.0, 10.0)
