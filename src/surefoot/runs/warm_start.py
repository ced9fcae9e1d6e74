"""Warm start: what a new run takes over from the newest checkpoint of another run.

Only named arrays are read. Neither the task nor the algorithm of the other run is loaded, so its
folder executes no code.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from surefoot.algorithms.trainer import Trainer
from surefoot.core.config import check_choice
from surefoot.core.npz import Entry, entry_of
from surefoot.core.snapshot import Saved, to_arrays
from surefoot.runs.checkpoint import NAME, Checkpoint, newest_sound, read_complete
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, WarmStart, parse_info

Part = Literal["policy", "critics", "model", "multipliers", "data"]
PARTS: tuple[Part, ...] = get_args(Part)
CHUNK = r"(dataset|replay)/(\d{1,9})/"
"""What an epoch added to a dataset."""
LEARNER = r"state/(sac/)?learner/(networks/)?"
SCALES = "normalizer|value_scale|rewards|cost_squares|spread"
ARRAYS = {
    "policy": f"{LEARNER}(actor|normalizer|log_temperature)(/|$)",
    "critics": f"{LEARNER}(critics|targets|{SCALES})(/|$)",
    "model": "state/ensemble/",
    "multipliers": f"{LEARNER}multiplier/",
    "data": CHUNK,
}
"""Which arrays of a trainer's snapshot make up a part. Both networks need the scale they saw."""
BESIDE = {
    "policy": (f"{LEARNER}(actor|policy)_moments/", f"{LEARNER}average/"),
    "critics": (f"{LEARNER}critic_moments/",),
    "multipliers": ("state/ratio/", "state/progress/", "state/(cost|priced)$"),
}
"""Groups of arrays that are taken with a part if they fit: otherwise it begins with new ones."""

COUNTED = "state/counted"
"""Rows that the scales, which come with the critics, have counted already."""


@dataclass(frozen=True)
class Source:
    """A run to start from."""

    path: Path
    checkpoint: Checkpoint
    info: RunInfo

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        return self.checkpoint.arrays

    def entries(self) -> dict[str, Entry]:
        """Shape and type of each array of its trainer; only of one row of those in datasets."""
        every = {
            name.removeprefix("trainer/"): entry_of(self.arrays, name)
            for name in self.arrays
            if name.startswith("trainer/")
        }
        seeds = (len(self.info.seeds),)
        rows = lambda name: 2 if re.match(CHUNK, name) else 1
        return {
            name: Entry(entry.shape[rows(name) :], False, entry.dtype)
            for name, entry in every.items()
            if entry.shape[:1] == seeds and len(entry.shape) >= rows(name)
        }


def open_source(run: str | Path, name: str | None = None) -> Source:
    """A run and its newest sound checkpoint, or the one called `name`."""
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise ValueError(f"from_run={str(run)!r} is not a run: there is no such folder")
    try:
        if name is None:
            checkpoint, problems = newest_sound(folder.checkpoints)
        elif NAME.fullmatch(name):
            checkpoint, problems = read_complete(folder.checkpoints / name), []
        else:
            raise ValueError(f"checkpoint={name!r} is not a checkpoint's name")
    except FileNotFoundError:
        raise ValueError(
            f"{run} no longer has {name}, which the run was to start from: train a new run"
        ) from None
    if checkpoint is None:
        why = "; ".join(problems) or "there is none"
        raise ValueError(f"from_run={str(run)!r} has no checkpoint that can be read: {why}")
    return Source(folder.path, checkpoint, parse_info(checkpoint.meta["info"], folder.checkpoints))


def choose_seeds(source: Source, seeds: int, seed: int | None) -> list[int]:
    """The source's seed that each of `seeds` new seeds starts from."""
    given = source.info.seeds
    if seed is not None:
        if seed not in given:
            known = ", ".join(map(str, given))
            raise ValueError(f"from_seed={seed} must be a seed of {source.path}: {known}")
        return [seed] * seeds
    if len(given) not in (1, seeds):
        raise ValueError(
            f"seeds={seeds} must be {len(given)}, as many as {source.path} has, or pass from_seed"
        )
    return given if len(given) == seeds else given * seeds


