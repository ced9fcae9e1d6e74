"""Which settings to start from: by algorithm, preset, task and device."""

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from surefoot.algorithms import (
    cpo,
    mbppo_lagrangian,
    ppo_lagrangian,
    sac,
    safe_loop,
    trpo_lagrangian,
)
from surefoot.algorithms.cpo import CPOConfig
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.sac import SACConfig
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.algorithms.trpo_lagrangian import TRPOLagrangianConfig
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.learn.sac import SACLearnerConfig
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.planner import PlannerConfig

CONFIGS: dict[str, type] = {
    "mbppo-lagrangian": MBPPOConfig,
    "ppo-lagrangian": PPOLagrangianConfig,
    "ppo": PPOLagrangianConfig,
    "trpo-lagrangian": TRPOLagrangianConfig,
    "cpo": CPOConfig,
    "sac": SACConfig,
    "safe-loop": SafeLoopConfig,
}
ALGORITHMS = tuple(CONFIGS)
MODEL_FREE: dict[type, Any] = {
    PPOLagrangianConfig: ppo_lagrangian,
    TRPOLagrangianConfig: trpo_lagrangian,
    CPOConfig: cpo,
    SACConfig: sac,
}
"""The file of each config's algorithm."""
MODEL_BASED: dict[type, Any] = {MBPPOConfig: mbppo_lagrangian, SafeLoopConfig: safe_loop}
"""The same of those that learn a model; their configs say which."""
PRESETS = ("default", "paper")

LIMITS = {"RCCar": 5.0}


def preset(algorithm: str, name: str, task: str | None, device: str) -> Any:
    """The config of `algorithm` under the preset `name` for `task` on `device` (cpu or gpu)."""
    _known("algorithm", algorithm, ALGORITHMS)
    _known("preset", name, PRESETS)
    limit = LIMITS.get(task or "", 18.0)
    if algorithm == "sac":
        return SACConfig(cost_limit=limit)
    if algorithm == "safe-loop":
        return replace(_safe_loop(name, task, device), cost_limit=limit)
    if algorithm != "mbppo-lagrangian":
        steps = 60_000 if task and task.startswith("Doggo") else 30_000
        config = CONFIGS[algorithm](cost_limit=limit, steps_per_epoch=steps)
        return replace(config, constrained=False) if algorithm == "ppo" else config
    if name == "paper":
        return MBPPOConfig(cost_limit=limit)
    config = _default(task, device)
    return replace(config, cost_limit=limit)


def algorithm_of(config: Any) -> str:
    """The name of the algorithm that a config is for."""
    if isinstance(config, PPOLagrangianConfig) and not config.constrained:
        return "ppo"
    for name, kind in CONFIGS.items():
        if isinstance(config, kind):
            return name
    kinds = ", ".join(sorted({kind.__name__ for kind in CONFIGS.values()}))
    raise ValueError(f"config={config!r} must be one of {kinds}")


def planner(known: bool, task: str | None = None) -> PlannerConfig:
    """How to plan by default; `known` says whether costs are, or must be learned.

    Safe-LOOP's own settings belong to actions that the task repeats: on single steps its plans are
    little more than the mean of the safe ones. Plans of a few lasting actions, and the best of them
    instead of weights that depend on the scale of rewards, drive as well as a trained policy. A car
    that drifts is steered more finely, and not as far ahead: few long plans of its would be safe.
    """
    horizon, hold = (5, 3) if task == "RCCar" else (6, 5)
    return PlannerConfig(
        kind="cem",
        horizon=horizon,
        hold=hold,
        samples=60,
        iterations=4,
        particles=1,
        cost_threshold=0.0 if known else 0.2,  # learned ones are never quite 0
    )


