"""The command that repeats a run, from what its config.json says."""

import shlex
from typing import Any

from surefoot.algorithms.presets import preset
from surefoot.report.groups import flat
from surefoot.runs.folder import config_dict


def repeat_command(info: dict[str, Any]) -> str:
    """`surefoot train …` with every setting that is not the preset's.

    Where that cannot be told (environments of one's own, or settings that this version does not
    know), the command that was recorded.
    """
    recorded = str(info.get("command", ""))
    backend = info["backend"] or ("cpu" if info["device"].startswith("cpu") else "gpu")
    if info["task"] is None:
        return recorded
    try:
        start = flat(config_dict(preset(info["algorithm"], info["preset"], info["task"], backend)))
    except ValueError:
        return recorded
    wanted = flat(info["config"])
    if set(wanted) - set(start):
        return recorded
    words = ["surefoot", "train", info["task"], "--algorithm", info["algorithm"]]
    words += ["--preset", info["preset"], "--seeds", str(len(info["seeds"]))]
    words += ["--seed", str(info["seeds"][0]), "--device", backend]
    if info["task_options"]:
        words += ["--env", *(f"{name}={value}" for name, value in info["task_options"].items())]
    for name, value in wanted.items():
        if value != _plain(start[name]):
            words += option(name, value)
    return shlex.join(words)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def option(name: str, value: Any) -> list[str]:
    """A field of a config as the command line takes it: ppo.max_grad_norm as --ppo.max-grad-norm.

    Values are as Python or as config.json has them: several are a tuple or a list.
    """
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        parts = flag.rpartition(".")
        return [f"--{flag}" if value else f"--{parts[0]}{parts[1]}no-{parts[2]}"]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"--{flag}", *map(str, values)]
