"""Presets, and settings on top of them: what a run is trained with."""

import json
from dataclasses import replace

import numpy as np
import pytest

import surefoot
from in_memory import new_training
from surefoot.algorithms.algorithm import ALGORITHMS, Shape, algorithm_of
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.cpo import CPOConfig
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.algorithms.trpo_lagrangian import TRPOLagrangianConfig
from surefoot.core.config import flat
from surefoot.envs.gym.adapters import adapt
from surefoot.envs.task import TASKS, find_task
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.setup import limits_by_name, new_setup
from surefoot.world.black_box import BlackBox
from surefoot.world.planner import PlannerConfig
from toys import Drift, two_costs

OWN = "a user's own"


def preset(algorithm, task, device="cpu", name="default", shape=None):
    chosen = find_task(Drift) if task == OWN else TASKS[task]
    return ALGORITHMS[algorithm].preset(name, chosen, device, shape)


MBPPO = {
    # task: steps, episodes, rollouts, passes, beta, final_rate, epochs to learn first
    ("PointGoal", "cpu"): (13_500, 3, 576, 100, 0.65, 0.08, 0),
    ("PointGoal", "gpu"): (24_000, 2, 2040, 300, 0.65, 1.0, 0),
    ("CarGoal", "cpu"): (30_000, 4, 576, 100, 0.7, 0.08, 1),
    ("CarGoal", "gpu"): (30_000, 4, 2040, 300, 0.7, 1.0, 0),
    ("DoggoGoal", "cpu"): (396_000, 12, 768, 60, 0.85, 0.3, 16),
    ("DoggoGoalOpenAI", "gpu"): (396_000, 12, 1536, 100, 0.85, 0.3, 16),
    ("RCCar", "cpu"): (6_000, 3, 576, 100, 0.8, 0.08, 1),
    ("RCCar", "gpu"): (6_000, 3, 2040, 300, 0.65, 1.0, 0),
}


@pytest.mark.parametrize(("task", "device"), MBPPO)
def test_the_default_preset_of_mbppo(task, device):
    c = preset("mbppo-lagrangian", task, device)
    numbers = c.steps, c.episodes, c.rollouts, c.passes, c.beta, c.final_rate, c.learn_first
    assert numbers == MBPPO[task, device]
    assert c.model == "ego"
    doggo, small = task.startswith("Doggo"), device == "cpu"
    rollouts = {"DoggoGoal": (100, 0.0, 0.5), "RCCar": (100, 0.0, 0.0)}
    expected = rollouts.get(task.removesuffix("OpenAI"), (80, 0.25, 0.0))
    assert (c.horizon, c.carry, c.replay_share) == expected
    assert (c.anchor, c.ratio_memory, c.gate, c.real_share) == (True, 0.8, "none", 0.0)
    assert not c.adapt_practice and not c.ppo.normalise_observations
    assert c.ppo.hidden == ((128, 128) if doggo else PPOConfig().hidden)
    assert (c.early_log_std, c.ppo.minimum_log_std) == (-1.0 if doggo else None, -1.6)
    rates = c.ppo.actor_learning_rate, c.ppo.critic_learning_rate
    few = (task, device) == ("PointGoal", "gpu")
    assert rates == ((2.5e-3, 3.5e-3) if small else (1e-3, 2e-3) if few else (5e-4, 1e-3))
    updates = c.ppo.epochs, c.ppo.critic_epochs, c.ppo.minibatches
    assert updates == ((2, 1, 32) if small else (2, 2, 8) if few else (4, 4, 8))
    assert (c.ppo.gae_lambda, c.ppo.clip, c.ppo.kl_stop, c.ppo.scale_costs) == (
        0.97, 0.2, 0.02, True,
    )  # fmt: skip
    assert c.ppo.value_targets == "gae"
    # Without a maximum, any limit can be enforced.
    rule = ("pid", 0.0) if doggo else ("log-pi", 0.5)
    assert (c.multiplier.kind, c.multiplier.initial, c.multiplier.maximum) == (*rule, None)
    gains = c.multiplier.proportional_gain, c.multiplier.integral_gain
    assert gains == ((0.025, 0.00025) if doggo else (0.3, 0.0065 if small else 0.006))
    assert not doggo or c.multiplier.derivative_gain == 0
    networks = c.ensemble.members, c.ensemble.elites, c.ensemble.hidden, c.ensemble.max_steps
    hidden = (64, 64) if small and not doggo else (200,) * 4
    most = 3000 if doggo else 1000 if small else 2000
    assert networks == ((5, 3) if small else (8, 6)) + (hidden, most)


