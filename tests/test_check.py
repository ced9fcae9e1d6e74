"""`surefoot check` on environments in a user's file, each with one thing to report."""

import json
import sys

import numpy as np
import pytest

import surefoot
from surefoot.use import forecast

FILE = '''
import time

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete


class Clock(gym.Env):
    """Every other step costs 1, every step earns 2; episodes are cut after 10 steps."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)
    max_episode_steps = 10
    length = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.luck = 0, self.np_random.normal()
        return self.observe(), {}

    def observe(self):
        return np.array([self.luck, self.t])

    def step(self, action):
        self.t += 1
        self.luck = self.np_random.normal()
        info = {"cost": float(self.t % 2 == 0)}
        return self.observe(), 2.0, False, self.t == self.length, info


class Saved(Clock):
    def snapshot(self):
        return {"t": np.array(self.t), "luck": np.array(self.luck)}

    def restore(self, state):
        self.t, self.luck = int(state["t"]), float(state["luck"])


class Forgetful(Saved):
    def restore(self, state):
        self.t = 0


class Undeclared(Clock):
    max_episode_steps = None


class Endless(Clock):
    max_episode_steps, length = None, 10**9


class Short(Clock):
    max_episode_steps = 50


class Long(Clock):
    max_episode_steps = 8


class NotANumber(Clock):
    def observe(self):
        return np.array([self.luck, np.nan if self.t == 3 else 0.0])


class BadStart(Clock):
    def observe(self):
        return np.array([np.inf, 0.0])


class BadReward(Clock):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, np.inf if self.t == 7 else 1.0, *rest


class Raises(Clock):
    def step(self, action):
        if self.t == 4:
            raise ZeroDivisionError("the motor stalled")
        return super().step(action)


class NoCost(Clock):
    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {"speed": 1.0}


class Negative(Clock):
    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {"cost": -0.5}


class Unseeded(Clock):
    def observe(self):
        return np.random.normal(size=2)


class Outside(Clock):
    observation_space = Box(-100.0, np.array([100.0, 4.0]), (2,), np.float64)


class Picture(Clock):
    observation_space = Box(0, 255, (64, 64, 3), np.uint8)


class Nested(Clock):
    observation_space = Dict(camera=Box(0, 1, (8, 8, 1)), speed=Box(-1, 1, (1,)))


class Large(Clock):
    observation_space = Box(0, 1, (101, 100))


class Whole(Clock):
    action_space = Box(0, 5, (2,), np.int32)


class Many(Clock):
    action_space = MultiDiscrete([11, 10, 10])


class Needs(Clock):
    def __init__(self):
        raise TypeError("no robot is connected")


class Choice(Clock):
    action_space = Discrete(3)


class Free(Clock):
    action_space = Box(-np.inf, np.inf, (1,), np.float64)


class Scaled(Clock):
    observation_space = Box(-np.inf, np.inf, (4,), np.float64)
    action_space = Box(np.array([-1e4, -1e-5]), np.array([1e4, 1e-5]), dtype=np.float64)

    def observe(self):
        return np.array([self.luck, 1e6 * self.luck, 1e-6 * self.luck, 3.0])


class Slow(Clock):
    def step(self, action):
        time.sleep(0.05)
        return super().step(action)


def rising(obs, action, next_obs):
    return abs(next_obs[:, 0] - obs[:, 0]) + abs(action[:, 0])


def in_numpy(obs, action, next_obs):
    return np.maximum(obs[:, 0], 0.0)
'''
PACKAGE = 'import gymnasium\n\ngymnasium.register("Clock-v7", "mine:Clock")\n'


