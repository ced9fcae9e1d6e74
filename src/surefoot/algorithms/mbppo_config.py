"""The settings of MBPPO-Lagrangian, and its presets."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from surefoot.algorithms import planning
from surefoot.algorithms.algorithm import (
    CostLimit,
    DatasetSteps,
    Overrides,
    Preset,
    Shape,
    Within,
)
from surefoot.core.config import Count, NonNegativeInt, Positive, PositiveShare, Range, Share, check
from surefoot.envs.task import BLACK_BOX
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.planner import PlannerConfig

SMALL = 8
"""Numbers in observation and action up to which a small model suffices."""
AtLeastOne = Annotated[float, Range(least=1)]


@dataclass(frozen=True)
class MBPPOConfig:
    """MBPPO-Lagrangian. The defaults are the `paper` preset."""

    steps: DatasetSteps = 450_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit on the undiscounted cost of an episode, one per constraint."""
    constrained: bool = True
    """Whether to keep the limit; otherwise the multiplier stays at 0."""
    within: Within = None
    """Target share of episodes within the limit: lambda follows this quantile of the episode cost
    instead of its mean, such as 0.95."""
    careful: bool = False
    """Drive real episodes through the safety filter: a plan steps in where the policy might cost
    something. The limit holds for the policy without it. If `constrained` is False, costs have no
    price: the policy may earn more behind the filter, but must not act without it."""
    filter: PlannerConfig = planning.DEFAULT
    """The planner of the safety filter."""
    episodes: Count = 13
    """Real episodes per epoch, collected side by side."""
    model: str = "paper"
    """What the ensemble predicts: one of the task's models, or black-box."""
    horizon: Count = 80
    """Steps of an imagined rollout, H."""
    rollouts: Count = 378
    """Imagined rollouts per pass; a multiple of the elites."""
    carry: Share = 0.0
    """Share of the rollouts that continue from pass to pass through whole episodes and measure the
    episode cost. The others start afresh in every pass, which teaches faster."""
    passes: Count = 30
    """Maximum passes of practice per epoch."""
    final_rate: PositiveShare = 1.0
    """Share of the learning rates that is left in the last epoch; they fall linearly."""
    early_log_std: float | None = None
    """Lower bound of the policy's log standard deviation in the first epoch. It falls linearly to
    ppo.minimum_log_std in the last: exploration first, precision last. None: the same in all."""
    real_share: Share = 0.05
    """Share of real rollouts in the first pass of an epoch."""
    replay_share: Share = 0.0
    """Share of the rollouts that start from past real states instead of initial states."""
    recency: AtLeastOne = 1.0
    """Preference for recent ones among them: the last quarter of all past states is drawn with
    probability 1 - 0.75^recency. 1: all alike."""
    noise_correlation: Share = 0.0
    """Largest correlation between the noise of successive actions in the first real epoch, and
    until the return of an episode differs from the others. Lasting noise explores further. 0 draws
    all noise independently."""
    beta: Positive = 0.02
    """The multiplier aims at beta times the limit."""
    anchor: bool = False
    """Compare the cost of whole episodes with the limit, corrected by the ratio of real to imagined
    cost; otherwise the cost of H imagined steps, as in the paper."""
    ratio_memory: Share = 0.0
    """Share of earlier real batches in that ratio."""
    learn_first: NonNegativeInt = 0
    """Epochs, at most, in which costs have no price: the first one, and others while the imagined
    or real reward still rises quickly."""
    limit_fall: Positive | None = None
    """Epochs in which the cost that practice aims at falls to a tenth: from the policy's own cost,
    once costs have a price, down to the limit. None: it aims at the limit at once."""
    gate: Literal["none", "reward", "lagrangian"] = "reward"
    """What the performance ratio compares; none practises for all passes."""
    adapt_practice: bool = False
    """After epochs in which imagined and real reward or cost disagreed, learn only from steps near
    real states: short rollouts from past ones, and the first steps of the others."""
    trust_radius: Positive | None = None
    """Bound on the mean KL divergence of practice from the policy of the last real episodes. The
    model knows the states that this policy meets best. None: no bound."""
    pr_threshold: PositiveShare = 0.66
    """Practice continues while this share of the elites agrees that it helps."""
    pr_rollouts: Count = 64
    """Paired rollouts per elite for the performance ratio."""
    pr_horizon: Count = 75
    """Steps of those rollouts."""
    ppo: PPOConfig = field(default_factory=lambda: PPOConfig(clip=0.1, value_targets="return"))
    """The policy's learner."""
    multiplier: MultiplierConfig = field(default_factory=MultiplierConfig)
    """The multiplier's rule."""
    ensemble: EnsembleConfig = field(default_factory=lambda: EnsembleConfig(max_steps=1000))
    """The learned model."""

    @property
    def carried(self) -> int:
        """Number of rollouts that continue from pass to pass."""
        return round(self.carry * self.rollouts)

    @property
    def replayed(self) -> int:
        """Number of rollouts that start from past real states."""
        return round(self.replay_share * self.rollouts)

    @property
    def short(self) -> int:
        """Number of rollouts that become short ones if long ones are not believed."""
        share = max(self.replayed, self.rollouts // 2)
        return min(share, self.rollouts - self.carried) if self.adapt_practice else 0

    def __post_init__(self) -> None:
        check(self)
        if self.carried + self.replayed > self.rollouts:
            raise ValueError(
                f"carry={self.carry} and replay_share={self.replay_share} must add up to at most 1"
            )
        early, least = self.early_log_std, self.ppo.minimum_log_std
        if early is not None and (least is None or not least <= early <= self.ppo.initial_log_std):
            raise ValueError(
                f"early_log_std={early} must be between ppo.minimum_log_std={least} and "
                f"ppo.initial_log_std={self.ppo.initial_log_std}"
            )
        if self.within is not None and not (self.anchor and self.constrained):
            raise ValueError(
                f"within={self.within} must go with constrained=True and anchor=True, which "
                f"compares whole episodes with the limit"
            )
        if self.noise_correlation and self.real_share:
            raise ValueError(
                f"real_share={self.real_share} must be 0 with noise_correlation="
                f"{self.noise_correlation}: such noise is not the policy's"
            )
        if self.careful and self.real_share:
            raise ValueError(
                f"real_share={self.real_share} must be 0 with careful=True: the filter's actions "
                f"are not the policy's"
            )
        elites = self.ensemble.elites
        if self.rollouts % elites:
            near = -(-self.rollouts // elites) * elites
            raise ValueError(
                f"rollouts={self.rollouts} must be a multiple of ensemble.elites={elites}, "
                f"such as {near}"
            )


FEW_UPDATES = {
    "ppo.actor_learning_rate": 1e-3,
    "ppo.critic_learning_rate": 2e-3,
    "ppo.epochs": 2,
    "ppo.critic_epochs": 2,
}
"""Half as many updates of twice the length, for an accelerator."""
DOGGO_CPU = {"rollouts": 768, "passes": 60}
DOGGO_GPU = {"rollouts": 1536, "passes": 100}


def fit_to(shape: Shape, device: str) -> Overrides:
    """Settings for an environment of which nothing is known."""
    steps, small = shape.episode_steps, shape.observation_size + shape.action_size <= SMALL
    common = {
        "model": BLACK_BOX,
        # Few real steps per epoch: new data matter more than more practice.
        "episodes": min(10, max(2 if small else 1, round(1_000 / steps))),
        # Some outputs hardly change, and would otherwise outweigh those that matter.
        "ensemble.variance_weight": 0.5,
        # As accurate after half of the steps. Averages follow late, so the fit waits for them.
        "ensemble.averaging": 0.99,
        "ensemble.learning_rate": 3e-3,
        "ensemble.patience": 20,
        # All of the multiplier: a task's own rule has other gains.
        "multiplier.kind": "log-pi",
        "multiplier.initial": 0.5,
        "multiplier.proportional_gain": 0.3,
        "multiplier.integral_gain": 0.0065 if device == "cpu" else 0.006,
        "steps": min(100_000, max(10_000, (60 if small or device == "cpu" else 100) * steps)),
        "ppo.normalise_observations": True,
        # Long enough that an early end of an episode counts; values are then large.
        "ppo.gamma": max(0.99, 1 - 3 / steps),
        "ppo.normalise_values": True,
        "ppo.adapt_rate": True,
        # Half of the rollouts start where the data are.
        "replay_share": 0.5,
        "filter.cost_threshold": planning.LEARNED_COST_THRESHOLD,
    }
    if small:
        # Lasting pushes find a distant goal. With many joints they only make a robot fall.
        return {
            **common,
            "adapt_practice": True,
            "noise_correlation": max(0.0, 1 - 50 / steps),
        }
    # Short rollouts from recent real states, by a policy near the one that met them: the model is
    # exploited elsewhere. Its full noise makes robots fall that do not fall in reality.
    # Exploration comes first and precision last.
    large = {
        "horizon": 25,
        "recency": 4.0,
        "trust_radius": 1.0,
        "ensemble.noise": 0.5,
        "ppo.endless_costs": True,
        "multiplier.initial": 0.25,
        # Lambda must fall as fast as it rises, or the reward is lost to an old violation.
        "multiplier.proportional_gain": 1.0,
        "multiplier.integral_gain": 0.005 if device == "cpu" else 0.003,
        # While the reward still rises, costs rise with it.
        "beta": 0.5,
        "final_rate": 0.3,
        "early_log_std": -1.0,
        "ppo.minimum_log_std": -2.5,
    }
    if device == "cpu":
        # A small model is exploited. A large one is slow, so it is practised on less.
        return common | large | {
            "passes": 80,
            "rollouts": 432,
            "ppo.minibatches": 16,
            "ensemble.hidden": (200, 200, 200),
            "ensemble.max_steps": 750,
        }  # fmt: skip
    return common | large | {
        "passes": 150,
        "rollouts": 3060,
        "ensemble.max_steps": 1000,
    } | FEW_UPDATES  # fmt: skip


DEFAULT = Preset(
    # Whole episodes are imagined between few real ones. What matters most (docs/results): a low
    # multiplier at the start, so that the robot learns to drive before it learns to avoid; rollouts
    # and advantages as long as the robot's momentum; and the cost of whole episodes.
    {
        "model": "ego",
        "horizon": 80,
        "carry": 0.25,
        "real_share": 0.0,
        "anchor": True,
        "ratio_memory": 0.8,
        "gate": "none",
        "ppo.gae_lambda": 0.97,
        "ppo.clip": 0.2,
        "ppo.value_targets": "gae",
        "ppo.kl_stop": 0.02,
        "ppo.minimum_log_std": -1.6,
        "ppo.scale_costs": True,
        "multiplier.kind": "log-pi",
    },
    devices={
        # A CPU pays for every step it learns from, an accelerator for every update: so the CPU
        # takes many small updates and few passes over its data.
        "cpu": {
            "steps": 13_500,
            "episodes": 3,
            "rollouts": 576,
            "passes": 100,
            "final_rate": 0.08,
            "beta": 0.6,
            "ppo.actor_learning_rate": 2.5e-3,
            "ppo.critic_learning_rate": 3.5e-3,
            "ppo.epochs": 2,
            "ppo.critic_epochs": 1,
            "ppo.minibatches": 32,
            "multiplier.initial": 0.5,
            "multiplier.proportional_gain": 0.3,
            "multiplier.integral_gain": 0.0065,
            "ensemble.members": 5,
            "ensemble.elites": 3,
            "ensemble.hidden": (64, 64),
            "ensemble.max_steps": 1000,
        },
        "gpu": {
            "steps": 24_000,
            "episodes": 2,
            "rollouts": 2040,
            "passes": 300,
            "beta": 0.65,
            "ppo.actor_learning_rate": 5e-4,
            "ppo.critic_learning_rate": 1e-3,
            "ppo.epochs": 4,
            "ppo.critic_epochs": 4,
            "ppo.minibatches": 8,
            "multiplier.initial": 0.5,
            "multiplier.proportional_gain": 0.3,
            "multiplier.integral_gain": 0.006,
            "ensemble.members": 8,
            "ensemble.elites": 6,
            "ensemble.hidden": (200, 200, 200, 200),
            "ensemble.max_steps": 2000,
        },
    },
    tasks={
        "CarGoal": {"steps": 30_000, "episodes": 4, "beta": 0.7},
        # Rollouts are whole episodes: costs are most likely at their beginning.
        "RCCar": {
            "steps": 6_000,
            "episodes": 3,
            "carry": 0.0,
            "horizon": 100,
        },
    },
    tasks_on={
        "cpu": {
            "PointGoal": {"beta": 0.65},
            "CarGoal": {"learn_first": 1},
            "DoggoGoal": DOGGO_CPU,
            "DoggoGoalOpenAI": DOGGO_CPU,
            "RCCar": {"beta": 0.8, "learn_first": 1},
        },
        "gpu": {
            "PointGoal": FEW_UPDATES,
            "DoggoGoal": DOGGO_GPU,
            "DoggoGoalOpenAI": DOGGO_GPU,
        },
    },
    black_box=fit_to,
)