@pytest.mark.parametrize(
    ("shape", "steps", "episodes"),
    [
        (Shape(4, 2, 500), {"cpu": 30_000, "gpu": 30_000}, 2),
        (Shape(4, 2, 200), {"cpu": 12_000, "gpu": 12_000}, 5),
        # Short episodes: ten of them, and a least number of steps.
        (Shape(1, 1, 20), {"cpu": 10_000, "gpu": 10_000}, 10),
        (Shape(17, 6, 1000), {"cpu": 60_000, "gpu": 100_000}, 1),
        (Shape(17, 6, 5000), {"cpu": 100_000, "gpu": 100_000}, 1),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_preset_of_mbppo_follows_an_unknown_environments_shape(shape, steps, episodes, device):
    c = preset("mbppo-lagrangian", OWN, device, shape=shape)
    assert (c.model, c.steps, c.episodes) == ("black-box", steps[device], episodes)
    assert c.ppo.normalise_observations and c.ensemble.variance_weight == 0.5
    assert c.ppo.gamma == pytest.approx(max(0.99, 1 - 3 / shape.episode_steps))
    # On a CPU, a large environment gets a larger model.
    large = shape.observation_size > 4
    assert (c.replay_share, c.early_log_std) == (0.5, -1.0 if large else None)
    lasting = 0.0 if large else max(0.0, 1 - 50 / shape.episode_steps)
    assert c.noise_correlation == pytest.approx(lasting)
    assert (c.ensemble.hidden == (200, 200, 200)) == (large and device == "cpu")
    passes = {"cpu": (100, 80), "gpu": (300, 150)}
    assert c.passes == passes[device][large]
    # Its rollouts are short, and practice stays near the policy of the real episodes.
    assert (c.horizon, c.trust_radius) == ((25, 1.0) if large else (80, None))
    assert (c.recency, c.adapt_practice) == ((4.0, False) if large else (1.0, True))
    assert (c.ensemble.noise, c.ppo.endless_costs) == ((0.5, True) if large else (1.0, False))
    assert c.multiplier.proportional_gain == (1.0 if large else 0.3)
    assert preset("mbppo-lagrangian", OWN, device, "paper", shape) == MBPPOConfig(model="black-box")


def test_the_paper_preset_of_mbppo_is_the_config_itself():
    for task in TASKS:
        for device in ("cpu", "gpu"):
            model = "paper" if "paper" in TASKS[task].models else "black-box"
            expected = MBPPOConfig(model=model)
            assert preset("mbppo-lagrangian", task, device, "paper") == expected
    own = preset("mbppo-lagrangian", OWN, name="paper")
    assert own == MBPPOConfig(model="black-box")
    c = MBPPOConfig()
    assert (c.steps, c.episodes, c.rollouts, c.passes) == (450_000, 13, 378, 30)
    assert (c.horizon, c.beta, c.real_share, c.gate, c.pr_threshold) == (
        80, 0.02, 0.05, "reward", 0.66,
    )  # fmt: skip
    assert (c.ppo.clip, c.ppo.value_targets, c.multiplier.initial) == (0.1, "return", 1.0)
    assert (c.ensemble.members, c.ensemble.elites, c.ensemble.max_steps) == (8, 6, 1000)


def test_the_presets_of_safe_loop():
    paper = preset("safe-loop", "PointGoal", "gpu", "paper")
    assert paper == SafeLoopConfig()
    assert (paper.model, paper.planner.horizon, paper.planner.cost_threshold) == ("paper", 8, 0.0)
    assert (paper.ensemble.members, paper.random_steps, paper.refit_every) == (8, 10_000, 250)
    default = preset("safe-loop", "PointGoal", "gpu")
    assert default.model == "ego" and default.planner.steps == 30
    assert default.planner.cost_threshold == 0.0  # the model knows the cost
    assert (paper.planner.value_weight, default.planner.value_weight) == (1.0, 0.0)
    assert default.sac.initial_temperature == 0.005
    small = preset("safe-loop", "PointGoal")
    assert small.ensemble.hidden == (64, 64) and default.ensemble.hidden == (200,) * 4
    assert small.planner == default.planner and small.random_steps == 250
    assert (small.steps, default.steps, paper.steps) == (15_000, 30_000, 450_000)
    car = preset("safe-loop", "RCCar")
    assert (car.planner.hold, car.planner.steps) == (3, 15)
    own = preset("safe-loop", OWN)
    assert (own.model, own.random_steps) == ("black-box", 2_500)
    assert (own.planner.cost_threshold, own.planner.value_weight) == (0.2, 1.0)
    paper = preset("safe-loop", OWN, name="paper")
    assert paper.planner == PlannerConfig(cost_threshold=0.2) and paper.model == "black-box"


@pytest.mark.parametrize("algorithm", ["ppo-lagrangian", "ppo", "trpo-lagrangian", "cpo", "sac"])
def test_the_presets_of_model_free_algorithms(algorithm):
    """Those of safety-starter-agents; Doggo feels its joints, in epochs twice as long."""
    config = ALGORITHMS[algorithm].config()
    if algorithm == "ppo":
        config = replace(config, constrained=False)
    steps = {} if algorithm == "sac" else {"steps_per_epoch": 60_000}
    longer = replace(config, observation="reference", **steps)
    for task in (*TASKS, OWN):
        if task[-1].isdigit():  # of the family, which brings its own
            continue
        for device in ("cpu", "gpu"):
            doggo = task.startswith("Doggo")
            assert preset(algorithm, task, device) == (longer if doggo else config)
    if algorithm != "sac":
        assert (config.steps, config.steps_per_epoch) == (2_000_000, 30_000)


@pytest.mark.parametrize("algorithm", ["ppo-lagrangian", "ppo", "trpo-lagrangian", "cpo"])
def test_observations_of_unknown_environments_are_scaled(algorithm):
    plain, scaled = (preset(algorithm, OWN, shape=shape) for shape in (None, Shape(3, 1, 20)))
    names = {n for n, x in flat(scaled).items() if x != flat(plain)[n]}
    learner = "ppo" if "ppo" in algorithm else algorithm.split("-")[0]
    assert names == {f"{learner}.normalise_observations"}


def test_an_unknown_preset_is_refused(call):
    """The algorithms without settings of the paper no longer ignore `paper`."""
    for name in ("ppo", "ppo-lagrangian", "trpo-lagrangian", "cpo", "sac"):
        with pytest.raises(ValueError, match=r"preset='paper' is unknown.*Known: default"):
            preset(name, "PointGoal", name="paper")
    with pytest.raises(ValueError, match=r"preset='papr' .*did you mean paper.*default, paper"):
        preset("safe-loop", "PointGoal", name="papr")
    code, _, err = call("train", "PointGoal", "--algorithm", "ppo", "--preset", "paper")
    assert code == 2 and "preset='paper' is unknown" in err and "default" in err


def test_every_algorithm_is_known_by_its_config():
    for name in ALGORITHMS:
        config = preset(name, "PointGoal")
        algorithm = algorithm_of(config)
        assert algorithm.name == name
        assert algorithm.uses_model == hasattr(config, "model") != hasattr(config, "observation")
    doggo = CPOConfig(steps_per_epoch=60_000, observation="reference")
    assert preset("cpo", "DoggoGoal") == doggo
    with pytest.raises(ValueError, match="must be one of CPOConfig"):
        algorithm_of(PPOConfig())


def setup(changes, config=None, algorithm="ppo-lagrangian", source="PointGoal", **more):
    return new_setup(source, algorithm, "default", "cpu", [0], config, changes, {}, **more)


@pytest.mark.parametrize("algorithm", ["ppo-lagrangian", "mbppo-lagrangian"])
@pytest.mark.parametrize("changes", [{"ppo": {"clip": 0.15}}, {"ppo.clip": 0.15}])
def test_nested_settings_keep_the_other_values_of_the_preset(algorithm, changes):
    given = flat(setup(changes, algorithm=algorithm).config)
    expected = flat(replace(preset(algorithm, "PointGoal"), cost_limit=(18.0,)))
    assert expected["ppo.clip"] != 0.15
    assert given == {**expected, "ppo.clip": 0.15}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ppo": {"clop": 0.1}}, "no field 'clop'.*did you mean clip"),
        ({"ppo.clip": 2.0}, "clip ?= ?2.0"),
        ({"pppo.clip": 0.1}, "no field 'pppo'.*did you mean ppo"),
        ({"steps.clip": 0.1}, "steps=2000000 has no fields"),
    ],
)
def test_bad_nested_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        setup(changes)


