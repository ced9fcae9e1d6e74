"""The settings of MBPPO-Lagrangian."""

from dataclasses import dataclass, field
from typing import Literal

from surefoot.core.config import check_types
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.world.ensemble import EnsembleConfig

MOST_STEPS = 10**9


@dataclass(frozen=True)
class MBPPOConfig:
    """MBPPO-Lagrangian. The defaults are the `paper` preset; `presets.py` has the others."""

    steps: int = 450_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode; the same for each constraint."""
    constrained: bool = True
    """Whether the limit is kept; without, the multiplier stays at 0."""
    episodes: int = 13
    """Real episodes per epoch, collected side by side."""
    model: Literal["ego", "paper", "black-box"] = "paper"
    """What the ensemble predicts: the robot's own motion, the paper's state, or observations."""
    horizon: int = 80
    """Steps of an imagined rollout, H."""
    rollouts: int = 378
    """Imagined rollouts per pass; a multiple of the elites."""
    carry: float = 0.0
    """Share of the rollouts that go on from pass to pass through whole episodes; they tell what an
    episode costs. The others start anew in every pass, which teaches faster."""
    passes: int = 30
    """Most passes of practice per epoch."""
    final_rate: float = 1.0
    """Share of the learning rates that is left at the end; they fall evenly from epoch to epoch.
    Small steps at last let the policy settle, where there is no time for small steps all along."""
    real_share: float = 0.05
    """Share of real rollouts in the first pass of an epoch."""
    replay_share: float = 0.0
    """Share of the rollouts that start from past real states rather than from resets."""
    beta: float = 0.02
    """The multiplier aims at beta times the limit."""
    anchor: bool = False
    """Judge costs per episode and put them right by the gap seen in the last real batch; without,
    the cost of H imagined steps is held against beta times the limit, as in the paper."""
    gap_memory: float = 0.0
    """Share of the earlier gap between real and imagined cost that is kept."""
    gate: Literal["none", "reward", "lagrangian"] = "reward"
    """What the performance ratio compares; none practises for all passes."""
    pr_threshold: float = 0.66
    """Practice goes on while this share of the elites agrees that it helps."""
    pr_rollouts: int = 64
    """Paired rollouts per elite for the performance ratio."""
    pr_horizon: int = 75
    """Steps of those rollouts."""
    ppo: PPOConfig = field(default_factory=lambda: PPOConfig(clip=0.1, value_targets="return"))
    """The policy's learner."""
    multiplier: MultiplierConfig = field(default_factory=MultiplierConfig)
    """The multiplier's rule."""
    ensemble: EnsembleConfig = field(default_factory=lambda: EnsembleConfig(max_steps=1000))
    """The model of the world."""

    @property
    def carried(self) -> int:
        """How many rollouts are carried from pass to pass."""
        return round(self.carry * self.rollouts)

    def __post_init__(self) -> None:
        check_types(self)
        for name in (
            "steps",
            "episodes",
            "horizon",
            "rollouts",
            "passes",
            "pr_rollouts",
            "pr_horizon",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.steps > MOST_STEPS:  # all are kept in memory
            raise ValueError(f"steps={self.steps} must be at most {MOST_STEPS:,}")
        for name in ("carry", "real_share", "replay_share", "gap_memory"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0 and below 1")
        if not self.cost_limit >= 0:
            raise ValueError(f"cost_limit={self.cost_limit} must not be negative")
        if not 0 < self.final_rate <= 1:
            raise ValueError(f"final_rate={self.final_rate} must be above 0 and at most 1")
        if not self.beta > 0:
            raise ValueError(f"beta={self.beta} must be positive")
        if not 0 < self.pr_threshold <= 1:
            raise ValueError(f"pr_threshold={self.pr_threshold} must be above 0 and at most 1")
        elites = self.ensemble.elites
        if self.rollouts % elites:
            raise ValueError(
                f"rollouts={self.rollouts} must be a multiple of ensemble.elites={elites}; "
                f"{-(-self.rollouts // elites) * elites} would do"
            )
        for name, choices in (
            ("model", ("ego", "paper", "black-box")), ("gate", ("none", "reward", "lagrangian")),
        ):  # fmt: skip
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} must be one of {choices}")
