"""How far a model can be believed: against numpy loops, for models whose errors are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from linear_world import ACTIONS, PUSH, REWARD, TASK_MODEL, TURN, cost_of, model, system
from surefoot.algorithms.collect import Experience
from surefoot.core.spaces import ActionSpec
from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.goal_model import EgoGoalModel, PaperGoalModel
from surefoot.envs.rc_car.env import RCCarConfig
from surefoot.envs.rc_car.model import RCCarModel
from surefoot.use.diagnose import real_steps, steps_shown
from surefoot.world.black_box import BlackBox
from surefoot.world.diagnostics import Diagnostic, one_step, rollout_rmse, segments
from surefoot.world.imagination import LearnedWorld, replay
from toys import linear_ensemble

OBSERVATION = {EgoGoalModel: "ego", PaperGoalModel: "paper"}

# One step ahead


def noisy_steps(std: float, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    targets = x @ system()
    targets[:, :4] += std * rng.normal(size=(n, 4))
    targets[:, 4] = 1.0  # every step costs
    return x, targets


def test_a_perfect_model_is_calibrated():
    inputs, targets = noisy_steps(0.1)
    result = jax.jit(one_step)(model(system(), std=0.1), jnp.asarray(inputs), jnp.asarray(targets))
    error = lambda p: 4 * np.sqrt(p * (1 - p) / len(inputs))
    for level, inside in zip((0.5, 0.9, 0.95), result.calibration.coverage, strict=True):
        np.testing.assert_allclose(inside, np.full(4, level), atol=error(level))
    np.testing.assert_allclose(result.calibration.chi2, np.ones(4), atol=4 * np.sqrt(2 / 4000))
    np.testing.assert_allclose(result.rmse, np.full(4, 0.1), rtol=0.05)


def test_a_model_that_is_too_sure_shows_it():
    inputs, targets = noisy_steps(0.1)
    sure, unsure = (
        jax.jit(one_step)(
            model(system(), std=std), jnp.asarray(inputs), jnp.asarray(targets)
        ).calibration
        for std in (0.05, 0.2)
    )
    np.testing.assert_allclose(sure.chi2, np.full(4, 4.0), rtol=0.1)
    np.testing.assert_allclose(unsure.chi2, np.full(4, 0.25), rtol=0.1)
    # |z| < 0.674 * 0.05 / 0.1 has probability 0.264.
    np.testing.assert_allclose(sure.coverage[0], np.full(4, 0.264), atol=0.03)
    assert (np.asarray(unsure.coverage[0]) > 0.7).all()


def test_errors_and_losses_of_the_elites_by_hand():
    """Three members of which two are elite; a Gaussian output and a binary one."""
    matrices = np.array([[[1.0, 0.0]], [[50.0, 50.0]], [[3.0, 2.0]]])
    three = linear_ensemble(matrices, np.zeros((3, 2)), 1, std=0.5, elites=(2, 0))
    # The model works in units of the data's spread: outputs are multiplied by it.
    three = eqx.tree_at(lambda e: e.target_std, three, jnp.array([2.0]))
    x, y, label = np.array([1.0, -2.0]), np.array([3.0, -5.0]), np.array([1.0, 0.0])
    result = jax.jit(one_step)(
        three, jnp.asarray(x)[:, None], jnp.stack([jnp.array(y), jnp.array(label)], 1)
    )
    errors, losses, entropies, probabilities = [], [], [], []
    for slope, logit in ((3.0, 2.0), (1.0, 0.0)):
        for i in range(2):
            error = 2.0 * slope * x[i] - y[i]
            errors.append(error**2)
            losses.append((error / 2.0) ** 2 / 0.25 + np.log(0.25))
            p = 1 / (1 + np.exp(-logit * x[i]))
            probabilities.append(p)
            entropies.append(-np.log(p if label[i] else 1 - p))
    np.testing.assert_allclose(result.rmse, [np.sqrt(np.mean(errors))], rtol=1e-5)
    np.testing.assert_allclose(result.share, [np.mean(errors) / 4.0], rtol=1e-5)
    np.testing.assert_allclose(result.loss, [np.mean(losses)], rtol=1e-5)
    np.testing.assert_allclose(result.binary_loss, [np.mean(entropies)], rtol=1e-5)
    np.testing.assert_allclose(result.predicted_rate, [np.mean(probabilities)], rtol=1e-5)
    np.testing.assert_allclose(result.real_rate, [0.5])


def test_missing_targets_are_left_out():
    """Of output 3 only the first 500 targets are known, of output 1 none."""
    inputs, targets = noisy_steps(0.1)
    few = targets.copy()
    few[500:, 3] = few[:, 1] = np.nan
    result, first, whole = (
        jax.jit(one_step)(model(system(), std=0.2), jnp.asarray(x), jnp.asarray(y))
        for x, y in ((inputs, few), (inputs[:500], targets[:500]), (inputs, targets))
    )
    for name in ("rmse", "share", "loss", "calibration"):
        got, known, others = (
            np.concatenate([np.atleast_2d(x) for x in jax.tree.leaves(getattr(one, name))])
            for one in (result, first, whole)
        )
        np.testing.assert_allclose(got[:, 3], known[:, 3], rtol=1e-4)
        np.testing.assert_allclose(got[:, [0, 2]], others[:, [0, 2]], rtol=1e-4)
        assert np.isnan(got[:, 1]).all()
    np.testing.assert_allclose(result.binary_loss, whole.binary_loss)


# Which real steps


def test_segments_stay_within_episodes_and_cover_ends():
    """Environment 0 terminates at step 4 (of 0 to 9); environment 1 runs out of time at step 9."""
    ended, terminated = np.zeros((10, 2), bool), np.zeros((10, 2), bool)
    ended[4, 0] = terminated[4, 0] = ended[9, 1] = True
    result = segments(ended, terminated, horizon=3, count=13 + 8)
    lengths = {}
    for b, start in enumerate(zip(result.place, result.start, strict=True)):
        lengths[tuple(map(int, start))] = int(result.within[:, b].sum())
    # Place 0: all starts up to the end, the last ones shorter; then 5, 6, 7 of the next episode.
    assert lengths == {
        **{(0, t): min(3, 5 - t) for t in range(5)},
        **{(0, t): 3 for t in (5, 6, 7)},
        **{(1, t): 3 for t in range(8)},
    }
    steps = np.arange(20).reshape(10, 2)
    taken = result.take(steps)
    b = list(zip(result.place, result.start, strict=True)).index((0, 3))
    assert taken[:, b].tolist() == [6, 8, 8]


def test_a_horizon_beyond_all_episodes_is_refused():
    none = np.zeros((10, 1), bool)
    with pytest.raises(ValueError, match=r"horizon=11 .* at most 10"):
        segments(none, none, 11, 4)


def test_steps_shown():
    assert steps_shown(1) == [1]
    assert steps_shown(7) == [1, 2, 5, 7]
    assert steps_shown(80) == [1, 2, 5, 10, 20, 40, 80]
    assert steps_shown(100) == [1, 2, 5, 10, 20, 40, 80, 100]


@pytest.mark.parametrize("kind", [EgoGoalModel, PaperGoalModel])
def test_rollouts_meet_the_goals_of_their_episode(kind):
    """The real goals after the first one of each rollout, then drawn ones."""
    task_model = kind(GoalConfig(observation=OBSERVATION[kind], hazards=1), spare=3)
    records = np.zeros((6, 1, task_model.record_size), np.float32)
    records[:, 0, -5] = [1, 1, 2, 3, 8, 8]  # x of the goal; the episode ends after step 3
    ended = np.array([False, False, False, True, False, False])[:, None]
    start, place = np.array([0, 2, 3]), np.zeros(3, int)
    within = np.array([[True, True, True], [True, True, False]])
    drawn = task_model.restore(jax.random.key(0), jnp.asarray(records[start, place]))
    states, comparable = task_model.follow_real(drawn, records, ended, start, place, within)
    spare, before = (np.asarray(s.course.spare[..., 0]) for s in (states, drawn))
    expected = [[2, 3, before[0, 2]], [3, *before[1, 1:]], before[2]]
    np.testing.assert_array_equal(spare, expected)
    # Only the paper's features hold the goal, which is a new one at step 3.
    new_goal = np.array([[False, False, False], [False, True, False]])
    expected = within & ~new_goal if kind is PaperGoalModel else within
    np.testing.assert_array_equal(comparable, expected)


# Rollouts


def real_world(steps=40, places=3) -> Experience:
    """Steps of the system itself, by a loop: one episode of 25 steps, then another."""
    rng = np.random.default_rng(1)
    shape = (1, steps, places)
    obs, after = np.zeros((*shape, 2)), np.zeros((*shape, 2))
    action = rng.normal(size=(*shape, 1))
    reward, cost = np.zeros(shape), np.zeros((*shape, 1))
    for n in range(places):
        s = rng.normal(size=2)
        for t in range(steps):
            x = np.append(s, np.clip(action[0, t, n], -0.5, 0.5))
            obs[0, t, n], after[0, t, n] = s, s @ TURN + x[2] * PUSH
            reward[0, t, n], cost[0, t, n] = x @ REWARD, cost_of(x)
            s = rng.normal(size=2) if t == 24 else after[0, t, n]
    ended = np.zeros(shape, bool)
    ended[0, 24] = True
    never = np.zeros(shape, bool)
    return Experience([0], obs, action, reward, cost, after, never, ended, None, None, [])


def tried(ensemble, seen: Experience, horizon: int, task_model=TASK_MODEL, actions=ACTIONS):
    """The trial of one ensemble on the first seed's steps."""
    diagnostic = Diagnostic(task_model, actions, horizon)
    return diagnostic(ensemble, real_steps(seen, 0), jax.random.key(0))


