"""What adapters refuse, and how they name the faults of environments."""

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, MultiDiscrete, Sequence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from scripted import F64, Passing, Script, actions_for, makers
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
    env.reset()
    env.step(np.zeros((2, 1)))
    return env


WHERE = "environment 1, step 2 of episode 1: "


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda v: (v[0] * [1, np.nan, 1], *v[1:]), r"observation\[1\] is nan"),
        (lambda v: (v[0], np.inf, *v[2:]), "reward is inf"),
        (lambda v: (*v[:4], {"cost": np.nan}), "cost 'cost' is nan"),
        (lambda v: (*v[:4], {"speed": 1.0, "heat": 2.0}), r"info has no 'cost', but \['.*'speed'"),
    ],
)
def test_faults_of_single_and_vector_environments(how, message, vector):
    env = break_with(how, vector)
    with pytest.raises(EnvironmentFault, match=WHERE + message):
        env.step(np.zeros((2, 1)))
    with pytest.raises(RuntimeError, match="reset must be called"):
        env.step(np.zeros((2, 1)))


def raising(values):
    raise ZeroDivisionError("the motor stalled")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda v: (v[0][:2], *v[1:]), r"observation has shape \(2,\), not \(3,\)"),
        (lambda v: ("far", *v[1:]), "observation 'far' does not fit Box"),
        (lambda v: (v[0], np.ones(2), *v[2:]), r"reward .* has shape \(2,\), not \(\)"),
        (lambda v: (v[0], *v[2:]), "step returned 4 values, not 5"),
        (lambda v: None, "TypeError"),
        (lambda v: (*v[:4], None), "TypeError"),
        (raising, "ZeroDivisionError: the motor stalled"),
    ],
)
def test_faults_of_single_environments(how, message):
    with pytest.raises(EnvironmentFault, match=WHERE + message) as caught:
        break_with(how).step(np.zeros((2, 1)))
    if how is raising:
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_faults_name_parts_and_resets():
    class Blind(Script):
        def __init__(self):
            super().__init__(0, (1,))
            self.observation_space = Dict(
                {"eye": Box(-9, 9, (2, 2), F64), "arm": Box(-9, 9, (1,), F64)}
            )

        def _obs(self):
            return {"eye": np.array([[0, 0], [np.nan if self.episode else 0, 0]]), "arm": [0.0]}

    env = adapt(Blind())
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"0, reset into episode 2: observation\['eye'\]\[1"):
        env.step(np.zeros((1, 1)))


def test_wrong_shape_of_a_vector_env():
    class Short(Passing):
        def step(self, actions):
            obs, reward, *rest = self.env.step(actions)
            return obs, reward[:2], *rest

    env = adapt(Short(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP)))
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"step 1: reward has shape \(2,\), not \(3,\)"):
        env.step(actions_for(0))


def test_unsupported_spaces_and_arguments():
    def with_spaces(**spaces):
        env = Script(0, (3,))
        for name, space in spaces.items():
            setattr(env, name, space)
        return env

    for space in (MultiDiscrete([2, 3]), Box(0, 9, (2,), np.int32)):
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
