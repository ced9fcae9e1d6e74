"""State as named arrays, and back: what a checkpoint holds.

Every leaf is named by its path in the tree, so that errors can name what does not fit.
"""

from dataclasses import dataclass

import jax
import numpy as np

from surefoot.core.arrays import Tree


def to_arrays(tree: Tree) -> dict[str, np.ndarray]:
    """All leaves on the host, by name; random keys as their numbers.

    They are copies, but for numpy arrays that cannot be written to.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): _copy(leaf) for path, leaf in leaves}


@dataclass(frozen=True)
class Saved:
    """Named arrays that were read back."""

    arrays: dict[str, np.ndarray]

    def like(self, name: str, template: Tree) -> Tree:
        """The tree called `name`, with the structure, shapes and types of `template`."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(template)
        return jax.tree.unflatten(
            structure, [self._leaf("/".join(filter(None, (name, _name(p)))), x) for p, x in leaves]
        )

    def under(self, name: str) -> "Saved":
        """The arrays under `name`, with the rest of their names."""
        prefix = name + "/"
        return Saved(
            {path[len(prefix) :]: x for path, x in self.arrays.items() if path.startswith(prefix)}
        )

    def part(self, name: str) -> dict[str, Tree]:
        """Everything under `name` as nested dicts; empty if there is nothing."""
        tree: dict[str, Tree] = {}
        for path, array in self.under(name).arrays.items():
            *folders, last = path.split("/")
            place = tree
            for folder in folders:
                place = place.setdefault(folder, {})
            place[last] = array
        return tree

    def _leaf(self, name: str, like: Tree) -> Tree:
        if name not in self.arrays:
            raise ValueError(f"the checkpoint has no {name}, which this config needs")
        array, wanted = self.arrays[name], np.asarray(_plain(like))
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise ValueError(
                f"{name} is {array.dtype}{list(array.shape)} in the checkpoint; "
                f"this config needs {wanted.dtype}{list(wanted.shape)}"
            )
        if _is_key(like):
            return jax.random.wrap_key_data(jax.numpy.asarray(array))
        if isinstance(like, jax.Array):
            return jax.numpy.asarray(array)
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
