"""Fit the ensemble to all real transitions so far, as one compiled program.

The dataset lies in buffers of a fixed capacity of which the first `count` rows are valid, so
growing data never recompile. A fit warm-starts from the previous weights. Adam's moments start at
zero, because the loss has changed with the data and the scales.

With `averaging`, a fit returns a moving average of the weights on its way. That removes the noise
of the last steps as a falling learning rate would, and allows a rate several times as large.

A row's index alone decides whether it is held out. A row once held out is never trained on in a
later fit, so warm-started weights have never seen the hold-out rows. Row 0 is always held out and
row 1 is always trained on, so two rows suffice for a fit.

Under vmap a `while_loop` runs until its last lane is done, and finished lanes keep their carry.
So no seed's result depends on the other seeds.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from surefoot.core.arrays import Flag, Index, RandomKey, Scalar, choose
from surefoot.world.ensemble import Ensemble, EnsembleConfig, Members, forward
from surefoot.world.losses import BINARY_WEIGHT, cross_entropy, row_loss

BOUNDS_PENALTY = 0.01
"""Weight of the distance between the log-variance bounds, which would otherwise drift apart. Bounds
that meet stay together: where targets are rare, nothing else would stop them."""
MIN_STD = 1e-6
"""A column with a smaller standard deviation counts as constant."""
NEVER = 1e-9
"""Odds of an event that the data do not contain; practically never drawn in imagination."""
CHUNK = 1024
"""Hold-out rows evaluated at once."""
OPTIMISER = optax.scale_by_adam()


class FitMetrics(eqx.Module):
    """The result of one fit."""

    holdout_loss: Float[Array, " n"]
    """Hold-out loss of each member's best weights."""
    holdout_mse: Float[Array, " D"]
    """Squared hold-out error per Gaussian output in units of its variance, mean over elites."""
    epochs: Index
    """Passes over the data."""
    steps: Index
    """Gradient steps."""
    finite: Flag
    """Whether every loss was finite; if not, the result is the best finite weights."""


class Rows(eqx.Module):
    """Normalised inputs and targets in one table: training rows, hold-out rows, padding."""

    table: Float[Array, "C columns"]
    n_train: Index
    count: Index


class Progress(eqx.Module):
    """Carry of the loop over epochs."""

    members: Members
    average: Members
    """Moving average of `members` over the steps of this fit."""
    moments: optax.OptState
    best: Members
    best_loss: Float[Array, " n"]
    best_mse: Float[Array, "n D"]
    reference_loss: Float[Array, " n"]
    """Hold-out loss at each member's last gain, so that slow progress adds up to a gain."""
    stale: Index
    epochs: Index
    steps: Index
    finite: Flag


def is_holdout(row: Int[Array, " C"], holdout: float) -> Bool[Array, " C"]:
    """Whether each row index is held out, by a 32-bit avalanche hash of the index."""
    h = row.astype(jnp.uint32)
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    h = h ^ (h >> 16)
    return h < jnp.uint32(holdout * 2**32)


