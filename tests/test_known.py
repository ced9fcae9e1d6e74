"""Parts of an environment that a user knows: given once, checked, and recorded with the run."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import surefoot
from harness import TINY, nothing_more
from surefoot.core.spaces import action_spec
from surefoot.report.command import repeat_command
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import read_info
from surefoot.runs.known import read_known, to_words
from surefoot.runs.setup import new_setup
from untrained import untrained_run

FILE = '''
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from surefoot.world.black_box import BlackBox

SPACES = {
    "box": Box(np.array([-1.0, -2.0]), np.array([3.0, 2.0]), dtype=np.float64),
    "discrete": Discrete(3, start=2),
    "multi-discrete": MultiDiscrete([3, 2], start=[1, -1]),
    "multi-binary": MultiBinary(2),
}
NUMBER = 7


class Cart(gym.Env):
    """Position and speed; the action's first number pushes. Ends at the wall."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    max_episode_steps = 5

    def __init__(self, actions="box"):
        self.action_space = SPACES[actions]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 2)
        self.t = 0
        return self.state.copy(), {}

    def step(self, action):
        assert action in self.action_space
        before, push = self.state, np.ravel(action)
        self.state = before + 0.3 * np.array([before[1], push[0]])
        self.t += 1
        rows = [x[None] for x in (before, push if push.size > 1 else push[0], self.state)]
        info = {"cost": float(cost(*rows)[0])}
        ends = bool(ended(*rows)[0]), self.t == self.max_episode_steps
        return self.state.copy(), float(reward(*rows)[0]), *ends, info


def pushes(action):
    return action if action.ndim == 1 else action.sum(-1)


def cost(obs, action, next_obs):
    return abs(next_obs[:, 1]) + 2.0 * pushes(action)


def reward(obs, action, next_obs):
    return next_obs[:, 0] - obs[:, 0] - pushes(action)


def ended(obs, action, next_obs):
    return next_obs[:, 0] > 1.0


def starts(key, n):
    return jax.random.uniform(key, (n, 2), minval=-1.0)


def model(env):
    return BlackBox(2, reward_fn=lambda s, a, t: t[0] - s[0] - a.sum())


def half(obs, action, next_obs):
    return 0.5 * reward(obs, action, next_obs)


def in_numpy(obs, action, next_obs):
    return np.abs(next_obs[:, 1])


def of_one_state(obs, action, next_obs):
    return next_obs[1] + 0.0


def centred(obs, action, next_obs):
    return next_obs[:, 1] - next_obs[:, 1].mean()


def branching(obs, action, next_obs):
    return obs[:, 0] if obs[0, 0] > 0 else obs[:, 1]


def one_start(key, n):
    return jnp.zeros(2)
