"""The ensemble of probabilistic networks that models the learned parts of a task.

Each of the n networks predicts the mean and the diagonal log-variance of a Gaussian over the
targets (eq. loss_ensemble of the paper). Where a task needs them, it also predicts logits of binary
outputs (costs in {0, 1}, termination). The networks are one batched pytree, so every operation on
the ensemble is one batched matrix product. Everything here is for one seed; callers `vmap`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from surefoot.core.arrays import RandomKey
from surefoot.core.config import (
    Count,
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    Range,
    Share,
    Width,
    check,
    check_value,
)

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
}
LogVariance = Annotated[float, Range(least=-80, most=80)]
"""A variance within these bounds is representable in single precision."""
Prediction = tuple[Float[Array, "*n B D"], Float[Array, "*n B D"], Float[Array, "*n B b"]]
"""Mean, spread and logits of B rows."""


@dataclass(frozen=True)
class EnsembleConfig:
    """Architecture and training of the ensemble; the defaults are the paper's."""

    members: Width = 8
    """Number of networks, n in the paper."""
    elites: Width = 6
    """Number of networks, those with the lowest hold-out loss, that are used for imagination."""
    hidden: tuple[Width, ...] = (200, 200, 200, 200)
    """Width of each hidden layer."""
    activation: Literal["silu", "tanh", "relu"] = "silu"
    """Activation function of the hidden layers."""
    learning_rate: Positive = 1e-3
    """Adam's learning rate."""
    averaging: Share = 0.0
    """Weight of the past in the moving average of the weights that a fit returns, such as 0.99; 0
    returns the weights themselves. It allows a larger learning rate."""
    batch_size: Count = 256
    """Rows per gradient step and member."""
    variance_weight: Fraction = 0.0
    """Exponent beta of the predicted variance that weights each error in training (beta-NLL,
    Seitzer et al., 2022). 0 is the paper's likelihood, in which errors of easy outputs and states
    outweigh all others. With 1 errors count as in least squares; variances are still learned."""
    weight_decay: tuple[NonNegative, NonNegative] = (2.5e-5, 1e-4)
    """Decoupled weight decay of the first and of the last layer, evenly spaced in between."""
    holdout: Annotated[float, Range(above=0, most=0.3)] = 0.1
    """Fraction of the rows that is held out for early stopping and for choosing the elites."""
    patience: Count = 5
    """Stop a fit after this many epochs in which no member gains `min_gain`."""
    min_gain: Share = 0.01
    """Relative decrease of the hold-out loss that counts as a gain."""
    max_epochs: Count = 200
    """Maximum passes over the data in one fit."""
    max_steps: Count = 100_000
    """Maximum gradient steps in one fit."""
    min_logvar: LogVariance = -10.0
    """Lower bound of the log-variance of normalised targets; trained if `variance_weight` is 0."""
    max_logvar: LogVariance = 0.5
    """Upper bound of the log-variance of normalised targets; trained if `variance_weight` is 0."""
    noise: Fraction = 1.0
    """Factor on the predicted standard deviations in imagined rollouts. Where an environment is
    deterministic, they are errors of the model that last; drawn anew in every step, they make
    robots fall that would not."""

    def __post_init__(self) -> None:
        check(self)
        if self.elites > self.members:
            raise ValueError(f"elites={self.elites} must be at most members={self.members}")
        if not self.hidden:
            raise ValueError("hidden=() must have at least one layer")
        if not self.min_logvar < self.max_logvar:
            raise ValueError(
                f"min_logvar={self.min_logvar} must be below max_logvar={self.max_logvar}"
            )


class Members(eqx.Module):
    """Trained parameters. In an `Ensemble` every leaf has a leading axis of n networks."""

    weights: tuple[Float[Array, "*n _ _"], ...]
    biases: tuple[Float[Array, "*n _"], ...]
    min_logvar: Float[Array, "*n D"]
    max_logvar: Float[Array, "*n D"]


class Ensemble(eqx.Module):
    """n networks, the scales of their data, and the indices of the elites (best first)."""

    members: Members
    input_mean: Float[Array, " F"]
    input_std: Float[Array, " F"]
    target_mean: Float[Array, " D"]
    target_std: Float[Array, " D"]
    base_logits: Float[Array, " b"]
    """Log-odds of the binary targets in the data; the networks' logits are added to them."""
    elites: Int[Array, " elites"]
    activation: str = eqx.field(static=True)
    noise: float = eqx.field(static=True, default=1.0)
    """See `EnsembleConfig.noise`."""