def prepare(
    config: EnsembleConfig,
    ensemble: Ensemble,
    inputs: Float[Array, "C F"],
    targets: Float[Array, "C outputs"],
    count: Index | int,
) -> tuple[Ensemble, Rows]:
    """Split the valid rows, and set the ensemble's scales to those of the training rows."""
    index = jnp.arange(inputs.shape[0])
    kind = jnp.where(index < count, is_holdout(index, config.holdout).astype(jnp.int32), 2)
    n_train = jnp.sum(kind == 0)
    table = jnp.concatenate([inputs, targets], axis=-1)[jnp.argsort(kind)]

    f, d = ensemble.input_mean.shape[0], ensemble.target_mean.shape[0]
    output = jnp.arange(table.shape[1]) >= f
    absent = output & jnp.isnan(table)
    # Of rare targets the hold-out rows count too. One among them would else be far off the scale.
    rare = (absent & (index < count)[:, None]).any(axis=0)
    known = (index[:, None] < jnp.where(rare, count, n_train)) & ~absent
    total = jnp.maximum(known.sum(axis=0), 1)
    mean = jnp.where(known, table, 0.0).sum(axis=0) / total
    std = jnp.sqrt(jnp.where(known, jnp.square(table - mean), 0.0).sum(axis=0) / total)

    # A constant input gets scale 1, so a small deviation in imagination stays small.
    # A constant target gets a tiny scale, so its predicted noise is tiny too.
    input_std = jnp.where(std[:f] < MIN_STD, 1.0, std[:f])
    target_std = jnp.maximum(std[f : f + d], MIN_STD)
    # Bounds, not sums: a compiler may turn (1 - rate) + NEVER into (1 + NEVER) - rate, which is 0.
    odds = jnp.maximum(mean[f + d :], NEVER), jnp.maximum(1 - mean[f + d :], NEVER)
    base_logits = jnp.log(odds[0]) - jnp.log(odds[1])
    scales = (mean[:f], input_std, mean[f : f + d], target_std, base_logits)
    ensemble = eqx.tree_at(
        lambda e: (e.input_mean, e.input_std, e.target_mean, e.target_std, e.base_logits),
        ensemble,
        scales,
    )
    n_binary = table.shape[1] - f - d
    shift = jnp.concatenate([mean[: f + d], jnp.zeros(n_binary)])
    scale = jnp.concatenate([input_std, target_std, jnp.ones(n_binary)])
    return ensemble, Rows((table - shift) / scale, n_train, jnp.asarray(count))


def minibatch_order(key: RandomKey, n: int, capacity: int, n_train: Index) -> UInt32[Array, "n C"]:
    """A random order of the training rows for each member; entries from `n_train` on are unused.

    Row index and random tag share one word, because sorting single words is several times faster
    than an argsort. Rows with equal tags are ordered by index. This bias is negligible: with 2^19
    rows there are still 2^13 different tags.
    """
    bits = (capacity - 1).bit_length()
    rows = jnp.arange(capacity, dtype=jnp.uint32)
    tags = jax.random.bits(key, (n, capacity)) << bits
    words = jnp.where(rows < n_train.astype(jnp.uint32), tags | rows, jnp.uint32(2**32 - 1))
    return jnp.sort(words, axis=-1) & jnp.uint32(2**bits - 1)


def train_epoch(
    config: EnsembleConfig,
    ensemble: Ensemble,
    average: Members,
    moments: optax.OptState,
    rows: Rows,
    done: Index,
    n_steps: Index,
    key: RandomKey,
) -> tuple[Members, Members, optax.OptState, Float[Array, " n"]]:
    """Take `n_steps` gradient steps, at most one pass over the training rows, after `done` others.

    Returns the members, their moving average, Adam's moments and each member's mean training loss.
    """
    n, f, weight = config.members, ensemble.input_mean.shape[0], config.variance_weight
    order = minibatch_order(key, n, rows.table.shape[0], rows.n_train)
    n_train = jnp.maximum(rows.n_train, 1)
    # Only weight matrices decay; a smaller bias or bound is not a simpler function.
    decay = eqx.tree_at(
        lambda members: members.weights,
        jax.tree.map(lambda _: 0.0, ensemble.members),
        tuple(np.linspace(*config.weight_decay, len(ensemble.members.weights)).tolist()),
    )

    def member_loss(member: Members, batch: Float[Array, "batch columns"]) -> Scalar:
        if weight:  # the penalty would outweigh weighted losses, so the bounds stay as they are
            member = eqx.tree_at(_bounds, member, lax.stop_gradient(_bounds(member)))
        mean, variance, logits = forward(member, ensemble.activation, batch[:, :f])
        logits = logits + ensemble.base_logits
        loss = row_loss(mean, variance, logits, batch[:, f:], weight).mean()
        distance = jax.nn.relu(member.max_logvar - member.min_logvar)
        return loss if weight else loss + BOUNDS_PENALTY * distance.sum()

    def step(i: Index, carry: tuple) -> tuple:
        members, average, moments, total = carry
        # The last minibatch wraps around to the start of the order.
        position = (i * config.batch_size + jnp.arange(config.batch_size)) % n_train
        batch = rows.table[order[:, position]]
        losses, grads = jax.vmap(jax.value_and_grad(member_loss))(members, batch)
        updates, moments = OPTIMISER.update(grads, moments)
        move = lambda p, u, d: p - config.learning_rate * (u + d * p)
        members = jax.tree.map(move, members, updates, decay)
        if not config.averaging:
            return members, members, moments, total + losses
        # The mean of all steps at first: a constant weight would keep the start for long.
        past = jnp.minimum(config.averaging, 1 - 1 / (done + i + 1))
        average = jax.tree.map(lambda a, b: past * a + (1 - past) * b, average, members)
        return members, average, moments, total + losses

    start = (ensemble.members, average, moments, jnp.zeros(n))
    members, average, moments, total = lax.fori_loop(0, n_steps, step, start)
    return members, average, moments, total / jnp.maximum(n_steps, 1)


