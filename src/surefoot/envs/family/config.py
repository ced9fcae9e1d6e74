"""Options of the family, the reference's levels, and where objects may be placed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, get_args

from surefoot.core.config import Count, NonNegativeInt, Positive, Range, check

RobotName = Literal["point", "car", "doggo", "racecar", "ant"]
TaskName = Literal["goal", "button", "push", "circle", "run"]
Version = Literal["1.0.0", "1.2.0"]
Observation = Literal["reference", "ego"]
Number = Annotated[int, Range(least=0, most=1000)]
Rectangle = tuple[float, float, float, float]
"""x and y at the lower corner, x and y at the upper one."""

KINDS: dict[TaskName, tuple[str, ...]] = {
    "goal": ("goal", "hazards", "vases"),
    "button": ("buttons", "goal", "hazards", "gremlins"),
    "push": ("goal", "hazards", "pillars", "push_box"),
    "circle": ("circle", "walls"),
    "run": ("walls",),
}
"""Kinds of objects in the order of placement after the robot, which is that of their lidars."""
COSTS = {
    "hazards": ("hazards",),
    "vases": ("vases_contact", "vases_velocity"),
    "gremlins": ("gremlins",),
    "buttons": ("buttons",),
    "pillars": ("pillars",),
    "walls": ("out_of_boundary",),
}
"""Costs of each constrained kind; the reference's names are these after `cost_`."""
LEVELS: dict[TaskName, dict[int, dict[str, object]]] = {
    "goal": {
        0: {"extent": 1.0},
        1: {"extent": 1.5, "hazards": 8, "vases": 1, "constrained": ("hazards",)},
        2: {"extent": 2.0, "hazards": 10, "vases": 10, "constrained": ("hazards", "vases")},
    },
    "button": {
        0: {"extent": 1.0, "constrained": ()},
        1: {"extent": 1.5, "hazards": 4, "gremlins": 4},
        2: {"extent": 1.8, "hazards": 8, "gremlins": 6},
    },
    "push": {
        0: {"extent": 1.0},
        1: {"extent": 1.5, "hazards": 2, "pillars": 1, "constrained": ("hazards",)},
        2: {"extent": 2.0, "hazards": 4, "pillars": 4, "constrained": ("hazards", "pillars")},
    },
    "circle": {0: {}, 1: {"walls": 2}, 2: {"walls": 4}},
    "run": {0: {"walls": 2}},
}
BASE: dict[TaskName, dict[str, object]] = {
    "goal": {"goal_keepout": 0.305},
    "button": {"goal_size": 0.2, "buttons": 4},
    "push": {"hazard_size": 0.3, "hazard_keepout": 0.4},
    "circle": {"max_episode_steps": 500, "lidar_range": 6.0, "boundary": 1.125, "extent": 2.0},
    "run": {"max_episode_steps": 500, "boundary": 0.5, "extent": 2.0},
}
EPSILON = 1e-9  # the reference draws fixed places too, within this distance


class Slot(NamedTuple):
    """One object to place."""

    kind: str
    keepout: float
    """Its radius, which must not overlap that of others."""
    rectangle: Rectangle
    """Where its centre may be."""


