"""The registry of ids, and `make`."""

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from surefoot.core.config import did_you_mean
from surefoot.envs.task import FAMILY, FAMILY_ROBOTS
from surefoot.safety_gymnasium.builder import Builder, SafetyVelocityEnv
from surefoot.safety_gymnasium.options import LEFT_OUT, family_config
from surefoot.safety_gymnasium.wrappers import (
    SafeAutoResetWrapper,
    SafePassiveEnvChecker,
    SafeTimeLimit,
    SafetyGymnasium2Gymnasium,
    SafeWrapper,
)

registry: dict[str, EnvSpec] = {}
"""Specs of all ids with the 6-value step."""
VELOCITY = {
    "HalfCheetah": ("half-cheetah", 4800.0),
    "Hopper": ("hopper", 3800.0),
    "Swimmer": ("swimmer", 360.0),
    "Walker2d": ("walker2d", None),
    "Ant": ("ant", 6000.0),
    "Humanoid": ("humanoid", None),
}
"""Robots of the velocity ids, and the registered reward threshold."""


class _OrderEnforcing(SafeWrapper, gymnasium.wrappers.OrderEnforcing):
    """Refuses a step before the first reset."""

    def step(self, action: np.ndarray) -> Any:
        if not self._has_reset:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        return self.env.step(action)


def register(id: str, entry_point: str | Callable[..., gymnasium.Env], **options: Any) -> None:
    """Register an environment with the 6-value step; options are those of Gymnasium's EnvSpec."""
    if not isinstance(id, str):
        raise ValueError(f"id={id!r} must be a string such as 'SafetyPointGoal1-v0'")
    registry[id] = EnvSpec(id=id, entry_point=entry_point, **options)


def spec(id: str) -> EnvSpec:
    """The spec of an id; a ValueError names the nearest id or why it is left out."""
    if id in registry:
        return registry[id]
    for part, reason in LEFT_OUT.items():
        if part in id:
            raise ValueError(f"id={id!r} is not supported: {reason}")
    if id.replace("Gymnasium-", "-") in registry:
        raise ValueError(f"id={id!r} must be given to gymnasium.make: its step returns 5 values")
    raise ValueError(f"id={id!r} must be a registered id{did_you_mean(id, tuple(registry))}")


def make(
    id: str | EnvSpec,
    max_episode_steps: int | None = None,
    autoreset: bool | None = None,
    apply_api_compatibility: bool | None = None,
    disable_env_checker: bool | None = None,
    **kwargs: object,
) -> gymnasium.Env:
    """Make an environment whose step returns obs, reward, cost, terminated, truncated, info.

    Args:
        id: An id such as `SafetyPointGoal1-v0`, or a spec.
        max_episode_steps: Truncate episodes after as many steps, instead of the id's number.
        autoreset: Start the next episode within the step that ends one.
        apply_api_compatibility: Not supported; leave it out.
        disable_env_checker: False checks the first reset and step.
        **kwargs: `render_mode` (rgb_array, rgb_array_list, human), `width`, `height`, `camera_name`
            or `camera_id`; and `config`, a dict of the task's attributes by dotted name.
    """
    chosen = id if isinstance(id, EnvSpec) else spec(id)
    if apply_api_compatibility:
        raise ValueError(
            f"apply_api_compatibility={apply_api_compatibility} must be False: "
            "environments of the old Gym interface are not supported"
        )
    if chosen.entry_point is None:
        raise ValueError(f"id={chosen.id!r} must have an entry_point")
    options = {**copy.deepcopy(chosen.kwargs), **kwargs}
    mode = options.get("render_mode")
    if mode in ("human", "rgb_array_list"):
        options["render_mode"] = "rgb_array"
    create = chosen.entry_point
    create = create if callable(create) else load_env_creator(create)
    env: Any = create(**options)
    limit = max_episode_steps or chosen.max_episode_steps
    env.unwrapped.spec = copy.deepcopy(chosen)
    env.unwrapped.spec.kwargs, env.unwrapped.spec.max_episode_steps = options, limit
    if not (chosen.disable_env_checker if disable_env_checker is None else disable_env_checker):
        env = SafePassiveEnvChecker(env)
    if chosen.order_enforce:
        env = _OrderEnforcing(env)
    if limit is not None:
        env = SafeTimeLimit(env, limit)
    if autoreset:
        env = SafeAutoResetWrapper(env)
    if mode == "human":
        env = _shown(env)
    elif mode == "rgb_array_list":
        env = gymnasium.wrappers.RenderCollection(env)
    return env


def _shown(env: gymnasium.Env) -> gymnasium.Env:
    """The environment in a window, which needs pygame and a display."""
    try:
        return gymnasium.wrappers.HumanRendering(env)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ValueError(
            "render_mode='human' needs pygame (pip install pygame) and a display; "
            "use render_mode='rgb_array'"
        ) from error


def make_gymnasium_environment(env_id: str, **kwargs: Any) -> gymnasium.Env:
    """The twin of an id for Gymnasium: a 5-value step, with the cost in `info["cost"]`."""
    return SafetyGymnasium2Gymnasium(make(env_id.replace("Gymnasium-", "-"), **kwargs))


def register_all() -> None:
    """Register all ids here, and their twins with Gymnasium."""
    own = {"order_enforce": False, "disable_env_checker": True}
    for robot in FAMILY_ROBOTS:
        for task, levels in FAMILY.items():
            for level in range(levels):
                name = f"Safety{robot}{task}{level}-v0"
                steps = family_config(name).max_episode_steps
                kwargs = {"task_id": name, "config": {"agent_name": robot}}
                register(name, Builder, kwargs=kwargs, max_episode_steps=steps, **own)
    for version in ("v0", "v1"):
        for title, (robot, threshold) in VELOCITY.items():
            register(
                f"Safety{title}Velocity-{version}",
                SafetyVelocityEnv,
                kwargs={"robot": robot, "version": version},
                max_episode_steps=1000,
                reward_threshold=threshold,
                **own,
            )
    for one in registry.values():
        twin = one.id.replace("-", "Gymnasium-")
        gymnasium.register(
            twin,
            entry_point=f"{__name__}:make_gymnasium_environment",
            kwargs={"env_id": twin},
            max_episode_steps=one.max_episode_steps,
            reward_threshold=one.reward_threshold,
        )
