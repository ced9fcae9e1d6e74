"""Gymnasium's interfaces to the tasks."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import surefoot
from surefoot.envs.task import BUILTIN, TASKS


def test_all_tasks_are_registered():
    assert set(BUILTIN) == set(TASKS)
    for name in BUILTIN:
        assert f"surefoot/{name}-v0" in gymnasium.registry


# Of the tasks that differ only in robot and level, one each.
NAMES = [name for name in BUILTIN if not name[-1].isdigit()]
NAMES += ["PointGoal1", "CarButton2", "DoggoPush1", "RacecarCircle2", "AntRun0"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's remarks on unbounded spaces
def test_gymnasiums_own_checker(name):
    env = gymnasium.make(f"surefoot/{name}-v0", render_mode="rgb_array").unwrapped
    check_env(env)


def test_make_vec():
    env = gymnasium.make_vec("surefoot/PointGoal-v0", num_envs=4, hazards=3)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4, 44) and env.unwrapped.config.hazards == 3
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert reward.shape == terminated.shape == truncated.shape == (4,)
    assert info["cost"].shape == (4, 1)
    assert reward.dtype == np.float64 and info["cost"].dtype == np.float64


def test_a_single_environment_ends_without_a_reset():
    env = gymnasium.make("surefoot/PointGoal-v0", max_episode_steps=None)
    many = surefoot.make("PointGoal", num_envs=2, seed=4)
    obs, _ = env.reset(seed=4)
    obs_many, _ = many.reset()
    np.testing.assert_array_equal(obs, obs_many[0])
    action = np.array([0.3, 0.1], np.float32)
    for t in range(750):
        obs, _, terminated, truncated, info = env.step(action)
        obs_many, _, _, _, info_many = many.step(np.tile(action, (2, 1)))
        assert isinstance(info["cost"], float) and info["cost"] == info_many["cost"][0, 0]
        assert info["cost_hazards"] == info["cost"]
        assert truncated == (t == 749) and not terminated
    np.testing.assert_array_equal(obs, info_many["final_obs"][0])
    np.testing.assert_array_less(1e-3, np.abs(obs - obs_many[0]).max())


def test_importing_surefoot_stays_light():
    import subprocess
    import sys

    code = "import surefoot, sys; print('jax' in sys.modules, 'mujoco' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
