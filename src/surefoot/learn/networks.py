"""The networks of a learner: policy, critics and observation scaling.

Every network takes batches of any shape `[..., D]` without `vmap`. A layer is one matrix product
over all rows, which keeps updates fast on a CPU.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from surefoot.core.arrays import RandomKey, Scalar
from surefoot.core.policy import OBSERVATION_CLIP, VARIANCE_EPSILON
from surefoot.core.spaces import ActionSpec

LOG_2PI = 1.8378770664093453


def orthogonal(noise: Float[Array, "i o"]) -> Float[Array, "i o"]:
    """The orthogonal polar factor of a noise matrix: orthonormal rows or columns, the fewer ones.

    Newton's iteration needs matrix products only. A QR decomposition needs LAPACK, which can hang
    on a CPU with two cores when several seeds start together.
    """
    tall = noise if noise.shape[0] >= noise.shape[1] else noise.T
    # Every singular value in (0, 1] converges to 1. 40 iterations suffice even for one a million
    # times smaller than the largest.
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
        key: RandomKey,
        last_gain: float = 1.0,
        activation: Callable[[Array], Array] = jnp.tanh,
    ):
        """Orthogonal weights with gain sqrt(2), `last_gain` in the last layer; zero biases."""
        if len(sizes) < 2:
            raise ValueError(f"sizes={tuple(sizes)} must have at least an input and an output size")
        shapes = list(pairwise(sizes))
        gains = [2**0.5] * (len(shapes) - 1) + [last_gain]
        # One draw for all layers, because every separate draw takes half a second to compile.
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
    """A diagonal Gaussian over `[..., A]`; `log_std` may be one row `[A]` for the whole batch."""

    mean: Float[Array, "*batch A"]
    log_std: Float[Array, "*#batch A"]

    def sample(self, key: RandomKey) -> Float[Array, "*batch A"]:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Float[Array, "*batch A"]:
        return self.mean

    def log_prob(self, action: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * (z * z + LOG_2PI) - self.log_std, -1)

    def entropy(self) -> Float[Array, "*batch"]:
        entropy = jnp.sum(self.log_std + 0.5 * (1 + LOG_2PI), -1)
        return jnp.broadcast_to(entropy, self.mean.shape[:-1])

    def kl(self, new: "Distribution") -> Float[Array, "*batch"]:
        """Exact KL(self || new)."""
        assert isinstance(new, Gaussian)
        gap = (new.mean - self.mean) * jnp.exp(-new.log_std)
        log_ratio = new.log_std - self.log_std
        return jnp.sum(log_ratio + 0.5 * (jnp.exp(-2 * log_ratio) + gap * gap - 1), -1)


class Categorical(eqx.Module):
    """A distribution over A choices with unnormalised `logits`."""

    logits: Float[Array, "*batch A"]

    def sample(self, key: RandomKey) -> Int[Array, "*batch"]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "*batch"]:
        return jnp.argmax(self.logits, -1)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]

    def entropy(self) -> Float[Array, "*batch"]:
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, -1)

    def kl(self, new: "Distribution") -> Float[Array, "*batch"]:
        """Exact KL(self || new)."""
        assert isinstance(new, Categorical)
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - jax.nn.log_softmax(new.logits)), -1)


Distribution = Gaussian | Categorical


class Actor(eqx.Module):
    """The policy: a Gaussian with state-independent `log_std`, or a categorical without one.

    Gaussian actions are unbounded, and so are their log-probabilities. `ActionSpec` clips actions
    for the environment. The network and `log_std` are in units of the action bounds.
    """

    network: MLP
    log_std: Float[Array, " A"] | None
    scale: tuple[tuple[float, ...], tuple[float, ...]] = eqx.field(static=True)
    """Centre and half width of the action bounds."""

    def __init__(
        self,
        obs_dim: int,
        actions: ActionSpec,
        key: RandomKey,
        hidden: Sequence[int] = (64, 64),
        log_std: float = -0.5,
    ):
        # A small last layer gives all states nearly the same centred initial action.
        self.network = MLP([obs_dim, *hidden, actions.size], key, last_gain=0.01)
        self.log_std = None if actions.discrete else jnp.full(actions.size, log_std, jnp.float32)
        self.scale = actions.scale

    def heads(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch A"]:
        """Output of the network: means, or logits of a categorical policy."""
        return self.network(obs)

    def distribution(self, heads: Float[Array, "*batch A"]) -> Distribution:
        """The distribution with these heads and this actor's `log_std`."""
        if self.log_std is None:
            return Categorical(heads)
        if not self.scale[0]:  # no bounds are known
            return Gaussian(heads, self.log_std)
        centre, half = map(jnp.asarray, self.scale)
        return Gaussian(centre + half * heads, jnp.log(half) + self.log_std)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Distribution:
        return self.distribution(self.heads(obs))


