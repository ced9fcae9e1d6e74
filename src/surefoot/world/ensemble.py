"""The ensemble of probabilistic networks that stands for the unknown part of the world.

Each of the n networks gives the mean and the diagonal log-variance of a Gaussian over the targets
(eq. loss_ensemble of the paper), and, where the task needs them, logits of binary outputs (costs in
{0, 1}, termination). The n networks are one batched pytree, so that every operation on the ensemble
is a single batched matrix product. Written for one seed; vmap for several.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from surefoot.core.config import check_types

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
}


@dataclass(frozen=True)
class EnsembleConfig:
    """Architecture and training of the ensemble; the defaults are the paper's."""

    members: int = 8
    """Number of networks, n in the paper."""
    elites: int = 6
    """Number of networks, those with the lowest hold-out loss, that are used for imagination."""
    hidden: tuple[int, ...] = (200, 200, 200, 200)
    """Width of each hidden layer."""
    activation: Literal["silu", "tanh", "relu"] = "silu"
    """Non-linearity of the hidden layers."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    batch_size: int = 256
    """Rows per gradient step and member."""
    weight_decay: tuple[float, float] = (2.5e-5, 1e-4)
    """Decoupled weight decay of the first and of the last layer, evenly spaced in between."""
    holdout: float = 0.1
    """Share of the rows never trained on, which decide when to stop and which members are elite."""
    patience: int = 5
    """Epochs without any member gaining `min_gain` after which a fit stops."""
    min_gain: float = 0.01
    """Relative fall of the hold-out loss that counts as a gain."""
    max_epochs: int = 200
    """Most passes over the data in one fit."""
    max_steps: int = 100_000
    """Most gradient steps in one fit."""
    min_logvar: float = -10.0
    """Initial lower bound of the log-variance of normalised targets; learned from there."""
    max_logvar: float = 0.5
    """Initial upper bound of the log-variance of normalised targets; learned from there."""

    def __post_init__(self) -> None:
        check_types(self)
        counts = ("members", "elites", "batch_size", "patience", "max_epochs", "max_steps")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.elites > self.members:
            raise ValueError(f"elites = {self.elites}: must be at most members = {self.members}")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden = {self.hidden}: needs one positive width per hidden layer")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation = {self.activation!r}: must be one of {[*ACTIVATIONS]}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate = {self.learning_rate}: must be positive")
        if len(self.weight_decay) != 2 or min(self.weight_decay) < 0:
            raise ValueError(
                f"weight_decay = {self.weight_decay}: must be two non-negative numbers, "
                "for the first and for the last layer"
            )
        if not 0 < self.holdout <= 0.3:
            raise ValueError(f"holdout = {self.holdout}: must be above 0 and at most 0.3")
        if not 0 <= self.min_gain < 1:
            raise ValueError(f"min_gain = {self.min_gain}: must be in [0, 1)")
        for name in ("min_logvar", "max_logvar"):
            if not abs(getattr(self, name)) <= 80:  # beyond that a variance has no float32
                raise ValueError(f"{name} = {getattr(self, name)}: must be from -80 to 80")
        if not self.min_logvar < self.max_logvar:
            raise ValueError(
                f"min_logvar = {self.min_logvar}: must be below max_logvar = {self.max_logvar}"
            )


class Members(eqx.Module):
    """All that is trained. In an `Ensemble` every leaf has a leading axis of n networks."""

    weights: tuple[Float[Array, "*n _ _"], ...]
    biases: tuple[Float[Array, "*n _"], ...]
    min_logvar: Float[Array, "*n D"]
    max_logvar: Float[Array, "*n D"]


class Ensemble(eqx.Module):
    """n networks, the scales of their data, and which of them are elite (best first)."""

    members: Members
    input_mean: Float[Array, " F"]
    input_std: Float[Array, " F"]
    target_mean: Float[Array, " D"]
    target_std: Float[Array, " D"]
    base_logits: Float[Array, " b"]
    """Log-odds of the binary targets in the data; the networks' own logits come on top."""
    elites: Int[Array, " elites"]
    holdout_loss: Float[Array, " n"]
    activation: str = eqx.field(static=True)


def init(
    config: EnsembleConfig, n_inputs: int, n_gaussian: int, n_binary: int, key: PRNGKeyArray
) -> Ensemble:
    """An untrained ensemble for `n_inputs` features, D Gaussian and b binary outputs."""
    if n_inputs < 1:
        raise ValueError(f"n_inputs = {n_inputs}: must be at least 1")
    if n_gaussian < 1:
        raise ValueError(f"n_gaussian = {n_gaussian}: must be at least 1")
    if n_binary < 0:
        raise ValueError(f"n_binary = {n_binary}: must not be negative")
    n = config.members
    sizes = (n_inputs, *config.hidden, 2 * n_gaussian + n_binary)
    keys = jax.random.split(key, len(sizes) - 1)
    # Variance 1 / fan-in keeps the signal alive through the layers; the truncation at two
    # deviations keeps single weights from dominating a member's first epochs.
    weights = tuple(
        jax.random.truncated_normal(k, -2.0, 2.0, (n, fan_in, fan_out)) / jnp.sqrt(fan_in)
        for k, fan_in, fan_out in zip(keys, sizes[:-1], sizes[1:], strict=True)
    )
    # Explicit types: the weak ones of Python numbers would make the second fit compile anew.
    members = Members(
        weights=weights,
        biases=tuple(jnp.zeros((n, size)) for size in sizes[1:]),
        min_logvar=jnp.full((n, n_gaussian), config.min_logvar, jnp.float32),
        max_logvar=jnp.full((n, n_gaussian), config.max_logvar, jnp.float32),
    )
    return Ensemble(
        members=members,
        input_mean=jnp.zeros(n_inputs),
        input_std=jnp.ones(n_inputs),
        target_mean=jnp.zeros(n_gaussian),
        target_std=jnp.ones(n_gaussian),
        base_logits=jnp.zeros(n_binary),
        elites=jnp.arange(config.elites, dtype=jnp.int32),
        holdout_loss=jnp.full(n, jnp.inf, jnp.float32),
        activation=config.activation,
    )