def init(
    config: EnsembleConfig, n_inputs: int, n_gaussian: int, n_binary: int, key: RandomKey
) -> Ensemble:
    """An untrained ensemble for `n_inputs` features, D Gaussian and b binary outputs."""
    check_value("n_inputs", n_inputs, Count)
    check_value("n_gaussian", n_gaussian, Count)
    check_value("n_binary", n_binary, NonNegativeInt)
    n = config.members
    sizes = (n_inputs, *config.hidden, 2 * n_gaussian + n_binary)
    shapes = list(pairwise(sizes))
    # One draw for all layers, because every separate draw takes a third of a second to compile.
    ends = list(accumulate(i * o for i, o in shapes))
    noise = jax.random.truncated_normal(key, -2.0, 2.0, (n, ends[-1]))
    # Variance 1 / fan-in preserves the scale of the signal through the layers. Truncation at two
    # deviations keeps single weights from dominating a member's first epochs.
    weights = tuple(
        noise[:, end - i * o : end].reshape(n, i, o) / jnp.sqrt(i)
        for end, (i, o) in zip(ends, shapes, strict=True)
    )
    # Explicit types: weakly typed leaves would make the second fit compile again.
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
        activation=config.activation,
        noise=config.noise,
    )


def forward(member: Members, activation: str, x: Float[Array, "B F"]) -> Prediction:
    """Mean, variance and logits of one network, with inputs and outputs in normalised units.

    Logits are relative to the ensemble's `base_logits`.
    """
    *hidden, (last_weight, last_bias) = zip(member.weights, member.biases, strict=True)
    x = x.astype(last_weight.dtype)
    for weight, bias in hidden:
        x = ACTIVATIONS[activation](x @ weight + bias)
    # The output is single precision even where the weights are not.
    out = jnp.matmul(x, last_weight, preferred_element_type=jnp.float32) + last_bias
    d = member.min_logvar.shape[-1]
    mean, logvar, logits = out[:, :d], out[:, d : 2 * d], out[:, 2 * d :]
    # A soft clamp keeps a gradient for the network and for the bounds. This is the exponential of
    # max - softplus(max - logvar), clamped from below in the same way. It avoids the logarithms,
    # which take half of the time of a small network on a CPU.
    below_max = jnp.exp(member.max_logvar) * jax.nn.sigmoid(logvar - member.max_logvar)
    return mean, jnp.exp(member.min_logvar) + below_max, logits


def predict_member(ensemble: Ensemble, member: Members, x: Float[Array, "B F"]) -> Prediction:
    """Mean, standard deviation and logits of one network, in physical units."""
    x = (x - ensemble.input_mean) / ensemble.input_std
    mean, variance, logits = forward(member, ensemble.activation, x)
    mean = mean * ensemble.target_std + ensemble.target_mean
    return mean, jnp.sqrt(variance) * ensemble.target_std, logits + ensemble.base_logits


def rounded(ensemble: Ensemble) -> Ensemble:
    """The same networks with weights and hidden layers in bfloat16.

    Half the bytes make rollouts faster on an accelerator. Their errors are far below the model's
    own, and means over many random rollouts do not need full precision.
    """
    coarse = lambda leaves: tuple(leaf.astype(jnp.bfloat16) for leaf in leaves)
    members = ensemble.members
    members = replace(members, weights=coarse(members.weights), biases=coarse(members.biases))
    return replace(ensemble, members=members)


def predict_all(ensemble: Ensemble, x: Float[Array, "B F"]) -> Prediction:
    """Mean, standard deviation and logits of every network for every row, in physical units."""
    return jax.vmap(lambda member: predict_member(ensemble, member, x))(ensemble.members)


def only_elites(ensemble: Ensemble) -> Ensemble:
    """The same ensemble without its other members.

    Gathered before a loop, the elites are not gathered again in each of its steps. If all members
    are elites, they stay in their own order.
    """
    count = ensemble.elites.shape[0]
    if ensemble.members.weights[0].shape[0] == count:
        return ensemble
    members = jax.tree.map(lambda leaf: leaf[ensemble.elites], ensemble.members)
    return replace(ensemble, members=members, elites=jnp.arange(count, dtype=jnp.int32))


def predict_elites_shared(
    ensemble: Ensemble,
    x: Float[Array, "B F"],
    order: Int[Array, " elites"],
    back: Int[Array, " elites"] | None = None,
) -> Prediction:
    """Mean, standard deviation and logits, each row by exactly one elite.

    The rows form one contiguous group per elite, and elite k predicts group `order[k]`, a random
    permutation. Each row meets a uniformly random elite, independently in every call. The
    distribution of a single imagined trajectory is the same as if every row drew its elite alone.
    Rows of one group share their draw, which correlates trajectories but biases no average.

    Each elite is evaluated on B / elites rows instead of B. Permuting groups instead of rows avoids
    sorting the batch at every imagined step. `back` is the inverse of `order`, if it is known.
    """
    n_elites = ensemble.elites.shape[0]
    batch = x.shape[0]
    if batch % n_elites:
        raise ValueError(f"batch={batch} must be a multiple of the {n_elites} elites")
    ensemble = only_elites(ensemble)
    # Moving the groups instead of the weights leaves the weights constant over a rollout.
    groups = x.reshape(n_elites, batch // n_elites, -1)[order]
    predict = lambda member, rows: predict_member(ensemble, member, rows)
    outputs = jax.vmap(predict)(ensemble.members, groups)
    back = jnp.argsort(order) if back is None else back
    mean, std, logits = (out[back].reshape(batch, -1) for out in outputs)
    return mean, std, logits