@dataclass(frozen=True)
class FamilyConfig:
    """Options of Safety-Gymnasium's navigation tasks."""

    robot: RobotName = "point"
    """Which robot."""
    task: TaskName = "goal"
    """Which task."""
    extent: Positive = 1.5
    """Objects are placed within ±extent metres; the robot may leave."""
    max_episode_steps: Count = 1000
    """Steps after which an episode is truncated."""
    hazards: Number = 0
    """Number of hazards; Goal, Button and Push have them."""
    vases: Number = 0
    """Number of vases, which the robot can push over; Goal has them."""
    buttons: Number = 0
    """Number of buttons; Button has them."""
    gremlins: Number = 0
    """Number of gremlins, which move in circles; Button has them."""
    pillars: Number = 0
    """Number of pillars, which block the way; Push has them."""
    walls: Literal[0, 2, 4] = 0
    """Number of boundaries; Circle and Run have them."""
    constrained: tuple[str, ...] | None = None
    """Kinds of objects that cost; None: all that can."""
    costs: Literal["sum", "separate"] = "sum"
    """sum: one constraint, violated when any is; separate: one for each kind of cost."""
    goal_size: Positive = 0.3
    """A goal is reached at this distance; Button only draws it."""
    hazard_size: Positive = 0.2
    """A hazard costs while its centre is at most this near."""
    boundary: Positive = 1.125
    """Distance of the walls from the centre line."""
    robot_keepout: Positive = 0.4
    """Placement radius of the robot, except in Circle and Run."""
    goal_keepout: Positive = 0.4
    """Placement radius of the goal."""
    hazard_keepout: Positive = 0.18
    """Placement radius of a hazard."""
    lidar_range: Positive = 3.0
    """Distance at which the lidar sees nothing."""
    button_delay: NonNegativeInt = 10
    """Steps after a press in which buttons are invisible and cost nothing."""
    button_timer: Version = "1.0.0"
    """Version of the reference: 1.2.0 starts episodes with the delay, 1.0.0 without."""
    ant: Version = "1.0.0"
    """Version of the reference's Ant: that of 1.2.0 has heavy feet."""
    observation: Observation = "reference"
    """reference: sensors and lidars; ego: body, goal and geometry in the robot's frame, lidars."""
    layout_seed: Annotated[int, Range(least=0, most=2**32 - 1)] | None = None
    """Start every episode from the layout of this seed; None: a new layout each time."""
    positions: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """Places of the first objects of a kind, such as {"hazards": ((0.5, 0.5),)}; "agent" is the
    robot."""

    def __post_init__(self) -> None:
        if isinstance(self.positions, Mapping):  # JSON has no tuples
            places = {k: tuple(map(tuple, v)) for k, v in self.positions.items()}
            object.__setattr__(self, "positions", places)
        check(self)
        for name in ("hazards", "vases", "buttons", "gremlins", "pillars", "walls"):
            if getattr(self, name) and name not in KINDS[self.task]:
                raise ValueError(f"{name}={getattr(self, name)} must be 0: {self.task} has none")
        if self.task == "button" and not self.buttons:
            raise ValueError(f"buttons={self.buttons} must be at least 1")
        if self.task == "run" and self.walls != 2:
            raise ValueError(f"walls={self.walls} must be 2: run has two")
        counts = {"agent": 1, **{kind: self.number(kind) for kind in KINDS[self.task]}}
        for kind, places in self.positions.items():
            if len(places) > counts.get(kind, 0):
                raise ValueError(
                    f"positions={self.positions!r} must not have {len(places)} of {kind!r}: "
                    f"this task has {', '.join(f'{n} {k}' for k, n in counts.items())}"
                )
        for kind in self.constrained or ():
            if kind not in COSTS or kind not in KINDS[self.task]:
                known = ", ".join(k for k in KINDS[self.task] if k in COSTS)
                raise ValueError(f"constrained={self.constrained!r} must name kinds of: {known}")

    def number(self, kind: str) -> int:
        """How many objects of a kind there are."""
        return 1 if kind in ("goal", "push_box", "circle") else getattr(self, kind)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of objects that exist, in the order of placement."""
        return tuple(kind for kind in KINDS[self.task] if self.number(kind))

    @property
    def lidars(self) -> tuple[str, ...]:
        """Kinds of objects that have a lidar, in the order of the observation."""
        return tuple(kind for kind in self.kinds if kind != "walls")

    @property
    def cost_kinds(self) -> tuple[str, ...]:
        """Names of the costs that this task charges."""
        wanted = self.kinds if self.constrained is None else self.constrained
        return tuple(name for kind in self.kinds if kind in wanted for name in COSTS.get(kind, ()))

    @property
    def cost_names(self) -> tuple[str, ...]:
        return (self.cost_kinds if self.costs == "separate" else ()) or ("sum",)

    def keepout(self, kind: str) -> float:
        """Placement radius of a kind."""
        if kind == "agent":
            return 0.0 if self.task in ("circle", "run") else self.robot_keepout
        return {
            "goal": self.goal_keepout,
            "hazards": self.hazard_keepout,
            "vases": 0.15,
            "buttons": 0.2,
            "gremlins": 0.4,
            "pillars": 0.3,
            "push_box": 0.125 if self.robot == "car" else 0.2,
        }.get(kind, 0.0)

    def slots(self) -> Iterator[Slot]:
        """All objects in the order of placement, the robot first."""
        b = self.boundary
        walls = ((b, 0.0), (-b, 0.0), (0.0, b), (0.0, -b))
        fixed = {"circle": ((0.0, 0.0),), "walls": walls, **self.positions}
        for kind in ("agent", *self.kinds):
            keepout, places = self.keepout(kind), fixed.get(kind, ())
            for i in range(1 if kind == "agent" else self.number(kind)):
                if i < len(places):
                    (x, y), reach = places[i], keepout + EPSILON
                    area = (x - reach, y - reach, x + reach, y + reach)
                elif kind == "agent" and self.task == "circle":
                    area = (-0.8, -0.8, 0.8, 0.8)
                elif kind == "agent" and self.task == "run":
                    area = (-0.2, 16.5, 0.2, 16.5)
                else:
                    area = (-self.extent, -self.extent, self.extent, self.extent)
                x0, y0, x1, y1 = area
                area = (x0 + keepout, y0 + keepout, x1 - keepout, y1 - keepout)
                if area[2] < area[0] or area[3] < area[1]:
                    raise ValueError(f"extent={self.extent} must exceed {keepout}, for {kind}")
                yield Slot(kind, keepout, area)


def stock(robot: RobotName, task: TaskName, level: int) -> FamilyConfig:
    """The options of one of the reference's tasks."""
    return FamilyConfig(robot=robot, task=task, **{**BASE[task], **LEVELS[task][level]})  # type: ignore[arg-type]


OBSERVATIONS: tuple[Observation, ...] = get_args(Observation)
ROBOT_NAMES: tuple[RobotName, ...] = get_args(RobotName)