def _safe_loop(name: str, task: str | None, device: str) -> SafeLoopConfig:
    """The paper's settings; by default with the model that knows more, sized for the device."""
    if name == "paper":
        config = SafeLoopConfig()
        if task is None:
            config = replace(config, planner=replace(config.planner, cost_threshold=0.2))
        return config
    plans = planner(task is not None, task)
    if task is not None:
        # These plans reach far enough. SAC's values would only mislead: the planner never does what
        # SAC's policy would, so that nothing corrects what such actions are believed to be worth.
        plans = replace(plans, value_weight=0.0)
    # The planner needs no values to drive by, so SAC may begin before they are any good.
    config = SafeLoopConfig(
        steps=30_000,
        model="ego",
        random_steps=2_500,
        planner=plans,
        sac=SACLearnerConfig(initial_temperature=0.005),
    )
    if device != "cpu":
        return config
    return replace(
        config,
        steps=15_000,
        # Random steps do harm, and where costs are known a model of 250 steps drives already.
        random_steps=250 if task else 2_500,
        steps_per_epoch=3_750,
        environments=5,
        sac=replace(config.sac, hidden=(64, 64), batch_size=128),
        ensemble=EnsembleConfig(members=4, elites=3, hidden=(64, 64), max_steps=100),
    )


def _default(task: str | None, device: str) -> MBPPOConfig:
    """Whole episodes imagined until converged, between few real ones. Sized for the device.

    What mattered, in order (docs/results has the measurements): a low price of cost at the start,
    which rises while the limit is broken, so that the robot learns to drive before it learns to
    avoid; rollouts and advantages that reach as far as the robot's momentum; and judging the cost
    of whole episodes.
    """
    small = device == "cpu"
    config = MBPPOConfig(
        steps=13_500 if small else 24_000,
        episodes=3 if small else 2,
        model="ego",
        horizon=80,
        rollouts=576 if small else 2040,
        carry=0.25,
        passes=100 if small else 300,
        # Large steps at first, for there is little time, and small ones at last, to settle.
        final_rate=0.08 if small else 1.0,
        real_share=0.0,
        beta=(0.8 if task else 0.6) if small else 0.65,
        anchor=True,
        gap_memory=0.8,
        gate="none",
        # A CPU pays for every step it learns from, an accelerator for every update: so the first
        # takes many small ones, and few passes over its data.
        ppo=PPOConfig(
            gae_lambda=0.97,
            clip=0.2,
            actor_learning_rate=2.5e-3 if small else 5e-4,
            critic_learning_rate=3.5e-3 if small else 1e-3,
            epochs=2 if small else 4,
            critic_epochs=1 if small else 4,
            minibatches=32 if small else 8,
            kl_stop=0.02,
            minimum_log_std=-1.6,
            scale_costs=True,
        ),
        # With few passes the price must rise fast, and be kept from overshooting. What is too much
        # is known of these tasks only: where it is not, the limit comes first.
        multiplier=MultiplierConfig(
            kind="softplus",
            initial=0.07,
            learning_rate=0.02 if small else 0.006,
            maximum=0.7 if small and task else None,
        ),
        ensemble=EnsembleConfig(
            members=5 if small else 8,
            elites=3 if small else 6,
            hidden=(64, 64) if small else (200, 200, 200, 200),
            max_steps=1000 if small else 2000,
        ),
    )
    if task == "RCCar":
        return replace(config, steps=6_000, episodes=3)  # of 100 steps each
    if task == "CarGoal":
        return replace(config, steps=30_000, episodes=4, beta=0.7)
    if task and task.startswith("Doggo"):
        # Walking takes more data, and a fallen robot must be imagined too: start from past states.
        return replace(
            config,
            steps=144_000,
            episodes=24,
            beta=0.7,
            horizon=100,
            rollouts=768 if small else 1536,
            passes=60 if small else 100,
            carry=0.0,
            replay_share=0.5,
            ppo=replace(config.ppo, hidden=(128, 128), minimum_log_std=-1.0),
            ensemble=replace(config.ensemble, hidden=(200, 200, 200, 200), max_steps=3000),
        )
    return config


def _known(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        near = get_close_matches(str(value), choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{field}={value!r} is unknown{hint} Known: {', '.join(choices)}")
