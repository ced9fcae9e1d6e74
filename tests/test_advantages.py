"""GAE against episodes worked out by hand and a plain loop."""

import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.learn.advantages import gae


def column(*x, dtype=np.float32):
    return jnp.asarray(np.array(x, dtype)[:, None])


# Rewards 1, 2, 3; values 10, 20, 30; V after the last step 40; gamma 0.5, lambda 0.5.
REWARDS, VALUES, NEXT = column(1, 2, 3), column(10, 20, 30), column(20, 30, 40)
NO = column(0, 0, 0, dtype=bool)
LAST = column(0, 0, 1, dtype=bool)


def test_time_out_bootstraps_from_the_final_observation():
    # delta = 1+10-10, 2+15-20, 3+20-30 = 1, -3, -7; A2 = -7, A1 = -3 - 7/4, A0 = 1 + A1/4.
    advantages, targets = gae(REWARDS, VALUES, NEXT, NO, LAST, 0.5, 0.5)
    np.testing.assert_allclose(advantages[:, 0], [-0.1875, -4.75, -7.0])
    np.testing.assert_allclose(targets[:, 0], [9.8125, 15.25, 23.0])


def test_terminal_has_no_future():
    # Now delta_2 = 3 - 30 = -27; A1 = -3 - 27/4 = -9.75, A0 = 1 - 9.75/4.
    advantages, _ = gae(REWARDS, VALUES, NEXT, LAST, LAST, 0.5, 0.5)
    np.testing.assert_allclose(advantages[:, 0], [-1.4375, -9.75, -27.0])


def test_return_targets():
    # With time-out: 3 + 20 = 23; 2 + 11.5 = 13.5; 1 + 6.75 = 7.75. Terminal: 3; 3.5; 2.75.
    advantages, targets = gae(REWARDS, VALUES, NEXT, NO, LAST, 0.5, 0.5, "return")
    np.testing.assert_allclose(targets[:, 0], [7.75, 13.5, 23.0])
    np.testing.assert_allclose(advantages[:, 0], [-0.1875, -4.75, -7.0])
    _, targets = gae(REWARDS, VALUES, NEXT, LAST, LAST, 0.5, 0.5, "return")
    np.testing.assert_allclose(targets[:, 0], [2.75, 3.5, 3.0])


def test_an_end_inside_cuts_the_recursion():
    # A time-out after the first step, whose final observation is worth 8, not the next row's 20.
    ended, next_values = column(1, 0, 1, dtype=bool), column(8, 30, 40)
    advantages, targets = gae(REWARDS, VALUES, next_values, NO, ended, 0.5, 0.5, "return")
    np.testing.assert_allclose(advantages[:, 0], [1 + 4 - 10, -4.75, -7.0])
    np.testing.assert_allclose(targets[:, 0], [5.0, 13.5, 23.0])


def test_a_signal_may_outlast_the_end():
    """Two equal signals; the last step terminates the first and truncates the second."""
    both = lambda x: jnp.stack([x, x], -1)
    over = jnp.stack([LAST, NO], -1)
    advantages, _ = gae(both(REWARDS), both(VALUES), both(NEXT), over, LAST, 0.5, 0.5)
    np.testing.assert_allclose(advantages[:, 0, 0], [-1.4375, -9.75, -27.0])
    np.testing.assert_allclose(advantages[:, 0, 1], [-0.1875, -4.75, -7.0])


@pytest.mark.parametrize("kind", ["gae", "return"])
def test_many_signals_match_a_plain_loop(kind):
    rng = np.random.default_rng(0)
    shape, gamma, lam = (7, 5, 3), 0.9, 0.8
    r, v, nv = rng.normal(size=(3, *shape)).astype(np.float32)
    terminated = rng.random(shape[:2]) < 0.2
    ended = terminated | (rng.random(shape[:2]) < 0.2)
    # Within an episode the next value is the next row's.
    nv[:-1] = np.where(ended[:-1, :, None], nv[:-1], v[1:])
    advantages, targets = np.zeros(shape), np.zeros(shape)
    for b in range(5):
        for s in range(3):
            later, total = 0.0, 0.0
            for t in reversed(range(7)):
                bootstrap = 0.0 if terminated[t, b] else nv[t, b, s]
                if ended[t, b] or t == 6:
                    later, total = 0.0, bootstrap
                later = r[t, b, s] + gamma * bootstrap - v[t, b, s] + gamma * lam * later
                total = r[t, b, s] + gamma * total
                advantages[t, b, s] = later
                targets[t, b, s] = total if kind == "return" else later + v[t, b, s]
    arrays = map(jnp.asarray, (r, v, nv, terminated, ended))
    got_advantages, got_targets = gae(*arrays, gamma, lam, kind)
    np.testing.assert_allclose(got_advantages, advantages, atol=1e-5)
    np.testing.assert_allclose(got_targets, targets, atol=1e-5)


def test_unknown_targets():
    with pytest.raises(ValueError, match="targets='td'"):
        gae(REWARDS, VALUES, NEXT, NO, NO, 0.9, 0.9, "td")  # pyright: ignore
