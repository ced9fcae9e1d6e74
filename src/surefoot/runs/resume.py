"""Go on with a run: after a crash, a kill, a full disk, Ctrl-C, or because it should be longer."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from surefoot import __version__
from surefoot.algorithms.collect import environment_seeds
from surefoot.runs.checkpoint import Checkpoint, Damaged, is_sound, list_checkpoints, newest_sound
from surefoot.runs.device import DEVICES, device_name
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import check_checkpoint, check_info, config_in, read_info
from surefoot.runs.keeper import policy_in
from surefoot.runs.listing import is_run, read_result
from surefoot.runs.train import MakeEnv, train_to_the_end
from surefoot.world.model import TaskModel


def resume(
    run: str | Path,
    make_env: MakeEnv | None = None,
    steps: int | None = None,
    knowledge: Callable[[Any], TaskModel] | None = None,
    quiet: bool = False,
) -> Path:
    """Go on with a run from its last checkpoint, as if it had never stopped.

    On the same machine and version the numbers are those of a run that was never interrupted. A run
    that is finished is only checked, and what is damaged in its folder written anew.

    Args:
        run: The run's folder.
        make_env: For a run on environments of your own, the function that makes n of them. If they
            have `snapshot` and `restore` (see `surefoot.envs.snapshot`) they go on where they were;
            if not, they begin new episodes and the run is not exactly the same.
        steps: A new number of real steps in all, to make a run longer.
        knowledge: For environments of your own: what is known of them, as given to `train`.
        quiet: Show no progress.
    """
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise ValueError(f"{run} is not a run: there is no such folder")
    if not is_run(folder.path) and not folder.is_running():
        raise ValueError(f"{run} is not a run: it has no config.json, metrics.csv or checkpoints")
    with folder.locked():
        last, notes = newest_sound(folder.checkpoints)
        if last is not None:
            check_checkpoint(last, folder)
        elif notes:
            raise ValueError(f"no checkpoint of {run} can be read: {'; '.join(notes)}")
        info = _config(folder, last, notes)
        if (info["task"] is None) != (make_env is not None):
            raise ValueError(
                f"{run} was trained on the task {info['task']}, so make_env must not be given"
                if make_env
                else f"{run} was trained on environments of your own: go on from Python, with "
                f"surefoot.resume({str(run)!r}, make_env)"
            )
        config = _lengthened(folder, info, last, steps)
        _put_right(folder, last, notes)
        if last is not None:
            if _finished(folder, last, notes) and steps is None:
                return folder.path
            _note_differences(info, last, notes)
        _put_result_aside(folder, longer=steps is not None)
        folder.write_json("config.json", info)
        told = knowledge if info["task"] is None else None
        task = make_env or str(info["task"])
        return train_to_the_end(folder, info, config, task, told, last, notes, quiet)


def backend_of(run: str | Path) -> str:
    """The device that a run has learned on, as `use_device` takes it; auto if it does not tell."""
    try:
        backend = read_info(RunFolder(Path(run)))["backend"]
    except (ValueError, OSError):  # which `resume` will tell, or mend
        return "auto"
    return backend if backend in DEVICES else "auto"


def _config(folder: RunFolder, last: Checkpoint | None, notes: list[str]) -> dict[str, Any]:
    """config.json, or the copy in the checkpoint if that is lost."""
    try:
        return read_info(folder)
    except ValueError as error:
        if last is None:
            raise
        notes.append(f"{error}; taking the copy in the checkpoint")
        info = check_info(last.meta["info"], folder.checkpoints)
        folder.write_json("config.json", info)
        return info


def _lengthened(
    folder: RunFolder, info: dict[str, Any], last: Checkpoint | None, steps: int | None
) -> Any:
    """The run's config, with a new number of steps if there is one."""
    config = config_in(info, folder.path)
    if steps is not None:
        done = 0 if last is None else int(last.arrays["totals/steps"])
        if steps < done:
            raise ValueError(f"steps={steps} must be at least {done}, which the run has done")
        config = replace(config, steps=steps)
        info["config"]["steps"] = steps
    return config


def _put_right(folder: RunFolder, last: Checkpoint | None, notes: list[str]) -> None:
    """Bring metrics.csv and policy.npz to the checkpoint's state; put damaged checkpoints aside.

    Rows that were written after the checkpoint come again, so here metrics.csv is cut back.
    """
    kept = b"" if last is None else last.arrays["metrics"].tobytes()
    there = folder.metrics_bytes()
    if last is None and there.count(b"\n") > 1 + len(set(_seeds_in(there))):
        raise ValueError(f"the checkpoints of {folder.path} are gone; there is no going on")
    if not there.startswith(kept):
        notes.append(f"{folder.path / 'metrics.csv'} was damaged; its rows were restored")
    if there != kept:
        folder.write("metrics.csv", kept)
    if last is None:
        return
    for path in list_checkpoints(folder.checkpoints):
        if not is_sound(path):
            os.replace(path, path.with_suffix(".damaged"))
    try:
        sound = folder.read_policy().arrays()
        wanted = policy_in(last).arrays()
        same = sound.keys() == wanted.keys() and all((sound[k] == wanted[k]).all() for k in wanted)
    except ValueError as error:
        notes.append(f"{error}; restored from the checkpoint")
        same = False
    if not same:
        folder.write_policy(policy_in(last))


def _seeds_in(metrics: bytes) -> list[bytes]:
    return [line.split(b",", 1)[0] for line in metrics.splitlines()[1:]]


def _note_differences(info: dict[str, Any], last: Checkpoint, notes: list[str]) -> None:
    epoch = last.meta["epoch"]
    notes.append(f"going on from epoch {epoch}")
    here = {"version": __version__, "device": device_name()}
    for name, now in here.items():
        if last.meta[name] != now:
            notes.append(
                f"the {name} was {last.meta[name]} and is {now}: numbers may differ from those of "
                f"a run that was never interrupted"
            )
    info |= {**here, "backend": jax.default_backend()}
    if not any(name.startswith("collector/env/") for name in last.arrays):
        per_seed = len(last.arrays["collector/obs"]) // len(info["seeds"])
        seeds = environment_seeds(info["seeds"], per_seed, epoch)
        info.setdefault("restarts", []).append({"epoch": epoch, "environment_seeds": seeds})
        notes.append(
            "the environments cannot be continued (they have no snapshot and restore), so they "
            "begin new episodes: the run is not exactly the one it would have been"
        )


def _finished(folder: RunFolder, last: Checkpoint, notes: list[str]) -> bool:
    """Whether there is a result, and the checkpoint is the one it belongs to."""
    if not (folder.path / "result.json").exists():
        return False
    try:
        done = read_result(folder).get("real_steps")
        return done == int(last.arrays["totals/steps"])
    except Damaged as damage:
        notes.append(f"{damage}; writing it anew")
        return False


def _put_result_aside(folder: RunFolder, longer: bool) -> None:
    """A run that goes on has no result, nor has it failed.

    A longer run will have another result; the old one stays under a name with its steps.
    """
    path = folder.path / "result.json"
    if not path.exists():
        return
    try:
        steps = folder.read_json("result.json").get("real_steps")
    except Damaged:
        steps = None
    if longer and steps is not None:
        path.replace(folder.path / f"result-{steps}.json")
    else:
        path.unlink()