def test_a_perfect_model_replays_what_was_real():
    trial = tried(model(system(), system()), real_world(), 12)
    assert trial.counted.all() and trial.error.shape == (12, 600)
    assert trial.error.max() < 1e-4 and np.asarray(trial.one.rmse).max() < 1e-5
    np.testing.assert_allclose(trial.imagined_reward, trial.real_reward, atol=1e-4)
    np.testing.assert_allclose(trial.imagined_cost, trial.real_cost, atol=1e-4)
    assert np.abs(trial.real_reward[-1]).max() > 1  # there was something to get right


def test_the_errors_of_a_wrong_model_match_a_loop():
    horizon, turn, reward = 8, 0.97 * TURN, 1.5 * REWARD
    wrong = eqx.tree_at(lambda e: e.input_std, model(system(turn, reward)), jnp.full(3, 2.0))
    # The scale divides the inputs: make up for it.
    wrong = eqx.tree_at(lambda e: e.members.weights[0], wrong, wrong.members.weights[0] * 2)
    seen = real_world()
    trial = tried(wrong, seen, horizon)
    starts = [(t, n) for n in range(3) for t in range(40) if t + horizon <= 25 or 25 <= t <= 32]
    squares, sums = {}, {}
    for t0, n in starts:
        s, total = seen.obs[0, t0, n], 0.0
        for h in range(horizon):
            a = np.clip(seen.action[0, t0 + h, n], -0.5, 0.5)
            total += np.append(s, a) @ reward
            s = s @ turn + a * PUSH
            squares[t0, n, h] = ((s - seen.next_obs[0, t0 + h, n]) / 2.0) ** 2
        sums[t0, n] = total
    pick = np.linspace(0, len(starts) - 1, 600).round().astype(int)
    for h in range(horizon):
        square = np.array([squares[*starts[i], h] for i in pick])
        np.testing.assert_allclose(trial.rmse[h], np.sqrt(square.mean(0)), rtol=1e-3)
        np.testing.assert_allclose(trial.error[h], np.sqrt(square.mean(1)), rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(
        trial.imagined_reward[-1], [sums[starts[i]] for i in pick], rtol=1e-3
    )
    assert trial.rmse[-1].max() > 3 * trial.rmse[0].max()


def test_choices_are_replayed_as_choices():
    """Three choices push by 1, 10 and 100."""
    matrix = np.array([[0.0, 0.0], [1.0, 0.0], [10.0, 0.0], [100.0, 0.0]])
    still = BlackBox(1, terminates=False, cost_fn=lambda s, a, t: jnp.zeros(1))
    exact = linear_ensemble(matrix[None], np.zeros((1, 2)), 2)
    pushed = eqx.tree_at(lambda e: e.input_std, exact, jnp.full(4, 1e4))
    weights = pushed.members.weights[0] * 1e4
    pushed = eqx.tree_at(lambda e: e.members.weights[0], pushed, weights)
    taken = jnp.array([[0, 2], [2, 1], [1, 1]])
    world = LearnedWorld(still, ActionSpec(3, discrete=True), pushed)
    imagined = replay(world, taken, jnp.zeros((2, 1)), jax.random.key(0))
    expected = [[1, 100], [101, 110], [111, 120]]
    np.testing.assert_allclose(imagined.features[..., 0], expected, rtol=1e-3)
    np.testing.assert_array_equal(imagined.events, np.zeros((3, 2)))


def test_a_rollout_that_imagination_ends_counts_no_longer():
    """The model ends every episode at once; reality never does."""
    # Outputs: observation, reward, reward at the end, cost; then the binary ones.
    matrix = np.concatenate([system()[:, :3], system()[:, 2:], np.zeros((3, 1))], 1)
    ending = linear_ensemble(matrix[None], np.array([[0.0] * 5 + [50.0] * 2]), 5)
    trial = tried(ending, real_world(), 5, BlackBox(2))
    assert trial.counted[0].all() and not trial.counted[1:].any()
    assert np.isnan(trial.rmse[1:]).all() and (trial.rmse[0] < 1e-5).all()
    np.testing.assert_allclose(trial.imagined_reward[-1], trial.real_reward[0], atol=1e-5)


def test_errors_are_weighted():
    weight = np.array([[1.0, 0.0], [1.0, 1.0]])
    error = np.array([[[3.0], [400.0]], [[3.0], [4.0]]])
    result = rollout_rmse(jnp.asarray(error), jnp.asarray(weight))
    np.testing.assert_allclose(result, [[3.0], [np.sqrt(12.5)]])


STRIDE, STEPS, MET, NEXT = 0.1, 20, 8, 3.05


def straight(kind, imagined=STRIDE):
    """A robot that goes straight on, at every step by 0.1 m: task model, ensemble and real steps.

    The goal at 1.05 m is met in step 8, at 0.8 m, and the next one lies at 3.05 m.
    """
    task_model = kind(GoalConfig(observation=OBSERVATION[kind], hazards=1))
    x = STRIDE * np.arange(STEPS + 1)
    goal = np.where(np.arange(STEPS) >= MET, NEXT, 1.05)
    hazard = [0.5, 0.0]
    records, reward = [], []
    for place, aim in ((x[:-1], goal), (x[1:], goal)):
        rows = []
        for p, g in zip(place, aim, strict=True):
            course = [g, 0.0, *hazard, g - p]
            if kind is EgoGoalModel:
                rows.append([p, 0.0, 0.0, 1.0, 0.0, 0.0, *course])
            else:
                sensors = [1.0, 0.0, 0.0, 0.0, -0.5, 0.0]
                rows.append([*sensors, g - p, 0.0, 0.5 - p, 0.0, 1.0, 0.0, p, 0.0, *course])
        records.append(np.array(rows, np.float32)[None, :, None])
    reward = np.full(STEPS, STRIDE)
    reward[MET - 1] += 1.0
    offsets = np.zeros(task_model.target_size)
    if kind is EgoGoalModel:
        offsets[3] = imagined
    else:
        offsets[[6, 8]], offsets[-2] = -imagined, imagined
    size = task_model.feature_size + 2
    sure = linear_ensemble(np.zeros((1, size, task_model.target_size)), offsets[None], len(offsets))
    sure = eqx.tree_at(lambda e: e.input_std, sure, jnp.full(size, 10.0))
    never = np.zeros((1, STEPS, 1), bool)
    cost = (np.abs(x[1:] - 0.5) <= task_model.config.hazard_size)[None, :, None, None].astype(
        np.float32
    )
    seen = Experience(
        [0], np.zeros((1, STEPS, 1, 1)), np.zeros((1, STEPS, 1, 2)), reward[None, :, None], cost,
        np.zeros((1, STEPS, 1, 1)), never, never, records[0], records[1], [],
    )  # fmt: skip
    return task_model, sure, seen


@pytest.mark.parametrize("kind", [EgoGoalModel, PaperGoalModel])
def test_imagination_meets_the_goals_that_came(kind):
    task_model, sure, seen = straight(kind)
    actions = ActionSpec(2, low=(-1.0, -1.0), high=(1.0, 1.0))
    horizon = 15
    trial = tried(sure, seen, horizon, task_model, actions)
    starts = np.linspace(0, STEPS - horizon, trial.error.shape[1]).round().astype(int)
    for b in (0, 300, 599):
        real = np.cumsum(seen.reward[0, starts[b] : starts[b] + horizon, 0])
        np.testing.assert_allclose(trial.real_reward[:, b], real, atol=1e-5)
        np.testing.assert_allclose(trial.imagined_reward[:, b], real, atol=1e-4)
    np.testing.assert_allclose(trial.imagined_cost, trial.real_cost, atol=1e-4)
    assert trial.real_cost[-1].max() > 0
    # The paper's features hold the goal: they count until it is met, with step MET the last one
    # before it jumps in imagination.
    before_the_jump = starts + 1 + np.arange(horizon)[:, None] < MET
    expected = before_the_jump if kind is PaperGoalModel else np.ones_like(before_the_jump)
    np.testing.assert_array_equal(trial.counted, expected)
    assert trial.error[trial.counted].max() < 1e-5


@pytest.mark.parametrize("imagined", [0.05, 0.2])
def test_features_that_hold_the_goal_count_until_someone_meets_it(imagined):
    task_model, wrong, seen = straight(PaperGoalModel, imagined)
    trial = tried(wrong, seen, 15, task_model, ActionSpec(2, low=(-1.0, -1.0), high=(1.0, 1.0)))
    starts = np.linspace(0, 5, trial.error.shape[1]).round().astype(int)
    for b, start in enumerate(starts):
        for h in range(15):
            # Too slow, imagination is still on its way when the real goal is drawn anew after step
            # 8; too fast, it gets within 0.3 m of the goal too early.
            reached = STRIDE * start + imagined * (h + 1) >= 0.75
            assert trial.counted[h, b] == (start + h < MET and not reached)


# Names


def test_names_are_as_many_as_numbers():
    for robot in ("point", "car", "doggo"):
        for kind in (EgoGoalModel, PaperGoalModel):
            task_model = kind(GoalConfig(robot=robot, observation=OBSERVATION[kind]))
            assert len(set(task_model.feature_names)) == task_model.feature_size
            assert len(set(task_model.output_names)) == task_model.target_size
    assert RCCarModel(RCCarConfig()).output_names[3:] == ("forward", "left", "turn")
    learned = BlackBox(2, ("heat", "wear"))
    assert learned.feature_names == ("observation 0", "observation 1")
    signals = "reward", "reward at the end", "heat", "wear", "any heat", "any wear", "end"
    assert learned.output_names == (*learned.feature_names, *signals)
    known = BlackBox(1, cost_fn=lambda s, a, t: a, reward_fn=lambda s, a, t: a[0], terminates=False)
    assert known.output_names == ("observation 0",)
    paper = PaperGoalModel(GoalConfig(robot="car", observation="paper")).feature_names
    assert paper[2:8] == (*(f"magnetometer {x}" for x in "xyz"), "yaw rate", "goal x", "goal y")