def evaluate(
    config: EnsembleConfig, ensemble: Ensemble, members: Members, rows: Rows
) -> tuple[Float[Array, " n"], Float[Array, "n D"]]:
    """Hold-out loss of each member, and its squared error per normalised Gaussian output.

    With a `variance_weight` the loss has the mean log of the squared errors instead of their
    likelihood. Beside the errors themselves, noise in a binary output would decide everything.
    Missing targets count as predicted without error.
    """
    n, d = members.min_logvar.shape
    f, capacity = ensemble.input_mean.shape[0], rows.table.shape[0]
    chunk = min(CHUNK, capacity)
    n_holdout = rows.count - rows.n_train

    def add(i: Index, totals: tuple) -> tuple:
        index = rows.n_train + i * chunk + jnp.arange(chunk)
        valid = index < rows.count
        batch = rows.table[jnp.minimum(index, capacity - 1)]

        def one(member: Members) -> tuple[Scalar, Float[Array, " D"]]:
            mean, variance, logits = forward(member, ensemble.activation, batch[:, :f])
            logits, target = logits + ensemble.base_logits, batch[:, f : f + d]
            if config.variance_weight:
                losses = BINARY_WEIGHT * cross_entropy(logits, batch[:, f + d :])
            else:
                losses = row_loss(mean, variance, logits, batch[:, f:])
            errors = jnp.where(jnp.isnan(target), 0.0, jnp.square(mean - target))
            # Selected, not multiplied, because padding may contain NaN.
            return (
                jnp.where(valid, losses, 0.0).sum(),
                jnp.where(valid[:, None], errors, 0.0).sum(axis=0),
            )

        return jax.tree.map(jnp.add, totals, jax.vmap(one)(members))

    n_chunks = (n_holdout + chunk - 1) // chunk
    loss, mse = lax.fori_loop(0, n_chunks, add, (jnp.zeros(n), jnp.zeros((n, d))))
    loss, mse = loss / n_holdout, mse / n_holdout
    if config.variance_weight:
        loss = loss + jnp.log(mse + math.exp(config.min_logvar)).mean(axis=-1)
    return loss, mse


