"""Resume a run: after a crash, a kill, a full disk or Ctrl-C, or to make it longer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from surefoot import __version__
from surefoot.algorithms.collect import environment_seeds
from surefoot.algorithms.loop import Epoch
from surefoot.core.files import Damaged, Folder
from surefoot.core.npz import entry_of
from surefoot.core.registry import reference_to
from surefoot.envs.gym.adapted import Cost
from surefoot.runs.acting import check_sizes
from surefoot.runs.cache import use_cache
from surefoot.runs.checkpoint import (
    Checkpoint,
    list_checkpoints,
    newest_sound,
    read_complete,
)
from surefoot.runs.device import DEVICES, device_name
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, parse_info, read_info
from surefoot.runs.keeper import policy_in
from surefoot.runs.known import Known
from surefoot.runs.listing import is_run, read_result
from surefoot.runs.metrics import rows_of
from surefoot.runs.setup import MakeEnv, recorded_setup
from surefoot.runs.train import begin, train_to_end
from surefoot.runs.warm_start import repeat


def resume(
    run: str | Path,
    make_env: MakeEnv | None = None,
    steps: int | None = None,
    known: Known = None,
    on_epoch: Callable[[Epoch], object] | None = None,
    quiet: bool = False,
    cost: Cost | None = None,
) -> Path:
    """Resume a run from its last checkpoint, as if it had never stopped.

    On the same machine and version the numbers are those of an uninterrupted run. A finished run is
    only checked, and damaged files in its folder are restored.

    Args:
        run: The run's folder.
        make_env: The function that makes environments, if the run does not record its task.
            Environments with `snapshot` and `restore` (see `surefoot.envs.gym.snapshot`) continue
            exactly; others begin new episodes.
        steps: A new number of real steps in all, to make a run longer.
        known: What was given to `train` as `known`, if that was a Python function.
        on_epoch: Called after every epoch.
        quiet: Show no progress.
        cost: What was given to `train` as `cost`, if that was a Python function.
    """
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise ValueError(f"{run} is not a run: there is no such folder")
    if not is_run(folder.path) and not folder.is_running():
        raise ValueError(f"{run} is not a run: it has no config.json, metrics.csv or checkpoints")
    if foreign := folder.foreign():
        raise Damaged(f"{'; '.join(foreign)}: a run has none, so it is left unchanged")
    use_cache()
    with folder.locked():
        folder.clean()
        last, notes = newest_sound(folder.checkpoints)
        if last is None and notes:
            raise ValueError(f"no checkpoint of {run} can be read: {'; '.join(notes)}")
        info, sound = _read_info(folder, last, notes)
        if steps is not None:
            least = 0 if last is None else int(last.arrays["totals/steps"])
            if steps < least:
                raise ValueError(f"steps={steps} must be at least {least}, which the run has done")
            info = replace(info, config={**info.config, "steps": steps})
        _check_same(info, folder.path, make_env, cost)
        setup = recorded_setup(info, folder.path, make_env, known, cost)
        if not sound:
            folder.write_json("config.json", info.to_dict())
        _restore_files(folder, info, last, notes)
        finished = _finished_steps(folder, notes)
        if last is not None:
            done = int(last.arrays["totals/steps"])
            if steps is None and finished == done:
                return folder.path
            setup.check_known(info, folder.path)
            check_sizes(setup, setup.make_envs(1), policy_in(last))
            info = _note_differences(info, last, notes)
        if steps is not None and finished is not None:
            folder.files.rename("result.json", f"result-{finished}.json")
        folder.files.remove("result.json")
        training = begin(setup, last)
        if last is None and info.warm_start is not None:
            repeat(training.trainer, info.warm_start)
        return train_to_end(folder, info, setup, training, last, notes, quiet, on_epoch)


def _check_same(info: RunInfo, path: Path, make_env: MakeEnv | None, cost: Cost | None) -> None:
    """Raise a ValueError if an argument replaces what the run records: it would be wrong."""
    recorded = {"make_env": info.task, "cost": info.task_options.get("cost") or None}
    for name, given in (("make_env", make_env), ("cost", cost)):
        before, now = recorded[name], reference_to(given) if callable(given) else given
        if given is not None and before is not None and before != now:
            raise ValueError(
                f"{path} records {name}={before!r}, which resume cannot replace; leave {name} out, "
                f"or start a new run from this one with from_run"
            )


def backend_of(run: str | Path) -> str:
    """The device that a run was trained on, as `use_device` takes it; auto if unknown."""
    try:
        backend = read_info(RunFolder(Path(run))).backend
    except (ValueError, OSError):  # reported by `resume`
        return "auto"
    return backend if backend in DEVICES else "auto"


def _read_info(
    folder: RunFolder, last: Checkpoint | None, notes: list[str]
) -> tuple[RunInfo, bool]:
    """config.json and True, or the copy in the checkpoint and False if config.json is damaged."""
    try:
        return read_info(folder), True
    except ValueError as error:
        if last is None:
            raise
        notes.append(f"{error}; using the copy in the checkpoint")
        return parse_info(last.meta["info"], folder.checkpoints), False


def _restore_files(
    folder: RunFolder, info: RunInfo, last: Checkpoint | None, notes: list[str]
) -> None:
    """Bring metrics.csv and policy.npz to the checkpoint's state; rename damaged checkpoints.

    Rows written after the checkpoint will be written again, so metrics.csv is cut back.
    """
    saved = b"" if last is None else last.arrays["metrics"].tobytes()
    present = folder.metrics_bytes()
    if last is None and present.count(b"\n") > 1 + len(info.seeds):
        raise ValueError(f"no checkpoints found in {folder.path}; cannot resume")
    if last is not None and present != saved:
        path = folder.checkpoints / last.name
        rows = rows_of(saved, path)
        if not rows or rows[-1]["steps"] != int(last.arrays["totals/steps"]):
            raise Damaged(f"{path} is damaged: its metrics end elsewhere")
    if not present.startswith(saved):
        notes.append(f"{folder.path / 'metrics.csv'} was damaged; its rows were restored")
    if present != saved:
        folder.write("metrics.csv", saved)
    if last is None:
        return
    checkpoints = Folder(folder.checkpoints, inside=True)
    for path in list_checkpoints(folder.checkpoints):
        try:
            read_complete(path)
        except Damaged:
            checkpoints.rename(path.name, path.with_suffix(".damaged").name)
    try:
        present, saved = folder.read_policy().arrays(), policy_in(last).arrays()
        same = present.keys() == saved.keys()
        same = same and all(np.array_equal(present[k], saved[k]) for k in saved)
    except ValueError as error:
        notes.append(f"{error}; restored from the checkpoint")
        same = False
    if not same:
        folder.write_policy(policy_in(last))


def _note_differences(info: RunInfo, last: Checkpoint, notes: list[str]) -> RunInfo:
    """Note what makes the resumed run differ from an uninterrupted one; returns the new record."""
    epoch = last.meta["epoch"]
    notes.append(f"resuming from epoch {epoch}")
    here = {"version": __version__, "device": device_name()}
    for name, now in here.items():
        if last.meta[name] != now:
            notes.append(
                f"the {name} was {last.meta[name]} and is {now}: numbers may differ from those of "
                f"an uninterrupted run"
            )
    info = replace(info, **here, backend=jax.default_backend())
    if not any(name.startswith("collector/env/") for name in last.arrays):
        per_seed = entry_of(last.arrays, "collector/obs").shape[0] // len(info.seeds)
        seeds = environment_seeds(info.seeds, per_seed, epoch)
        restart = {"epoch": epoch, "environment_seeds": seeds}
        info = replace(info, restarts=[*info.restarts, restart])
        notes.append(
            "the environments have no snapshot and restore, so they begin new episodes: the run "
            "differs from an uninterrupted one"
        )
    return info


def _finished_steps(folder: RunFolder, notes: list[str]) -> int | None:
    """The real steps of a finished run; None if it has no sound result."""
    if "result.json" not in folder.files.kinds():
        return None
    try:
        return read_result(folder).get("real_steps")
    except Damaged as damage:
        notes.append(f"{damage}; it will be written again")
        return None
