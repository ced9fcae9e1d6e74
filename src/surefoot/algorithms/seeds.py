"""Seeds as a leading axis: functions written for one seed, compiled for all of them."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Key

from surefoot.core.arrays import T, Tree

GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,WHILE,CONDITIONAL",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
"""Whole loops become one launch, and kernels that do not depend on each other run together."""
SEEDS, SAME = PartitionSpec("seeds"), PartitionSpec()
"""Arrays that are split by seed, and arrays that all devices hold."""


@cache
def compiler_options() -> dict[str, str] | None:
    """Options of the compiler on a GPU, if it knows them; otherwise None."""
    if jax.default_backend() != "gpu":
        return None
    try:
        jax.jit(lambda x: x, compiler_options=GPU_OPTIONS)(0.0)
    except jax.errors.JaxRuntimeError:
        return None
    return GPU_OPTIONS


def mesh(seeds: int) -> Mesh | None:
    """The devices that share the seeds evenly, as many as possible; None if it is one."""
    devices = jax.local_devices()
    count = max(n for n in range(1, min(seeds, len(devices)) + 1) if seeds % n == 0)
    return Mesh(np.array(devices[:count]), ("seeds",)) if count > 1 else None


def by_seed(seeds: int) -> NamedSharding | None:
    """Where arrays with a leading axis of seeds belong; None if one device holds them."""
    devices = mesh(seeds)
    return None if devices is None else NamedSharding(devices, SEEDS)


def seed_keys(seeds: Sequence[int]) -> Key[Array, " S"]:
    """One key per seed, which depends on the seed alone."""
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))


def over_seeds(
    step: Callable[..., Tree],
    seeds: int,
    shared: tuple[int, ...] = (),
    donate: tuple[int, ...] = (),
    in_turn: bool = False,
    whole_loops: bool = False,
) -> Any:
    """Compile a function of one seed for all seeds; arguments and results get a leading axis.

    Arguments in `shared` are the same for all seeds and have no such axis. Seeds are batched, or
    run one after the other if `in_turn`: loops then stop early and only taken branches run. A
    single seed is never batched. With `whole_loops`, a GPU gets loops of small steps as one launch.

    Several devices share the seeds (see `mesh`). Each runs the program for its own seeds and waits
    for no other.
    """
    devices = mesh(seeds)
    own = seeds if devices is None else seeds // devices.size

    def many(*args: Tree) -> Tree:
        if in_turn:
            split = {i: a for i, a in enumerate(args) if i not in shared}
            return jax.lax.map(
                lambda mine: step(*(mine.get(i, a) for i, a in enumerate(args))), split
            )
        axes = tuple(None if i in shared else 0 for i in range(len(args)))
        return jax.vmap(step, in_axes=axes)(*args)

    def single(*args: Tree) -> Tree:
        inner = [a if i in shared else jax.tree.map(lambda x: x[0], a) for i, a in enumerate(args)]
        return jax.tree.map(lambda x: x[None], step(*inner))

    program, options = single if own == 1 else many, compiler_options() if whole_loops else None
    if devices is None:
        return jax.jit(program, donate_argnums=donate, compiler_options=options)
    return Sharded(program, devices, shared, donate, options)


class Sharded:
    """A function of all seeds whose devices each compute their own, without communication."""

    def __init__(
        self,
        program: Callable[..., Tree],
        devices: Mesh,
        shared: tuple[int, ...],
        donate: tuple[int, ...],
        options: dict[str, str] | None = None,
    ):
        @cache
        def jitted(count: int) -> jax.stages.Wrapped:
            specs = tuple(SAME if i in shared else SEEDS for i in range(count))
            split = jax.shard_map(
                program, mesh=devices, in_specs=specs, out_specs=SEEDS, check_vma=False
            )
            places = tuple(NamedSharding(devices, spec) for spec in specs)
            by_seed = NamedSharding(devices, SEEDS)  # stated, as empty arrays would lose it
            return jax.jit(
                split, donate_argnums=donate, in_shardings=places, out_shardings=by_seed,
                compiler_options=options,
            )  # fmt: skip

        self._jitted = jitted

    def __call__(self, *args: Tree) -> Tree:
        return self._jitted(len(args))(*args)

    def lower(self, *args: Tree) -> jax.stages.Lowered:
        """As of a jitted function."""
        return self._jitted(len(args)).lower(*args)


def pick_seeds(tree: T, index: Sequence[int] | int) -> T:
    """Some seeds of a tree with a leading axis of them, or one without it, on one device."""
    on_one = lambda x: jax.device_put(x, jax.local_devices()[0]) if _is_split(x) else x
    return jax.tree.map(lambda x: on_one(x[np.asarray(index)]), tree)


def _is_split(x: object) -> bool:
    return isinstance(x, jax.Array) and len(x.sharding.device_set) > 1


def all_finite(tree: Tree) -> np.ndarray:
    """For each seed of a tree with a leading axis of them, whether all its numbers are finite."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    return np.all([np.isfinite(x).reshape(len(x), -1).all(1) for x in leaves], axis=0)


def flatten_steps(x: np.ndarray) -> np.ndarray:
    """[S, T, n, …] to [S, T * n, …]."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])
