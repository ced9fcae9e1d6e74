"""From an id and the reference's `config` to the native tasks' options."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from surefoot.core.config import did_you_mean
from surefoot.envs.family.config import COSTS, FamilyConfig, stock
from surefoot.envs.task import FAMILY, FAMILY_ROBOTS

ID = re.compile(
    rf"Safety({'|'.join(FAMILY_ROBOTS)})({'|'.join(FAMILY)})(\d)(Gymnasium)?-v0"
)  # fmt: skip
LEFT_OUT = {
    "Vision": "images are not drawn by the reference's camera here; use the id without Vision",
    "Debug": "keyboard control is left out",
    "Race": "its walls are meshes, which are not included",
    "Building": "its objects are meshes, which are not included",
    "FormulaOne": "its track is made of meshes, which are not included",
    "Fading": "it differs from Goal in images only; use Goal",
    "Multi": "multi-agent tasks are left out",
}
"""Parts of the reference's ids that are refused, and why."""

# The reference's dotted names of attributes of `task`, and the options that they are.
NAMES = {
    "num_steps": "max_episode_steps",
    "lidar_conf.max_dist": "lidar_range",
    "hazards.num": "hazards",
    "vases.num": "vases",
    "buttons.num": "buttons",
    "gremlins.num": "gremlins",
    "pillars.num": "pillars",
    "sigwalls.num": "walls",
    "sigwalls.locate_factor": "boundary",
    "goal.size": "goal_size",
    "goal.keepout": "goal_keepout",
    "hazards.size": "hazard_size",
    "hazards.keepout": "hazard_keepout",
    "agent.keepout": "robot_keepout",
    "buttons.resampling_delay": "button_delay",
    "ant": "ant",
    "button_timer": "button_timer",
}
KINDS = {"sigwalls": "walls"} | {kind: kind for kind in COSTS if kind != "walls"}
"""The reference's names of kinds that may cost."""
PLACED = ("agent", "goal", "hazards", "vases", "buttons", "gremlins", "pillars", "push_box")
FIXED = {
    "observe_vision": False,
    "debug": False,
    "action_noise": 0.0,
    "lidar_conf.num_bins": 16,
    "lidar_conf.type": "pseudo",
    "lidar_conf.alias": True,
    "cost_conf.constrain_indicator": True,
    "mechanism_conf.continue_goal": True,
    "mechanism_conf.terminate_resample_failure": True,
    "sim_conf.frameskip_binom_n": 10,
    "sim_conf.frameskip_binom_p": 1.0,
    "placements_conf.margin": 0.0,
}
"""Settings that have one value here."""
OTHERS = (
    "agent_name",
    "observation_flatten",
    "placements_conf.extents",
    "mechanism_conf.randomize_layout",
)
KEYS = (
    *OTHERS,
    *NAMES,
    *FIXED,
    *(f"{kind}.is_constrained" for kind in KINDS),
    *(f"{kind}.locations" for kind in PLACED),
)
LOOKS = ("floor_conf.", "render_conf.", "vision_env_conf.")
"""Settings that change only the reference's pictures; they are ignored."""


def family_config(task_id: str, config: Mapping[str, Any] | None = None) -> FamilyConfig:
    """The options of a navigation id, changed by the reference's `config`."""
    match = ID.fullmatch(task_id)
    if match is None or int(match[3]) >= FAMILY[match[2]]:
        raise ValueError(f"task_id={task_id!r} must be an id such as 'SafetyPointGoal1-v0'")
    config = dict(config or {})
    robot = config.pop("agent_name", match[1])
    if robot not in FAMILY_ROBOTS:
        raise _invalid("agent_name", robot, f"one of {', '.join(FAMILY_ROBOTS)}")
    base = stock(robot.lower(), match[2].lower(), int(match[3]))  # type: ignore[arg-type]
    options: dict[str, object] = {}
    for key, value in config.items():
        if not key.startswith(LOOKS):
            options |= _option(key, value, base, options)
    return replace(base, **options)


def _option(
    key: str, value: Any, base: FamilyConfig, options: Mapping[str, Any]
) -> dict[str, object]:
    """The option that one entry of `config` is."""
    kind, _, field = key.partition(".")
    if key in NAMES:
        return {NAMES[key]: value}
    if key in FIXED:
        if value != FIXED[key]:
            raise _invalid(key, value, f"{FIXED[key]!r}, the only value here")
        return {}
    if key == "observation_flatten":
        return {}  # `flattens` reads it
    if key == "mechanism_conf.randomize_layout":
        return {"layout_seed": None if value else 0}
    if key == "placements_conf.extents":
        low, high = -float(value[-1]), float(value[-1])
        if list(value) != [low, low, high, high]:
            raise _invalid(key, value, "a square around the origin, such as [-2, -2, 2, 2]")
        return {"extent": high}
    if field == "is_constrained" and kind in KINDS:
        now = options.get("constrained", base.constrained)
        costing = set(base.kinds if now is None else now) & set(COSTS)
        costing = costing | {KINDS[kind]} if value else costing - {KINDS[kind]}
        return {"constrained": tuple(k for k in COSTS if k in costing)}
    if field == "locations" and kind in PLACED:
        places = tuple(tuple(map(float, place)) for place in value)
        return {"positions": {**options.get("positions", {}), kind: places}}
    raise ValueError(
        f"config has the key {key!r}{did_you_mean(key, KEYS)}; it must be one of {', '.join(KEYS)}"
    )


def flattens(config: Mapping[str, object] | None) -> bool:
    """Whether observations are vectors; otherwise dicts of sensors and lidars."""
    return bool((config or {}).get("observation_flatten", True))


def _invalid(key: str, value: object, requirement: str) -> ValueError:
    return ValueError(f"config[{key!r}]={value!r} must be {requirement}")