@pytest.fixture(scope="module", autouse=True)
def file(tmp_path_factory):
    """The folder of the user's file, `mine.py`, which is the working directory."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "mine.py").write_text(FILE)
    (folder / "clocks.py").write_text(PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield folder
    for name in ("mine", "clocks"):
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def no_timing(monkeypatch):
    """Learning is not timed here, but in test_forecast.py."""
    monkeypatch.setattr(forecast, "learning_seconds", lambda config, problem: 150.0)


@pytest.fixture
def report(call):
    """Exit code and report of `surefoot check mine.py:NAME …`."""

    def report(name, *words):
        code, out, err = call("check", f"mine.py:{name}", "--steps=25", "--json", *words)
        assert not err
        return code, json.loads(out)

    return report


def test_the_numbers_of_a_sound_environment(report):
    code, result = report("Clock", "--cost-limit", "4")
    assert code == 0 and result["problems"] == [] and result["steps"] == 25
    assert result["observation"]["size"] == 2 and result["action"]["size"] == 1
    episodes = result["episodes"]
    assert (episodes["finished"], episodes["terminated"], episodes["truncated"]) == (2, 0, 2)
    assert episodes["steps"] == {"mean": 10.0, "std": 0.0, "min": 10.0, "max": 10.0}
    assert result["reward"]["step"]["mean"] == 2.0 and result["reward"]["episode"]["mean"] == 20.0
    cost = result["costs"]["cost"]
    assert cost["binary"] and cost["share_of_steps"] == 12 / 25 and cost["limit"] == 4.0
    assert cost["episode"] == {"mean": 5.0, "std": 0.0, "min": 5.0, "max": 5.0}
    assert result["deterministic"] and not result["snapshot"]
    assert set(result["algorithms"].values()) == {None} and len(result["algorithms"]) >= 7
    settings = result["settings"]
    assert settings["model"] == "black-box" and settings["episodes"] >= 1
    rate = result["steps_per_second"]
    assert result["environment_seconds"] == pytest.approx(settings["steps"] / rate)
    assert result["learning_seconds"] == 150.0


def test_what_is_printed(call):
    code, out, _ = call("check", "mine.py:Clock", "--steps=25", "--cost-limit=4")
    assert code == 0 and out.startswith("Clock: 25 random steps in ")
    for line in (
        "2 ended after 10 to 10 steps, mean 10: 0 terminated, 2 at a time limit; time limit 10",
        "0.48 ± 0.5 per step (0 to 1); 5 ± 0 per episode; 0 or 1, at 48.0% of steps; random "
        "episodes cost 1.2 times the limit of 4",
        "of the environment and 2 min of learning for ",
        "--algorithm sac-lagrangian, which learns from real steps alone",
        "note: the reward was 2 in every step",
    ):
        assert line in out
    assert out.endswith("ready to train\n")
    code, out, _ = call("check", "mine.py:Undeclared", "--steps=25")
    assert code == 1 and out.endswith("training is not possible yet\n")
    assert "problem: no time limit is declared; the longest episode ended itself after 10" in out
    code, picture, _ = call("check", "mine.py:Picture")
    assert code == 1 and picture.startswith("Picture: 0 random steps")
    assert "problem: observation space Box(0, 255, (64, 64, 3), uint8) holds an image" in picture
    assert "  do: give the environment an attribute max_episode_steps = 10, or wrap it in " in out


@pytest.mark.parametrize(
    ("name", "stops", "problem", "do"),
    [
        ("Undeclared", True, "ended itself after 10 steps", "TimeLimit(env, 10)"),
        ("Endless", True, "had not ended after 25 steps", "TimeLimit(env, N)"),
        ("Short", False, "cut after 10 steps, though max_episode_steps=50", "= 10"),
        ("Long", False, "went on for 10 steps, though max_episode_steps=8", "truncated=True"),
        ("NotANumber", True, "observation 1 is nan after 3 random steps", "finite numbers"),
        ("BadStart", True, "observation 0 is inf after reset", "finite numbers"),
        ("BadReward", True, "reward is inf in random step 7", "finite numbers"),
        ("Raises", True, "step 5 of episode 1: ZeroDivisionError: the motor", "correct"),
        ("NoCost", True, "costs are missing: info has no 'cost', but 'speed'", "--cost info:"),
        ("Negative", False, "cost is negative, down to -0.5", "at least 0"),
        ("Unseeded", False, "differ from step 1 on", "self.np_random"),
        ("Outside", False, "number 1 goes from 1 to 10, declared are -100 to 4", "widen"),
        ("Forgetful", False, "snapshot and restore fail", "next steps depend on"),
        ("Picture", True, "holds an image", "encoder"),
        ("Nested", True, "holds an image", "FlattenObservation"),
        ("Large", True, "has 10,100 numbers", "encoder"),
        ("Whole", True, "action space Box(0, 5, (2,), int32) is not supported", "Box of floats"),
        ("Many", True, "has 1,100 combinations, but at most 1,000", "fewer choices"),
        ("Needs", True, "TypeError: no robot is connected", "check again"),
    ],
)
def test_a_problem_is_reported_with_what_to_do(report, name, stops, problem, do):
    code, result = report(name)
    (found,) = [one for one in result["problems"] if problem in one["problem"]]
    assert found["stops"] == stops and do in found["do"]
    assert code == stops
    others = [one["problem"] for one in result["problems"] if one is not found]
    assert all("observation" in other for other in others), "only NaN may show in several places"


def test_everything_else_is_checked_without_a_cost(report):
    code, result = report("NoCost", "--cost-limit=3")
    assert code == 1 and result["costs"] == {} and result["algorithms"]["cpo"] is None
    assert result["deterministic"] and result["reward"]["episode"]["mean"] == 20.0
    code, result = report("NoCost", "--cost=info:speed", "--cost-limit=3")
    assert code == 0 and result["costs"]["speed"]["binary"]


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("Clock", ["cost has no limit yet", "Random actions cost 5 per episode", "reward was 2"]),
        (
            "Scaled",
            [
                "observation 1 is huge, up to",
                "observation 2 hardly changes, by",
                "observation 3 never changed",
                "action 0 has a range of up to 20000",
                "action 1 has a range of only 2e-05",
            ],
        ),
        ("Free", ["action 0 has no bounds"]),
    ],
)
def test_notes(report, name, notes):
    code, result = report(name)
    assert code == 0
    for note in notes:
        assert sum(note in one for one in result["notes"]) == 1, result["notes"]


def test_limits_are_compared_with_what_is_possible(report):
    _, result = report("Clock", "--cost-limit=10")
    assert any("can never be exceeded" in note for note in result["notes"])
    _, result = report("Clock", "--cost-limit=0")
    assert result["costs"]["cost"]["limit"] == 0.0
    code, result = report("Clock", "--cost-limit=heat=4")
    assert code == 1 and "'heat' is not a constraint" in result["problems"][0]["problem"]


@pytest.mark.parametrize("name", ["Choice", "Free"])
def test_algorithms_that_do_not_fit_are_explained(report, name):
    code, result = report(name, "--cost-limit=4")
    fits = result["algorithms"]
    assert code == 0 and fits["mbppo-lagrangian"] is None and fits["cpo"] is None
    for other in ("sac", "sac-lagrangian", "safe-loop"):
        assert "SAC-Lagrangian and safe-LOOP need" in fits[other]


def test_exact_snapshots_are_recognised(report):
    assert report("Saved")[1]["snapshot"]


@pytest.mark.parametrize(("name", "known"), [("rising", True), ("in_numpy", False)])
def test_whether_the_cost_function_can_be_known(report, name, known):
    code, result = report("Clock", "--cost", f"mine.py:{name}", "--cost-limit=9")
    assert code == 0 and result["known_cost"] == known
    assert not result["costs"]["cost"]["binary"]
    refused = [note for note in result["notes"] if "in_numpy cannot be traced by JAX" in note]
    assert len(refused) == (not known)


def test_the_time_is_limited():
    from mine import Slow

    result = surefoot.check(Slow, seconds=0.2)
    assert 1 <= result["steps"] <= 5 and result["episodes"]["finished"] == 0
    assert result["reward"]["episode"] == {"mean": 20.0, "estimated": True}


def test_a_python_callable_and_an_id_give_the_same():
    import mine

    options = {"cost": mine.rising, "cost_limit": 3, "steps": 25}
    by_class = surefoot.check(mine.Clock, **options)
    by_id = surefoot.check("clocks:Clock-v7", **{**options, "cost": "mine.py:rising"})
    for name in ("observation", "action", "episodes", "reward", "costs", "known_cost"):
        assert by_class[name] == by_id[name], name
    assert by_class["costs"]["cost"]["limit"] == 3.0 and by_class["known_cost"]
    assert json.dumps(by_class)  # plain values


def test_a_built_in_task(call):
    code, out, _ = call("check", "RCCar", "--steps=30", "--env", "max_episode_steps=20", "--json")
    result = json.loads(out)
    assert code == 0 and result["snapshot"] and result["deterministic"]
    assert result["settings"]["model"] == "ego"
    assert result["episodes"]["max_episode_steps"] == 20 and not result["problems"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine.py:Clok"], "did you mean Clock"),
        (["mine.py:Clock", "--steps=0"], "steps=0 must be at least 1"),
        (["mine.py:Clock", "--seconds=-1"], "seconds=-1.0 must be above 0"),
        (["RCCar", "--cost=info:cost"], "RCCar has its own costs"),
        (["mine.py:Clock", "--env", "x"], "must be NAME=VALUE"),
    ],
)
def test_what_was_typed_wrongly_ends_with_code_2(call, words, message):
    code, _, err = call("check", *words)
    assert code == 2 and message in " ".join(err.split())


def test_steps_are_repeated_with_the_same_actions():
    """The seed decides about the steps that are taken."""
    import mine

    first, again, other = (surefoot.check(mine.Clock, steps=9, seed=s) for s in (1, 1, 2))
    assert first["observation"] == again["observation"] != other["observation"]
    assert np.isfinite(first["observation"]["from"])
