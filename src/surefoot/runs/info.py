"""What a run's config.json says of it, checked before anyone relies on it."""

from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.algorithms.presets import CONFIGS
from surefoot.core.config import check_kinds
from surefoot.runs.checkpoint import Checkpoint, Damaged
from surefoot.runs.folder import RunFolder, config_from

KINDS: dict[str, Any] = {
    "version": str,
    "task": str | None,
    "task_options": dict,
    "algorithm": str,
    "preset": str,
    "seeds": list[int],
    "device": str,
    "started": str,
    "started_at": float | None,
    "backend": str | None,
    "config": dict,
    "known": list[str],
    "tensorboard": bool,
    "checkpoint_every": float | None,
    "keep": int,
}
# Of runs that were written before these were.
EARLIER = {
    "started_at": None, "backend": None, "known": [], "tensorboard": False,
    "checkpoint_every": None, "keep": 2,
}  # fmt: skip
CONFIG_KINDS = {"steps": int, "cost_limit": float}
META_KINDS = {"version": str, "device": str, "seconds": float, "save_seconds": float, "info": dict}
ARRAYS = ("metrics", "totals/steps", "collector/obs")


def read_info(folder: RunFolder) -> dict[str, Any]:
    """A run's config.json; `Damaged` if something in it is missing or of the wrong kind."""
    if not folder.path.is_dir():
        raise ValueError(f"{folder.path} is not a run: there is no such folder")
    return check_info(folder.read_json("config.json"), folder.path / "config.json")


def check_info(info: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same values, complete; `Damaged` if they are not those of a run."""
    info = {**EARLIER, **info}
    try:
        check_kinds(info, KINDS)
        check_kinds(info["config"], CONFIG_KINDS)
        if not info["seeds"] or not all(0 <= seed < 2**32 for seed in info["seeds"]):
            raise ValueError(f"seeds={info['seeds']} must be numbers from 0 to 2**32 - 1")
        if info["keep"] < 1:
            raise ValueError(f"keep={info['keep']} must be at least 1")
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    return info


def config_in(info: dict[str, Any], path: Path) -> Any:
    """The config that a config.json holds, as this version understands it."""
    try:
        return config_from(CONFIGS[info["algorithm"]], info["config"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} was written by Surefoot {info['version']}, and version {__version__} does not "
            f"understand its config: {error}"
        ) from None


def check_checkpoint(last: Checkpoint, folder: RunFolder) -> None:
    """`Damaged` if a checkpoint lacks what all algorithms write."""
    try:
        check_kinds(last.meta, META_KINDS)
        for name in ARRAYS:
            if name not in last.arrays:
                raise ValueError(f"{name} is missing")
        if last.arrays["totals/steps"].shape != ():
            raise ValueError("totals/steps is not one number")
    except ValueError as error:
        name = f"the checkpoint of epoch {last.meta['epoch']} in {folder.path}"
        raise Damaged(f"{name} is damaged: {error}") from None