TINY = {"ppo.hidden": (8,), "ppo.epochs": 1, "ppo.critic_epochs": 1}


def test_a_run_records_its_preset_and_settings(tmp_path):
    options = {"max_episode_steps": 20}
    common = {"task_options": options, "quiet": True, "steps": 40, "steps_per_epoch": 40}
    info_of = lambda run: json.loads((run / "config.json").read_text())
    run = surefoot.train("PointGoal", "ppo", out=tmp_path / "preset", **TINY, **common)
    assert info_of(run)["preset"] == "default" and info_of(run)["config"]["ppo"]["epochs"] == 1
    config = PPOLagrangianConfig(ppo=PPOConfig(hidden=(8,), epochs=1, critic_epochs=1))
    run = surefoot.train("PointGoal", config=config, out=tmp_path / "whole", **common)
    info = info_of(run)
    assert (info["preset"], info["algorithm"]) == ("custom", "ppo-lagrangian")
    assert info["config"]["cost_limit"] == [18.0] and info["cost_limits"] == {"hazards": 18.0}


def test_limits_go_by_name_or_by_order():
    names = ("first", "second")
    assert limits_by_name({"second": 2, "first": 1}, names) == (1.0, 2.0)
    assert limits_by_name([1, 2], names) == limits_by_name((1.0, 2.0), names) == (1.0, 2.0)
    assert limits_by_name(3, names) == (3.0, 3.0)
    for limits, message in (
        ({"first": 1.0}, "no limit for second"),
        ({"first": 1.0, "secnd": 2.0}, "cost_limit='secnd' .*did you mean second"),
        ((1.0, 2.0, 3.0), "must have 2 values, for first, second"),
        ({}, "no limit for first, second"),
    ):
        with pytest.raises(ValueError, match=message):
            limits_by_name(limits, names)


