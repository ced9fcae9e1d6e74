"""Invalid input of adapters, and how faults of environments are reported."""

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Sequence, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from scripted import Passing, Script, actions_for, makers
from surefoot.algorithms.collect import Collector
from surefoot.core.spaces import ActionSpec, action_spec
from surefoot.envs.gym.adapters import EnvironmentFault, adapt


class Broken(Script):
    """Faulty in its second step; `how` changes what the step gives."""

    how: ClassVar[Any] = None

    def step(self, action):
        values = super().step(action)
        return type(self).how(values) if self.t == 2 and self.name == 1 else values


def break_with(how, vector=False):
    kind = type("Broken", (Broken,), {"how": staticmethod(how)})
    fns = [lambda: kind(0, (5,)), lambda: kind(1, (5,))]
    source = SyncVectorEnv(fns, autoreset_mode=AutoresetMode.SAME_STEP)
    env = adapt(Passing(source) if vector else source)
    return env, Collector(env, [0], 2)


def collect(collector):
    """Two steps, of which the second is faulty."""
    actions = ActionSpec(1, low=(-1.0,), high=(1.0,))
    collector.collect(lambda now: np.zeros((1, 2, 1), np.float32), actions, 2)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda v: (v[0] * [1, np.nan, 1], *v[1:]), r"observation is .*nan"),
        (lambda v: (v[0], np.inf, *v[2:]), "reward is inf"),
        (lambda v: (*v[:4], {"cost": np.nan}), "cost is .*nan"),
        (
            lambda v: (*v[:4], {"speed": 1.0, "heat": 2.0}),
            r"info has no 'cost', but .*'heat', .*'speed'",
        ),
    ],
)
def test_faults_of_single_and_vector_environments(how, message, vector):
    with pytest.raises(EnvironmentFault, match="step.*" + message) as caught:
        collect(break_with(how, vector)[1])
    assert "environment 1" in str(caught.value)


def raising(values):
    raise ZeroDivisionError("the motor stalled")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda v: (v[0][:2], *v[1:]), r"observation has shape \(2,\), not \(3,\)"),
        (lambda v: ("far", *v[1:]), "ValueError: .*'far'"),
        (lambda v: (v[0], np.ones(2), *v[2:]), r"reward has shape \(2,\), not \(\)"),
        (lambda v: (v[0], *v[2:]), "step returned 4 values; Gymnasium's API has five"),
        (lambda v: None, "step returned None; Gymnasium's API has five"),
        (lambda v: (*v[:4], None), "TypeError"),
        (raising, "ZeroDivisionError: the motor stalled"),
    ],
)
def test_faults_of_single_environments(how, message):
    env, collector = break_with(how)
    where = "environment 1, step 2 of episode 1: .*"
    with pytest.raises(EnvironmentFault, match=where + message) as caught:
        collect(collector)
    if how is raising:
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(RuntimeError, match="reset must be called"):
        env.step(np.zeros((2, 1)))


def test_faults_name_resets():
    class Blind(Script):
        def _obs(self):
            return np.zeros(2 if self.episode else 3)

    env = adapt(Blind(0, (1,)))
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"0, reset into episode 2: .*shape \(2,\)"):
        env.step(np.zeros((1, 1)))


def test_wrong_shape_of_a_vector_env():
    class Short(Passing):
        def step(self, actions):
            obs, reward, *rest = self.env.step(actions)
            return obs, reward[:2], *rest

    env = adapt(Short(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP)))
    collector, actions = Collector(env, [0], 3), action_spec(env.single_action_space)
    with pytest.raises(EnvironmentFault, match=r"step 7 .*: reward has shape \(2,\), not \(3,\)"):
        collector.collect(lambda now: actions_for(0)[None], actions, 1, t=7)


def test_unsupported_spaces_and_arguments():
    def with_spaces(**spaces):
        env = Script(0, (3,))
        for name, space in spaces.items():
            setattr(env, name, space)
        return env

    for space in (Tuple([Discrete(2), Box(0, 1)]), Box(0, 9, (2,), np.int32)):
        with pytest.raises(ValueError, match=space.__class__.__name__ + ".* not supported"):
            adapt(with_spaces(action_space=space))
    with pytest.raises(ValueError, match=r"Sequence.* cannot be flattened"):
        adapt(with_spaces(observation_space=Sequence(Box(0, 1))))
    same = Script(0, (3,))
    for args, match in [
        ((same, {"num_envs": 2}), "num_envs=2"),
        ((SyncVectorEnv(makers()), {"num_envs": 2}), "num_envs=2.* has 3"),
        ((Script, {"num_envs": 0}), "num_envs=0"),
        ((lambda: same, {"num_envs": 2}), "same environment twice"),
        ((lambda: 3, {}), r"env\(\) returned 3"),
        ((7, {}), "env=7"),
        ((same, {"cost": []}), r"cost=\[\]"),
        ((same, {"cost": ["a", "b"], "cost_names": ["a"]}), "cost_names"),
        ((same, {"cost": ["a", "a"]}), "distinct"),
    ]:
        with pytest.raises(ValueError, match=match):
            adapt(args[0], **args[1])
    with pytest.raises(ValueError, match=r"seed=\[1, 2\]"):
        adapt(same, seed=[1, 2]).reset()