def warm_start(
    trainer: Trainer,
    source: Source,
    seeds: Sequence[int],
    parts: Sequence[str] | None = None,
    known: Sequence[str] | None = None,
) -> WarmStart:
    """Put the `parts` of a source into a new trainer; returns the record of it.

    By default every part is taken that fits, and the policy must. Parts that are named must all
    fit. `seeds` are the source's, one for each of the trainer's. `known` are the parts that the new
    run's model knows; with other ones the same arrays would mean something else.
    """
    for part in parts or ():
        check_choice("from_parts", part, PARTS)
    saved, fresh = source.entries(), to_arrays(trainer.snapshot())
    here = {name: Entry(x.shape[1:], False, x.dtype) for name, x in fresh.items()}
    here |= {
        f"{name}/{i}/{column}": Entry(x.shape, False, x.dtype)
        for name, dataset in trainer.datasets.items()
        for i in _epochs(saved, name) or (0,)
        for column, x in dataset.row.items()
    }
    taken: list[str] = []
    left_out: dict[str, str] = {}
    for part in parts or PARTS:
        problem = _mismatch(part, here, saved)
        other = known is not None and [*known] != source.info.known and _names("model", saved)
        if part in ("model", "data") and other:
            problem = problem or f"its model knows {source.info.known}, this one {known}"
        if part == "multipliers" and source.info.config.get("constrained") is False:
            problem = "that run kept no limit"
        if problem is None:
            taken.append(part)
        elif parts or part == "policy":
            raise ValueError(
                f"from_run={str(source.path)!r}: the {part} cannot be taken: {problem}"
            )
        elif _names(part, here):
            left_out[part] = problem
    index = [source.info.seeds.index(seed) for seed in seeds]
    read = lambda name: source.arrays[f"trainer/{name}"][index]
    for part in taken:
        if part == "data":
            continue
        fresh |= {name: read(name) for name in _names(part, here)}
        for beside in BESIDE.get(part, ()):
            group = {name for name in here.keys() | saved.keys() if re.match(beside, name)}
            if all(here.get(name) == saved.get(name) for name in group):
                fresh |= {name: read(name) for name in group}
    trainer.restore(Saved(fresh), 0, data=False)
    steps = 0
    if "data" in taken:
        for name, dataset in trainer.datasets.items():
            chunks = [
                {column: read(f"{name}/{i}/{column}") for column in dataset.row}
                for i in _epochs(saved, name)
            ]
            rows = {c: np.concatenate([chunk[c] for chunk in chunks], 1) for c in dataset.row}
            dataset.inherit(rows)
            steps = dataset.count
        if "critics" in taken and COUNTED in fresh:
            fresh[COUNTED] = np.where(read(COUNTED) > 0, steps, fresh[COUNTED])
            trainer.restore(Saved(fresh), 0, data=False)
    info = source.info
    return WarmStart(
        str(source.path.resolve()), source.checkpoint.name, info.task_name, info.algorithm,
        list(seeds), taken, left_out, steps,
    )  # fmt: skip


def describe(warm: WarmStart, source: Source, sees: str) -> list[str]:
    """What was taken, for the user; `sees` is the observation or model of the new run."""
    parts = [f"{warm.data_steps:,} steps of data" if p == "data" else p for p in warm.taken]
    seeds = ", ".join(map(str, dict.fromkeys(warm.seeds)))
    lines = [
        f"warm start from {warm.run} ({warm.task}, {warm.algorithm}, epoch "
        f"{source.checkpoint.meta['epoch']}, seed {seeds}): {', '.join(parts)}"
    ]
    lines += [f"the {part} of that run is not taken: {why}" for part, why in warm.left_out.items()]
    seen = source.info.config.get("model") or source.info.config.get("observation")
    if seen != sees:
        lines.append(f"the policy of that run saw {seen!r}, this one sees {sees!r}")
    return lines


def repeat(trainer: Trainer, warm: WarmStart) -> None:
    """The same warm start again, for a run that ended before its first checkpoint."""
    warm_start(trainer, open_source(warm.run, warm.checkpoint), warm.seeds, warm.taken)


def _epochs(entries: Mapping[str, Entry], dataset: str) -> list[int]:
    """The numbers of a dataset's epochs."""
    match = [re.match(CHUNK, name) for name in entries]
    return sorted({int(m[2]) for m in match if m and m[1] == dataset})


def _names(part: str, entries: Mapping[str, Entry]) -> list[str]:
    """The arrays that make up a part."""
    return [name for name in entries if re.match(ARRAYS[part], name)]


def _mismatch(part: str, here: Mapping[str, Entry], saved: Mapping[str, Entry]) -> str | None:
    """Why a part of the source does not fit; None if it does."""
    new, old = _names(part, here), _names(part, saved)
    if not new:
        return f"this algorithm has no {part}"
    if not old:
        return f"that run has no {part}"
    # A dataset may have columns that this run does not need.
    for name in new if part == "data" else [*new, *old]:
        there, needed = saved.get(name), here.get(name)
        if there != needed:
            return f"{name} is {_shape(there)} in that run and {_shape(needed)} here"
    return None


def _shape(entry: Entry | None) -> str:
    return "missing" if entry is None else f"{entry.dtype}{list(entry.shape)}"
