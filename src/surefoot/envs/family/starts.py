"""Initial states for imagination: layouts drawn in advance, then turned and mirrored at random."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.envs.family import ego
from surefoot.envs.family.config import FamilyConfig, Slot
from surefoot.envs.family.ego import View
from surefoot.envs.family.robots import robot_of
from surefoot.envs.family.world import compile_world
from surefoot.envs.navigation.sampler import collect_points

LAYOUTS = 1024
"""Button's layouts take seconds: most attempts fail."""
SYMMETRIES = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (0, 1)])


def _slots(config: FamilyConfig) -> tuple[Slot, ...]:
    """Objects that must be placed."""
    return tuple(slot for slot in config.slots() if slot.kind not in ("circle", "walls"))


@cache
def _sample_layouts(slots: tuple[Slot, ...], n: int) -> Float[np.ndarray, "n K 2"]:
    """n layouts, in which a goal is drawn twice, as in resets; Button's is only there for room."""
    kinds = [slot.kind for slot in slots]
    again = kinds.index("goal") if "goal" in kinds and "buttons" not in kinds else None
    keepouts = np.array([slot.keepout for slot in slots])
    return collect_points(0, n, keepouts, np.array([slot.rectangle for slot in slots]), again)


def draw_starts(config: FamilyConfig, n: int = LAYOUTS) -> View:
    """n initial states; `vary_starts` draws headings and goal buttons."""
    robot, slots, rng = robot_of(config), _slots(config), np.random.default_rng(1)
    drawn, kinds = _sample_layouts(slots, n), np.array([slot.kind for slot in slots])
    pick = lambda *names: drawn[:, np.isin(kinds, names)]
    model = compile_world(robot)
    qpos = np.tile(model.qpos0, (n, 1))
    for row in qpos:
        robot.bend(row, rng.uniform(-0.1, 0.1, len(robot.bent)).tolist())
    zero = np.zeros((n, 1))
    return View(
        position=pick("agent")[:, 0],
        heading=zero,
        body=robot.robot.read(qpos, np.zeros((n, model.nv))).body,
        goal=pick("goal")[:, 0] if config.task in ("goal", "push") else np.zeros((n, 2)),
        hazards=pick("hazards"),
        movable=pick("vases", "gremlins", "push_box"),
        box=np.zeros((n, 4 * (config.task == "push"))),
        statics=pick("buttons", "pillars"),
        button=zero,
        timer=zero + config.button_delay * (config.button_timer == "1.2.0"),
        time=zero,
        signals=np.zeros((n, len(ego.signals(config)))),
    )


def vary_starts(config: FamilyConfig, key: Key[Array, ""], v: View) -> View:
    """Initial states in a random one of their symmetric forms, with random headings."""
    mirror, turn, choice = jax.random.split(key, 3)
    n = len(v.heading)
    if all(a == b == -c == -d for a, b, c, d in (slot.rectangle for slot in _slots(config))):
        # A layout that is mirrored along x, y or the diagonal is as likely.
        flip = jnp.asarray(SYMMETRIES)[jax.random.randint(mirror, (n,), 0, len(SYMMETRIES))]

        def moved(x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
            sign, swap = flip[:, :2], flip[:, 2:] > 0
            if x.ndim == 3:
                sign, swap = sign[:, None], swap[:, None]
            return sign * jnp.where(swap, x[..., ::-1], x)

        names = ("position", "goal", "hazards", "movable", "statics")
        v = v._replace(**{name: moved(getattr(v, name)) for name in names})
    angle = jax.random.uniform(turn, (n, 2), maxval=2 * jnp.pi)
    v = v._replace(heading=angle[:, :1])
    if config.task == "push":
        v = v._replace(box=jnp.concatenate([angle[:, 1:], v.box[:, 1:]], 1))
    if config.task == "button":
        button = jax.random.randint(choice, (n, 1), 0, config.buttons)
        goal = jnp.take_along_axis(v.statics, button[..., None], 1)[:, 0]
        v = v._replace(button=button.astype(v.timer.dtype), goal=goal)
    return v