class Critics(eqx.Module):
    """1 + k value networks, stacked: one for the reward, then one per constraint."""

    network: MLP

    def __init__(
        self, obs_dim: int, constraints: int, key: RandomKey, hidden: Sequence[int] = (64, 64)
    ):
        keys = jax.random.split(key, 1 + constraints)
        self.network = eqx.filter_vmap(lambda k: MLP([obs_dim, *hidden, 1], k))(keys)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch signals"]:
        # A batched product of the stack takes a CPU a tenth longer per update.
        return jax.lax.platform_dependent(self.network, obs, cpu=_one_by_one, default=_side_by_side)


def _one_by_one(networks: MLP, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch signals"]:
    signals = networks.biases[0].shape[0]
    single = [jax.tree.map(lambda x, i=i: x[i], networks) for i in range(signals)]
    return jnp.stack([network(obs)[..., 0] for network in single], -1)


def _side_by_side(networks: MLP, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch signals"]:
    """As one wide network whose later layers are block-diagonal.

    An accelerator needs fewer kernels for it, and transposes nothing.
    """
    x, signals = obs, networks.biases[0].shape[0]
    apart = jnp.eye(signals)[:, None, :, None]
    layers = list(zip(networks.weights, networks.biases, strict=True))
    for i, (w, b) in enumerate(layers):
        wide = jnp.moveaxis(w, 0, 1) if i == 0 else w[:, :, None] * apart
        x = x @ wide.reshape(x.shape[-1], -1) + b.reshape(-1)
        x = x if i == len(layers) - 1 else networks.activation(x)
    return x


class Normalizer(eqx.Module):
    """Running mean and variance of observations; calling it standardises observations."""

    mean: Float[Array, " D"]
    var: Float[Array, " D"]
    count: Scalar

    def __init__(self, obs_dim: int):
        self.mean = jnp.zeros(obs_dim, jnp.float32)
        self.var = jnp.ones(obs_dim, jnp.float32)
        self.count = jnp.zeros((), jnp.float32)

    def update(
        self, obs: Float[Array, "*batch D"], weight: Float[Array, "*batch"] | None = None
    ) -> "Normalizer":
        """Merge the rows of `obs` into the running statistics; rows of weight 0 do not count.

        Chan's parallel algorithm is exact for any split of the data into batches.
        """
        axes = tuple(range(obs.ndim - 1))
        weight = jnp.ones(obs.shape[:-1]) if weight is None else weight
        count, each = jnp.sum(weight), weight[..., None]
        # An empty batch has weight 0; this avoids a division by zero.
        rows = jnp.maximum(count, 1.0)
        mean = jnp.sum(each * obs, axes) / rows
        var = jnp.sum(each * (obs - mean) ** 2, axes) / rows
        total = jnp.maximum(self.count + count, 1.0)
        share, gap = count / total, mean - self.mean
        old_share = self.count / total
        merged = (
            self.mean + share * gap,
            old_share * self.var + share * var + old_share * share * gap * gap,
            self.count + count,
        )
        return eqx.tree_at(lambda n: (n.mean, n.var, n.count), self, merged)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        """Standardised observations, clipped so that a rare feature cannot dominate."""
        scaled = (obs - self.mean) * jax.lax.rsqrt(self.var + VARIANCE_EPSILON)
        return jnp.clip(scaled, -OBSERVATION_CLIP, OBSERVATION_CLIP)