def fit(
    config: EnsembleConfig,
    ensemble: Ensemble,
    inputs: Float[Array, "C F"],
    targets: Float[Array, "C outputs"],
    count: Index | int,
    key: RandomKey,
) -> tuple[Ensemble, FitMetrics]:
    """Train every member until the hold-out loss stops falling; return each member's best weights.

    Targets are D Gaussian columns, then b columns in {0, 1}, NaN where missing. The weights before
    the fit are the first candidate, so a fit never makes a member worse on the current hold-out
    rows. If the valid rows are not finite, the ensemble is returned unchanged.
    """
    _check_shapes(ensemble, inputs, targets)
    scaled, rows = prepare(config, ensemble, inputs, targets, count)
    steps_per_epoch = (rows.n_train + config.batch_size - 1) // config.batch_size

    def unfinished(p: Progress) -> Flag:
        in_budget = (p.epochs < config.max_epochs) & (p.steps < config.max_steps)
        return in_budget & (p.stale < config.patience)

    def epoch(p: Progress) -> Progress:
        n_steps = jnp.minimum(steps_per_epoch, config.max_steps - p.steps)
        current = eqx.tree_at(lambda e: e.members, scaled, p.members)
        epoch_key = jax.random.fold_in(key, p.epochs)
        members, average, moments, train_loss = train_epoch(
            config, current, p.average, p.moments, rows, p.steps, n_steps, epoch_key
        )
        loss, mse = evaluate(config, scaled, average, rows)
        # Comparisons with NaN are false, so a diverged member keeps its best weights.
        better = loss < p.best_loss
        reference = p.reference_loss
        finite_reference = jnp.where(jnp.isfinite(reference), reference, 0.0)
        gained = loss < reference - config.min_gain * jnp.abs(finite_reference)
        return Progress(
            members=members,
            average=average,
            moments=moments,
            best=choose(better, average, p.best),
            best_loss=jnp.where(better, loss, p.best_loss),
            best_mse=jnp.where(better[:, None], mse, p.best_mse),
            reference_loss=jnp.where(gained, loss, reference),
            stale=jnp.where(gained.any(), 0, p.stale + 1),
            epochs=p.epochs + 1,
            steps=p.steps + n_steps,
            finite=p.finite & jnp.isfinite(loss).all() & jnp.isfinite(train_loss).all(),
        )

    first, first_mse = evaluate(config, scaled, ensemble.members, rows)
    first_or_inf = jnp.where(jnp.isfinite(first), first, jnp.inf)
    zero = jnp.zeros((), jnp.int32)
    start = Progress(
        members=ensemble.members,
        average=ensemble.members,
        moments=OPTIMISER.init(ensemble.members),  # pyright: ignore[reportArgumentType]
        best=ensemble.members,
        best_loss=first_or_inf,
        best_mse=first_mse,
        reference_loss=first_or_inf,
        stale=zero,
        epochs=zero,
        steps=zero,
        finite=jnp.isfinite(first).all(),
    )
    end = lax.while_loop(unfinished, epoch, start)

    elites = jnp.argsort(end.best_loss)[: config.elites]
    fitted = eqx.tree_at(lambda e: (e.members, e.elites), scaled, (end.best, elites))
    # Targets that are not finite make a column's scale so, and all of its targets NaN.
    sound = jnp.isfinite(scaled.target_std).all()
    usable = sound & jnp.isfinite(end.best_loss).any()
    fitted = jax.tree.map(lambda new, old: jnp.where(usable, new, old), fitted, ensemble)
    metrics = FitMetrics(
        holdout_loss=end.best_loss,
        holdout_mse=end.best_mse[elites].mean(axis=0),
        epochs=end.epochs,
        steps=end.steps,
        finite=sound & end.finite,
    )
    return fitted, metrics


def _bounds(member: Members) -> tuple[Array, Array]:
    return member.min_logvar, member.max_logvar


def _check_shapes(ensemble: Ensemble, inputs: Array, targets: Array) -> None:
    f, d = ensemble.input_mean.shape[0], ensemble.target_mean.shape[0]
    columns = ensemble.members.biases[-1].shape[-1] - d
    if inputs.ndim != 2 or inputs.shape[1] != f:
        raise ValueError(f"inputs.shape={inputs.shape} must be [C, {f}], with F={f} features")
    if targets.shape != (inputs.shape[0], columns):
        raise ValueError(
            f"targets.shape={targets.shape} must be [{inputs.shape[0]}, {columns}], "
            "one row per input and one column per output"
        )
