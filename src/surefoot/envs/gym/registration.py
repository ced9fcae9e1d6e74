"""Gymnasium's registry: `gymnasium.make_vec("surefoot/PointGoal-v0", num_envs=64)`.

Called by `import surefoot`, so nothing heavy is imported here.
"""

from typing import Any

from gymnasium.envs.registration import register as _register

from surefoot.envs.task import BUILTIN


def register() -> None:
    """Register the built-in tasks under the namespace `surefoot`."""
    for name in BUILTIN:
        _register(
            f"surefoot/{name}-v0",
            entry_point="surefoot.envs.gym.registration:make_single",
            vector_entry_point="surefoot.envs.gym.registration:make_vector",
            kwargs={"task": name},
            order_enforce=False,
        )


def make_vector(task: str, num_envs: int = 1, **options: Any) -> Any:
    """What `gymnasium.make_vec` calls."""
    from surefoot.envs.task import make

    return make(task, num_envs=num_envs, **options)


def make_single(task: str, render_mode: str | None = None, **options: Any) -> Any:
    """What `gymnasium.make` calls."""
    from surefoot.envs.gym.single import SingleEnv
    from surefoot.envs.task import make

    return SingleEnv(make(task, num_envs=1, render_mode=render_mode, **options))