def forward(
    member: Members, activation: str, x: Float[Array, "B F"]
) -> tuple[Float[Array, "B D"], Float[Array, "B D"], Float[Array, "B b"]]:
    """Mean, variance and logits of one network, inputs and targets in normalised units.

    Logits come relative to the ensemble's `base_logits`.
    """
    *hidden, (last_weight, last_bias) = zip(member.weights, member.biases, strict=True)
    x = x.astype(last_weight.dtype)
    for weight, bias in hidden:
        x = ACTIVATIONS[activation](x @ weight + bias)
    # Whatever the weights are rounded to, what comes of them is not.
    out = jnp.matmul(x, last_weight, preferred_element_type=jnp.float32) + last_bias
    d = member.min_logvar.shape[-1]
    mean, logvar, logits = out[:, :d], out[:, d : 2 * d], out[:, 2 * d :]
    # Soft clamp: unlike a hard one it keeps a gradient, for the network and for the bounds. This is
    # the exponential of max - softplus(max - logvar), clamped from below in the same way, without
    # their logarithms, which take half of the time of a small network on a CPU.
    below_max = jnp.exp(member.max_logvar) * jax.nn.sigmoid(logvar - member.max_logvar)
    return mean, jnp.exp(member.min_logvar) + below_max, logits


def predict_member(
    ensemble: Ensemble, member: Members, x: Float[Array, "B F"]
) -> tuple[Float[Array, "B D"], Float[Array, "B D"], Float[Array, "B b"]]:
    """Mean, standard deviation and logits of one network, all in physical units."""
    x = (x - ensemble.input_mean) / ensemble.input_std
    mean, variance, logits = forward(member, ensemble.activation, x)
    mean = mean * ensemble.target_std + ensemble.target_mean
    return mean, jnp.sqrt(variance) * ensemble.target_std, logits + ensemble.base_logits


def rounded(ensemble: Ensemble) -> Ensemble:
    """The same networks with weights of 16 bits, and so all between their layers.

    With half the bytes an accelerator plans sooner, and a plan is a mean over many rollouts that
    are drawn at random anyway.
    """
    coarse = lambda leaves: tuple(leaf.astype(jnp.bfloat16) for leaf in leaves)
    members = ensemble.members
    members = replace(members, weights=coarse(members.weights), biases=coarse(members.biases))
    return replace(ensemble, members=members)


def predict_all(
    ensemble: Ensemble, x: Float[Array, "B F"]
) -> tuple[Float[Array, "n B D"], Float[Array, "n B D"], Float[Array, "n B b"]]:
    """Mean, standard deviation and logits of every network for every row, in physical units."""
    return jax.vmap(lambda member: predict_member(ensemble, member, x))(ensemble.members)


def predict_member_index(
    ensemble: Ensemble, i: Int[Array, ""] | int, x: Float[Array, "B F"]
) -> tuple[Float[Array, "B D"], Float[Array, "B D"], Float[Array, "B b"]]:
    """Mean, standard deviation and logits of network `i` alone, in physical units.

    The k-th elite is `i = ensemble.elites[k]`. The performance ratio follows one elite through a
    whole rollout.
    """
    member = jax.tree.map(lambda leaf: leaf[i], ensemble.members)
    return predict_member(ensemble, member, x)


def predict_elites_shared(
    ensemble: Ensemble, x: Float[Array, "B F"], key: PRNGKeyArray
) -> tuple[Float[Array, "B D"], Float[Array, "B D"], Float[Array, "B b"]]:
    """Mean, standard deviation and logits, each row by exactly one randomly chosen elite.

    The rows form one contiguous group per elite, and a fresh random permutation assigns groups to
    elites. So in every call each row meets a uniformly random elite, and successive calls with
    independent keys choose independently: the law of a single imagined trajectory is the same as if
    every row drew its elite alone. Only rows of one group share their draw, which correlates
    trajectories of the batch but biases no average over it. In return each elite is evaluated on
    B / elites rows instead of B, and no row is moved: exchanging whole groups is a copy of a few
    kilobytes, where permuting rows would need a sort of the batch at every imagined step.
    """
    n_elites = ensemble.elites.shape[0]
    batch = x.shape[0]
    if batch % n_elites:
        raise ValueError(f"batch = {batch}: must be a multiple of the {n_elites} elites")
    # Elite k serves group order[k]. Moving the groups rather than the networks' weights leaves the
    # weights constant over a rollout, so the compiler gathers the elites only once.
    order = jax.random.permutation(key, n_elites)
    groups = x.reshape(n_elites, batch // n_elites, -1)[order]
    members = jax.tree.map(lambda leaf: leaf[ensemble.elites], ensemble.members)
    outputs = jax.vmap(lambda member, rows: predict_member(ensemble, member, rows))(members, groups)
    back = jnp.argsort(order)
    mean, std, logits = (out[back].reshape(batch, -1) for out in outputs)
    return mean, std, logits