@pytest.mark.parametrize("limit", [(5.0, 7.0), {"second": 7.0, "first": 5.0}])
def test_limits_of_a_run(limit):
    """Given by the user, they replace those of the config."""
    config = TRPOLagrangianConfig(cost_limit=(1.0,))
    made = setup({}, config, "trpo-lagrangian", two_costs, cost_limit=limit)
    assert made.config.cost_limit == (5.0, 7.0)
    assert setup({}, config, "trpo-lagrangian", two_costs).config.cost_limit == (1.0, 1.0)
    with pytest.raises(ValueError, match=r"two_costs has no limit for first, second"):
        setup({}, TRPOLagrangianConfig(), "trpo-lagrangian", two_costs)


def test_limits_by_name_on_the_command_line(call):
    code, _, err = call("train", "PointGoal", "--cost-limit", "hazrds=7", "--quiet")
    assert code == 2 and "cost_limit='hazrds'" in err and "did you mean hazards" in err
    code, _, err = call("train", "PointGoal", "--cost-limit", "hazards=much", "--quiet")
    assert code == 2 and "--cost-limit hazards=much" in err and "NAME=NUMBER" in err


class OfStates(BlackBox):
    """A model that takes true states."""

    takes_observations = False


def test_a_model_of_true_states_needs_an_environment_that_has_them(tmp_path):
    config = replace(preset("mbppo-lagrangian", OWN), cost_limit=(1.0,))
    known = lambda env: OfStates(1)
    with pytest.raises(ValueError, match=r"model=OfStates .*`state\(\)` and `outcome`"):
        surefoot.train(Drift, config=config, known=known, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"model=OfStates .*`state\(\)` and `outcome`"):
        Collector(adapt(Drift, num_envs=1), [0], 1, OfStates(1))


def test_a_problem_is_what_the_environments_are():
    config = PPOLagrangianConfig(cost_limit=(1.0, 2.0), steps_per_epoch=60)
    training = new_training(config, two_costs, seeds=(4, 7))
    problem = training.problem
    assert (problem.seeds, problem.environments, problem.episode_steps) == ((4, 7), 3, 20)
    assert (problem.cost_names, problem.constraints) == (("first", "second"), 2)
    assert problem.observation_size == 1 and problem.actions.size == 1
    assert training.collector.env.num_envs == 6 and training.cost_limits == (1.0, 2.0)
    assert problem.model is None and np.shape(training.totals.violations) == (2,)


def test_a_task_s_own_settings_are_for_its_models():
    """Without them, an environment of the same shape has the same settings."""
    algorithm, shape = ALGORITHMS["mbppo-lagrangian"], Shape(60, 2, 1000)
    of = lambda task, *shapes: algorithm.preset("default", find_task(task), "cpu", *shapes)
    known, unknown = of("PointGoal1"), of("PointGoal1", shape)
    assert (known.learn_first, known.limit_fall, known.multiplier.initial) == (2, 6.0, 2.0)
    assert (known.steps, known.episodes) == (80_000, 4)
    assert unknown == of("HalfCheetahVelocity", shape) and unknown.limit_fall is None
    # Robots with legs learn as DoggoGoal's does.
    rule = lambda config: (config.multiplier, config.learn_first, config.limit_fall, config.beta)
    assert rule(of("AntButton1")) == rule(of("DoggoGoal1")) == rule(of("DoggoGoal"))
