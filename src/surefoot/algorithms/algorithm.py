"""`Algorithm`: everything that belongs to an algorithm, as one value; and the registry of them."""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import Annotated, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

from surefoot.algorithms.trainer import Problem, Trainer
from surefoot.core.config import NonNegative, Range, changed, check_choice
from surefoot.core.registry import Registry
from surefoot.envs.task import BLACK_BOX, Task

BUILTIN = {
    "mbppo-lagrangian": "surefoot.algorithms.mbppo_trainer:ALGORITHM",
    "ppo-lagrangian": "surefoot.algorithms.ppo_lagrangian:ALGORITHM",
    "ppo": "surefoot.algorithms.ppo_lagrangian:PPO",
    "trpo-lagrangian": "surefoot.algorithms.trpo_lagrangian:ALGORITHM",
    "cpo": "surefoot.algorithms.cpo:ALGORITHM",
    "sac": "surefoot.algorithms.sac:ALGORITHM",
    "sac-lagrangian": "surefoot.algorithms.sac_lagrangian:ALGORITHM",
    "safe-loop": "surefoot.algorithms.safe_loop:ALGORITHM",
}
DEFAULT = "mbppo-lagrangian"
WITHOUT_MODEL = "sac-lagrangian"
"""What to try where nothing is known and a learned model is not believed."""
CUSTOM = "custom"
"""What a run records as its preset if it was given a whole config."""

Mode = Literal["look-ahead", "filter"]
"""Follow plans, or take a policy's action unless it might cost too much."""
Steps = Annotated[int, Range(least=1, most=10**12)]
DatasetSteps = Annotated[int, Range(least=1, most=10**9)]
"""Real steps of an algorithm that holds all of them."""
CostLimit = tuple[NonNegative, ...]
"""One limit per constraint; empty in a config that takes the task's."""
Within = Annotated[float, Range(above=0, below=1)] | None
"""Target share of the episodes within the limit; None limits the mean cost."""
Overrides = Mapping[str, object]
"""Settings by dotted name, such as {"ppo.clip": 0.1}."""


class Shape(NamedTuple):
    """What an environment looks like from outside."""

    observation_size: int
    action_size: int
    """Length of an action, or the number of choices."""
    episode_steps: int


@dataclass(frozen=True)
class Preset:
    """Overrides of a config's defaults: for all tasks, by device, and by task.

    Later ones win: `settings`, then `devices[device]`, then `tasks[task]`, then
    `tasks_on[device][task]`, then `black_box(shape, device)` where no model of the task is known,
    then the task's own (`Task.presets`), unless it has models and none of them is used.
    """

    settings: Overrides = field(default_factory=dict)
    devices: Mapping[str, Overrides] = field(default_factory=dict)
    tasks: Mapping[str, Overrides] = field(default_factory=dict)
    tasks_on: Mapping[str, Mapping[str, Overrides]] = field(default_factory=dict)
    black_box: Callable[[Shape, str], Overrides] = lambda shape, device: {}

    def of(self, task: str, device: str) -> dict[str, object]:
        """All overrides for a task on a device."""
        return {
            **self.settings,
            **self.devices.get(device, {}),
            **self.tasks.get(task, {}),
            **self.tasks_on.get(device, {}).get(task, {}),
        }


class Config(Protocol):
    """What every algorithm's config has: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field]]

    @property
    def steps(self) -> int: ...
    @property
    def cost_limit(self) -> tuple[float, ...]: ...


C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Algorithm(Generic[C]):
    """An algorithm that can be trained with. Its file holds its config, presets and functions."""

    name: str
    title: str
    """As in papers."""
    config: type[C]
    trainer: Callable[[C, Problem], Trainer]
    """`trainer(config, problem)` makes what the shared training loop drives."""
    environments: Callable[[C, int], int]
    """`environments(config, episode_steps)`: how many environments each seed steps."""
    presets: Mapping[str, Preset] = field(default_factory=lambda: {"default": Preset()})
    uses_model: bool = False
    """Whether it learns a model; its config then has `model`, otherwise `observation`."""
    filter: str | None = None
    """The field of its config that has the planner of a safety filter, if it has one."""
    acts: Callable[[C], Mode | None] = lambda config: None
    """How it plans real steps, so that its policy alone is not what was trained; None if it does
    not."""
    keeps_limit: Callable[[C], bool] = lambda config: True
    """Whether a config keeps the cost limit, or only reports by it."""
    columns: Mapping[str, str | Callable[[Mapping[str, float]], str]] = field(default_factory=dict)
    """Columns of the progress table beside reward and cost: title to format of the metrics."""
    summary: Callable[[C], str] = lambda config: ""
    """The settings that matter most, shown when training starts."""
    warning: Callable[[Mapping[str, float]], str | None] = lambda row: None
    """A warning to show with a row of metrics, if there is reason for one."""
    check: Callable[[C], None] = lambda config: None
    """Raises a ValueError if a config contradicts the algorithm."""

    def preset(self, name: str, task: Task, device: str, shape: Shape | None = None) -> C:
        """The config of the preset `name` for a task on a device (cpu or gpu).

        With a `shape`, the environment is a black box of that shape.
        """
        check_choice("preset", name, self.presets)
        device = "cpu" if device == "cpu" else "gpu"
        overrides = self.presets[name].of(task.name, device)
        if shape is not None:
            overrides |= self.presets[name].black_box(shape, device)
        if name == "default":
            if self.filter is not None:
                overrides |= {f"{self.filter}.{key}": x for key, x in task.filter.items()}
            if shape is None or not task.models:  # otherwise they are for its models
                overrides |= task.presets.get(self.name, {})
        config = changed(self.config(), overrides)
        if self.uses_model and self.sees(config) not in task.models:
            config = changed(config, {"model": BLACK_BOX})
        seen = task.observations
        if not self.uses_model and seen and self.sees(config) not in seen:
            config = changed(config, {"observation": seen[0]})
        return config

    def sees(self, config: C) -> str:
        """The name of the model or observation that decides what the policy sees."""
        return getattr(config, "model" if self.uses_model else "observation")

    def accepts(self, config: C) -> bool:
        """Whether `check` passes."""
        try:
            self.check(config)
        except ValueError:
            return False
        return True


ALGORITHMS: Registry[Algorithm] = Registry(Algorithm, "algorithm", BUILTIN)


def register_algorithm(algorithm: Algorithm) -> Algorithm:
    """Make an algorithm known by its name in this process.

    For the command line, install a package with an entry point in the group
    `surefoot.algorithms`, or name the file: `--algorithm path/to/file.py:ALGORITHM`.
    """
    return ALGORITHMS.register(algorithm.name, algorithm)


def algorithm_of(config: object) -> Algorithm:
    """The built-in or registered algorithm that a config is for."""
    fitting = [a for a in map(ALGORITHMS.__getitem__, ALGORITHMS) if a.config is type(config)]
    if not fitting:
        kinds = sorted({ALGORITHMS[name].config.__name__ for name in ALGORITHMS})
        raise ValueError(f"config={config!r} must be one of {', '.join(kinds)}")
    return next((a for a in fitting if a.accepts(config)), fitting[0])
