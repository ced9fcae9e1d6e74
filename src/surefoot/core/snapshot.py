"""State as named arrays, and back: what a checkpoint holds.

Every leaf is named by its path in the tree, so that errors can name what does not fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from surefoot.core.arrays import Tree
from surefoot.core.npz import entry_of


def to_arrays(tree: Tree) -> dict[str, np.ndarray]:
    """All leaves on the host, by name; random keys as their numbers.

    They are copies, but for numpy arrays that cannot be written to.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): _copy(leaf) for path, leaf in leaves}


@dataclass(frozen=True)
class Saved:
    """Named arrays that were saved. Those in a file are read only if they fit what is needed."""

    arrays: Mapping[str, np.ndarray]
    prefix: str = ""
    """What the names of all arrays considered begin with."""

    def like(self, name: str, template: Tree) -> Tree:
        """The tree called `name`, with the structure, shapes and types of `template`."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(template)
        return jax.tree.unflatten(
            structure, [self._leaf("/".join(filter(None, (name, _name(p)))), x) for p, x in leaves]
        )

    def under(self, name: str) -> "Saved":
        """The arrays under `name`, with the rest of their names."""
        return replace(self, prefix=f"{self.prefix}{name}/")

    def part(self, name: str) -> dict[str, Tree]:
        """Everything under `name` as nested dicts; empty if there is nothing."""
        tree: dict[str, Tree] = {}
        prefix = f"{self.prefix}{name}/"
        for path in self.arrays:
            if not path.startswith(prefix):
                continue
            *folders, last = path[len(prefix) :].split("/")
            place = tree
            for folder in folders:
                place = place.setdefault(folder, {})
                if not isinstance(place, dict):
                    raise ValueError(f"the checkpoint has {path} under an array")
            if last in place:
                raise ValueError(f"the checkpoint has arrays under {path}")
            place[last] = self.arrays[path]
        return tree

    def _leaf(self, name: str, like: Tree) -> Tree:
        path = self.prefix + name
        if path not in self.arrays:
            raise ValueError(f"the checkpoint has no {name}, which this config needs")
        shape, _, dtype = entry_of(self.arrays, path)
        wanted = np.asarray(_plain(like))
        if shape != wanted.shape or dtype != wanted.dtype:
            raise ValueError(
                f"{name} is {dtype}{list(shape)} in the checkpoint; "
                f"this config needs {wanted.dtype}{list(wanted.shape)}"
            )
        array = self.arrays[path]
        if isinstance(like, jax.Array):
            loaded = jax.numpy.asarray(array)
            loaded = jax.random.wrap_key_data(loaded) if _is_key(like) else loaded
            several = len(like.sharding.device_set) > 1
            return jax.device_put(loaded, like.sharding) if several else loaded
        return array.item() if isinstance(like, int | float) else array


def _copy(x: Tree) -> np.ndarray:
    if isinstance(x, np.ndarray) and not x.flags.writeable:
        return x
    # A view of a jax array would change under a buffer that is given away later.
    return np.array(_plain(x))


def _name(path: tuple[Tree, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _is_key(x: Tree) -> bool:
    return isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def _plain(x: Tree) -> Tree:
    return jax.random.key_data(x) if _is_key(x) else x
