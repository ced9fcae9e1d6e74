"""A trained policy in plain numpy: it acts in real environments, and `export` writes it.

This module imports numpy only, so a policy runs on a robot without JAX.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Literal, get_args

import numpy as np

from surefoot.core.files import Folder, parse_json
from surefoot.core.npz import Arrays

Kind = Literal["gaussian", "categorical", "squashed"]
FORMATS: dict[Kind, int] = {"gaussian": 1, "categorical": 1, "squashed": 2}
"""Format number of the files; versions without squashed policies refuse number 2."""
LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of the network's log_std in a squashed policy."""
OBSERVATION_CLIP = 10.0
"""Bound of a standardised observation, in standard deviations."""
VARIANCE_EPSILON = 1e-8
"""Added to the variance of an observation before the square root."""


@dataclass(frozen=True)
class Policy:
    """A policy over actions [A], or over A choices.

    - gaussian: a tanh network gives the mean, `log_std` does not depend on the observation, and
      actions are clipped to the bounds.
    - categorical: a tanh network gives logits.
    - squashed: a ReLU network gives mean and log_std, and a hyperbolic tangent maps the sample into
      the bounds.

    All arrays may have a leading axis of seeds, in which case observations have it too.
    """

    weights: tuple[np.ndarray, ...]
    """Of each layer, [in, out]."""
    biases: tuple[np.ndarray, ...]
    """Of each layer, [out]."""
    log_std: np.ndarray | None
    """[A] of a gaussian policy, else None."""
    low: np.ndarray
    """Lower bound of the action, [A]; empty for a categorical policy."""
    high: np.ndarray
    """Upper bound of the action, [A]."""
    mean: np.ndarray | None = None
    """Mean of the observations, [D]; None if they are not scaled."""
    std: np.ndarray | None = None
    """Standard deviation of the observations, [D]."""
    kind: Kind = field(kw_only=True)

    def __post_init__(self) -> None:
        if (self.kind == "gaussian") != (self.log_std is not None):
            needed = "needs" if self.kind == "gaussian" else "must not have"
            raise ValueError(f"not a policy: kind={self.kind!r} {needed} log_std")

    def heads(self, obs: np.ndarray) -> np.ndarray:
        """Means [..., A] or logits; means and log_std [..., 2 A] of a squashed policy."""
        x = np.asarray(obs, np.float32)
        if self.mean is not None and self.std is not None:
            x = (x - self.mean[..., None, :]) / self.std[..., None, :]
            x = np.clip(x, -OBSERVATION_CLIP, OBSERVATION_CLIP)
        squashed = self.kind == "squashed"
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ w + b[..., None, :]
            x = np.maximum(x, 0.0) if squashed else np.tanh(x)
        return x @ self.weights[-1] + self.biases[-1][..., None, :]

    def sample(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Unclipped actions [..., N, A] from standard normal noise of that shape.

        A categorical policy takes uniform noise and returns actions [..., N].
        """
        heads = self.heads(obs)
        if self.log_std is not None:
            return heads + np.exp(self.log_std)[..., None, :] * noise
        if self.kind == "categorical":
            return np.argmax(heads - np.log(-np.log(noise)), -1)
        mean, log_std = np.split(heads, 2, -1)
        unit = np.tanh(mean + np.exp(np.clip(log_std, *LOG_STD_RANGE)) * noise)
        return self.low + (unit + 1) / 2 * (self.high - self.low)

    @property
    def bounded(self) -> bool:
        """Whether actions are numbers with finite bounds."""
        return self.kind != "categorical" and bool(np.isfinite([self.low, self.high]).all())

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Actions within bounds for observations [D] or [N, D]: the mode, or sampled with `rng`."""
        size = self.weights[0].shape[-2]
        try:
            shape = None if isinstance(obs, Mapping) else np.shape(obs)
        except ValueError:  # parts of different shapes
            shape = None
        if shape is None or shape[-1:] != (size,):
            found = "is no array" if shape is None else f"has shape {shape}"
            raise ValueError(
                f"the observation {found}; the policy takes {size} numbers, or rows of them. Other "
                f"spaces are flattened: gymnasium.spaces.flatten(env.observation_space, obs)"
            )
        rows = np.atleast_2d(obs)
        if self.kind == "categorical":
            noise = None if rng is None else rng.uniform(1e-12, 1.0, (len(rows), self.actions))
            heads = self.heads(rows)
            action = np.argmax(heads, -1) if noise is None else self.sample(rows, noise)
        else:
            noise = (
                np.zeros(self.actions)
                if rng is None
                else rng.normal(size=(len(rows), self.actions))
            )
            action = np.clip(self.sample(rows, noise), self.low, self.high)
        return action[0] if np.ndim(obs) == 1 else action

    @property
    def actions(self) -> int:
        """Length of an action, or number of choices."""
        outputs = self.biases[-1].shape[-1]
        return outputs // 2 if self.kind == "squashed" else outputs

    def seed(self, i: int | list[int]) -> "Policy":
        """The policy of seed i; of a list of seeds, their policies with the leading axis."""
        pick = lambda x: None if x is None else x[i]
        return replace(
            self,
            weights=tuple(w[i] for w in self.weights),
            biases=tuple(b[i] for b in self.biases),
            log_std=pick(self.log_std),
            mean=pick(self.mean),
            std=pick(self.std),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name, except those that are None."""
        arrays = {f"weight_{i}": w for i, w in enumerate(self.weights)}
        arrays |= {f"bias_{i}": b for i, b in enumerate(self.biases)}
        for name in ("log_std", "mean", "std", "low", "high"):
            value = getattr(self, name)
            if value is not None:
                arrays[name] = value
        return arrays

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], kind: Kind | None = None) -> "Policy":
        """The inverse of `arrays`; a ValueError names arrays that are missing or do not fit.

        Without a `kind` it is inferred, for files and checkpoints that do not store it.
        """
        layers = range(max(1, sum(name.startswith("weight_") for name in arrays)))
        needed = ["low", "high", *(f"{kind}_{i}" for i in layers for kind in ("weight", "bias"))]
        missing = [name for name in needed if name not in arrays]
        if missing:
            raise ValueError(f"not a policy: it has no {', '.join(missing)}")
        for name, array in arrays.items():
            if not (isinstance(array, np.ndarray) and array.dtype.kind == "f"):
                raise ValueError(f"not a policy: {name} is not an array of floats")
        if kind is None:
            boxed = "squashed" if arrays["low"].size else "categorical"
            kind = "gaussian" if "log_std" in arrays else boxed
        _check_arrays(arrays, len(layers), kind)
        return Policy(
            tuple(arrays[f"weight_{i}"] for i in layers),
            tuple(arrays[f"bias_{i}"] for i in layers),
            arrays.get("log_std"),
            arrays["low"],
            arrays["high"],
            arrays.get("mean"),
            arrays.get("std"),
            kind=kind,
        )

    def save(self, path: str | Path) -> Path:
        """Write the policy to one .npz file."""
        path = Path(path)
        if path.suffix != ".npz":
            raise ValueError(f"path={str(path)!r} must end in .npz")
        arrays = self.arrays()
        header = json.dumps(
            {
                "format": FORMATS[self.kind],
                "kind": self.kind,
                "layers": len(self.weights),
                "checksum": _checksum(arrays),
            }
        )

        def write(file: IO[bytes]) -> str:
            # numpy's types allow any keyword to be the option `allow_pickle`.
            np.savez(file, header=np.array(header), **arrays)  # pyright: ignore[reportArgumentType]
            return path.name

        return Folder(path.parent).write(write, sync=False)

    @staticmethod
    def load(path: str | Path) -> "Policy":
        """Read a policy written by `save`."""
        return Policy.read(Path(path).open("rb"), path)

    @staticmethod
    def read(file: IO[bytes], path: str | Path) -> "Policy":
        """Read a policy from an open file, and close it; `path` is for error messages."""
        try:
            stored = Arrays(file)
            arrays = {name: stored[name] for name in stored}
            header = parse_json(str(arrays.pop("header")))
            written = header["format"]
        except (ValueError, KeyError):
            raise ValueError(f"{path} is damaged, or not a policy written by Surefoot") from None
        if written not in FORMATS.values():
            known = " and ".join(str(n) for n in sorted(set(FORMATS.values())))
            raise ValueError(f"{path} has format {written}; this version reads {known}")
        if header.get("checksum") not in (None, _checksum(arrays)):  # old files have none
            raise ValueError(f"{path} is damaged: its arrays do not match its checksum")
        try:
            kind = header.get("kind")
            return Policy.of(arrays, kind if kind in get_args(Kind) else None)
        except ValueError as error:
            raise ValueError(f"{path} is {error}") from None


def _check_arrays(arrays: Mapping[str, np.ndarray], layers: int, kind: Kind) -> None:
    """Raise a ValueError unless the arrays fit together and weights are finite."""
    *seeds, inputs, _ = arrays["weight_0"].shape if arrays["weight_0"].ndim in (2, 3) else (-1, 0)
    expected: dict[str, tuple[int, ...]] = {}
    width = inputs
    for i in range(layers):
        outputs = arrays[f"bias_{i}"].shape[-1] if arrays[f"bias_{i}"].ndim else -1
        expected[f"weight_{i}"], expected[f"bias_{i}"] = (width, outputs), (outputs,)
        width = outputs
    size = width // 2 if kind == "squashed" else width
    expected |= {"log_std": (size,), "mean": (inputs,), "std": (inputs,)}
    expected = {name: (*seeds, *shape) for name, shape in expected.items()}
    expected |= dict.fromkeys(("low", "high"), (0,) if kind == "categorical" else (size,))
    for name, shape in expected.items():
        if name in arrays and arrays[name].shape != shape:
            raise ValueError(f"not a policy: {name} has shape {arrays[name].shape}, not {shape}")
        if name in arrays and name not in ("low", "high") and not np.isfinite(arrays[name]).all():
            raise ValueError(f"not a policy: {name} is not finite")


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