'''
CONFIG = replace(TINY["mbppo-lagrangian"], model="black-box", steps=10, cost_limit=())


@pytest.fixture
def file(tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.py").write_text(FILE)
    monkeypatch.chdir(folder)
    return folder / "mine.py"


def setup_with(known, config=CONFIG, cost="mine.py:cost", task="mine.py:Cart", **options):
    algorithm = None if config is not None else "ppo-lagrangian"
    return new_setup(
        task, algorithm, "default", "cpu", [0], config, {}, options, cost, 5.0, known=known
    )


ALL = (
    "cost",
    "reward=mine.py:reward",
    "termination=mine.py:ended",
    "initial_states=mine.py:starts",
)


@pytest.mark.parametrize("actions", ["box", "discrete", "multi-discrete", "multi-binary"])
def test_the_model_computes_what_the_environment_does(file, actions):
    """Whatever the actions are, and however the model encodes them."""
    setup = setup_with(ALL, kwargs={"actions": actions})
    assert setup.notes == ()
    env = setup.make_envs(64)
    model, spec = setup.model(env), action_spec(env.single_action_space)
    assert model.known == ("initial states", "reward", "cost", "termination")
    assert (model.target_size, model.binary_size) == (2, 0)
    obs, _ = env.reset(seed=0)
    actions = env.action_space.sample()
    after, reward, terminated, _, info = env.step(actions)
    after = np.where(terminated[:, None], info.get("final_obs", after), after)
    assert 0 < terminated.sum() < 64 and len(np.unique(info["cost"])) > 32
    array = lambda x: jnp.asarray(x, jnp.float32)
    bounds = (jnp.full(2, -jnp.inf), jnp.full(2, jnp.inf))
    advance = jax.vmap(model.advance, (0, 0, 0, 0, None))
    encoded, nothing = spec.encode(jnp.asarray(actions)), jnp.zeros((64, 2, 0))
    outcome = advance(array(obs), encoded, array(after - obs), nothing, bounds)
    for imagined, real in zip(outcome, (after, reward, info["cost"], terminated), strict=True):
        np.testing.assert_allclose(imagined, real, rtol=1e-4, atol=1e-5)
    starts = model.initial_records(jax.random.key(0), 100)
    assert starts.shape == (100, 2) and abs(starts).max() <= 1


def test_nothing_is_known_unless_it_is_asked_for(file):
    assert setup_with(None).model(surefoot.make("mine.py:Cart")).known == ()


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (("reward=mine.py:in_numpy",), "known reward: in_numpy cannot be traced by JAX .*numpy"),
        (("reward=mine.py:branching",), "branching cannot be traced by JAX"),
        (("reward=mine.py:of_one_state",), r"known reward: .* shape \(2,\) for 160 steps"),
        (("reward=mine.py:centred",), "under JAX and .* row by row"),
        (("termination=mine.py:model",), "model cannot be traced"),
        (("initial_states=mine.py:one_start",), r"not \(3, 2\)"),
        (("initial_states=mine.py:cost",), "must take .key, n."),
        (("reward=mine.py:NUMBER",), "is a int, not a function"),
        (("reward=mine.py:rewrad",), "did you mean reward"),
        (("reward",), "known='reward' must name its function, as in reward=file.py:function"),
        (("costs",), "known='costs' is unknown .did you mean cost"),
        ({"reward": 3}, r"known\['reward'\]=3 must be a function"),
        (7, "known=7 must be"),
        ({"model": lambda env: env, "cost": lambda o, a, n: o}, "leaves nothing else"),
    ],
)
def test_what_cannot_be_known_is_named(file, known, message):
    with pytest.raises(ValueError, match=message):
        setup_with(known)


def test_parts_that_would_be_ignored_are_refused(file):
    with pytest.raises(ValueError, match="ppo-lagrangian learns no model; leave it out"):
        setup_with(("cost",), config=None)
    with pytest.raises(ValueError, match="cost is not a function"):
        setup_with(("cost",), cost="info:cost")
    with pytest.raises(ValueError, match="must go with model='black-box'; model='ego' of RCCar"):
        setup_with({"reward": lambda o, a, n: 0}, replace(CONFIG, model="ego"), None, "RCCar")


def test_a_function_that_differs_from_the_environment_is_noted(file):
    (note,) = setup_with({"reward": "mine.py:half", "cost": "mine.py:cost"}).notes
    assert "known reward differs from the environment's in " in note and "of 32 random" in note


def test_words_and_parts(file):
    parts = read_known(ALL)
    assert list(parts) == ["cost", "reward", "termination", "initial states"]
    assert to_words(parts)[:2] == ["cost", f"reward={file}:reward"]
    assert read_known(to_words(parts)) == parts
    assert to_words(read_known({"cost": lambda *batch: 0})) == ["cost="]
    assert to_words(read_known({"cost": np.hypot})) == ["cost=numpy:hypot"]
    assert to_words(read_known(lambda env: None)) == ["model="]
    assert read_known("cost") == read_known(["cost"]) and read_known(None) == {}


WORDS = [
    "--steps=10", "--episodes=2", "--horizon=5", "--rollouts=6", "--passes=1", "--cost-limit=1",
    "--ensemble.members=3", "--ensemble.elites=3", "--ensemble.hidden", "8",
    "--ensemble.max-steps=10", "--ppo.hidden", "8", "--ppo.epochs=1", "--ppo.critic-epochs=1",
    "--ppo.minibatches=1", "--quiet",
]  # fmt: skip


@pytest.mark.slow
def test_a_run_with_known_parts_is_used_from_its_folder(call, file, tmp_path, monkeypatch):
    out = tmp_path / "run"
    known = ["--known", "cost", "reward=mine.py:half"]
    code, _, err = call(
        "train", "mine.py:Cart", "--cost=mine.py:cost", "--out", str(out), *WORDS, *known
    )
    assert code == 0, err
    info = RunFolder(out).read_json("config.json")
    assert info["known"] == ["reward", "cost"]
    assert info["known_from"] == ["cost", f"reward={file}:half"]
    assert "the known reward differs from the environment's" in (out / "log.txt").read_text()
    info = replace(read_info(RunFolder(out)), task="Pendulum-v1")
    assert repeat_command(info).endswith(f"--known cost reward={file}:half")
    monkeypatch.chdir(tmp_path)  # the record holds from everywhere
    assert call("resume", str(out), "--steps=20", "--quiet")[0] == 0
    code, text, err = call("diagnose", str(out), "--episodes=2", "--json")
    assert code == 0, err
    assert json.loads(text)["outputs"] == ["observation 0", "observation 1"]
    code, text, err = call("evaluate", str(out), "--episodes=1", "--plan=filter", "--json")
    assert code == 0 and json.loads(text)["plan"]["planner"]["cost_threshold"] == 0.0, err
    shutil.move(file, file.with_name("other.py"))
    code, _, err = call("diagnose", str(out))
    assert code == 2 and "mine.py cannot be imported" in err


def test_python_functions_are_asked_for_again(file, tmp_path):
    cost = lambda obs, action, next_obs: abs(next_obs[:, 1])
    given = {"known": {"cost": cost, "reward": "mine.py:half"}, "cost": cost}
    run = untrained_run(tmp_path / "run", "mine.py:Cart", options={}, **given)
    assert surefoot.diagnose(run, 2, **given)["known"] == ["reward", "cost"]
    with pytest.raises(ValueError, match="Python function as cost: pass that function as cost"):
        surefoot.diagnose(run)
    with pytest.raises(ValueError, match="the run's cost is a Python function; pass known as"):
        surefoot.diagnose(run, cost=cost)
    with pytest.raises(ValueError, match=r"knows \['reward', 'cost'\], not \['cost'\]"):
        surefoot.resume(run, cost=cost, known=("cost",), quiet=True)


@pytest.mark.parametrize("function", ["cost", "known"])
def test_a_run_with_python_functions_records_that(file, tmp_path, function, monkeypatch):
    given = {"known": "cost", "cost": "mine.py:cost", function: lambda *batches: batches[2][:, 1]}
    if function == "known":
        given["known"] = {"cost": given["known"]}
    monkeypatch.setattr("surefoot.runs.train.drive", nothing_more)
    with pytest.raises(ValueError, match="far enough"):
        surefoot.train("mine.py:Cart", config=CONFIG, cost_limit=1, out=tmp_path / "run", **given)
    info = read_info(RunFolder(tmp_path / "run"))
    assert info.known == ["cost"] and info.task == f"{file}:Cart"
    assert info.known_from == ["cost" if function == "cost" else "cost="]
    assert info.task_options["cost"] == ("" if function == "cost" else f"{file}:cost")
    assert repeat_command(info) == info.command


@pytest.mark.parametrize(
    "algorithm",
    [
        "ppo-lagrangian",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mbppo-lagrangian", "trpo-lagrangian", "cpo", "ppo")
        ),
    ],
)
def test_multi_discrete_actions_are_trained_on(file, tmp_path, algorithm):
    config, known = replace(TINY[algorithm], steps=10, cost_limit=()), ()
    if algorithm == "mbppo-lagrangian":
        config, known = CONFIG, ("cost",)
    options = {"kwargs": {"actions": "multi-discrete"}}
    run = surefoot.train(
        "mine.py:Cart", config=config, cost="mine.py:cost", cost_limit=1.0, out=tmp_path / "run",
        task_options=options, known=known, quiet=True,
    )  # fmt: skip
    policy = surefoot.load(run)
    assert policy.kind == "categorical" and policy.actions == 6
    assert surefoot.evaluate(run, 2)["episodes"] == 2


DOCUMENTED = (Path(__file__).parents[1] / "docs" / "own_environment.md").read_text()


@pytest.mark.slow
def test_the_documented_example(call, tmp_path, monkeypatch):
    """Every command of the page, up to the first epoch; functions agree with the environment."""
    (tmp_path / "cart.py").write_text(DOCUMENTED.partition("```python\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("surefoot.runs.train.drive", nothing_more)
    commands = [
        line.split()[1:] for line in DOCUMENTED.splitlines() if line[:13] == "    surefoot "
    ]
    assert [command[0] for command in commands] == ["check", *["train"] * 6]
    for i, (name, *words) in enumerate(commands):
        out = [] if name == "check" else ["--out", f"run{i}"]
        code, text, err = call(name, *words, *out)
        if name == "check":
            assert code == 0 and "known cost   possible" in text
            continue
        assert "far enough" in err
        known = RunFolder(tmp_path / out[1]).read_json("config.json")["known_from"]
        assert len(known) == len(words[words.index("--known") + 1 :] if "--known" in words else ())
    every = ("cost", "reward=cart.py:progress", "termination=cart.py:burnt")
    assert setup_with(every, cost="cart.py:heat", task="cart.py:WarmCart").notes == ()
