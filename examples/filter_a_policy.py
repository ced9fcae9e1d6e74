"""The safety filter around a policy that you bring.

Someone else's controller drives the cart of own_environment.py at full force, which overheats the
motor. A run's model guards it: where its action might cost, a plan acts instead.

    python examples/filter_a_policy.py

This takes a few minutes on two CPU cores and prints cost and reward with and without the filter.
"""

import numpy as np
from own_environment import CART, HEAT

import surefoot


def full_force(observations):
    """Someone else's policy: a function from observations [N, 2] to actions [N, 1]."""
    return np.ones((len(observations), 1))


def main(out="runs/filter", fresh=20, **settings):
    run = surefoot.train(CART, cost=HEAT, known=("cost",), cost_limit=10, out=out, **settings)
    for plan in ("none", "filter"):
        result = surefoot.evaluate(run, episodes=fresh, plan=plan, policy=full_force)
        followed = (
            f", {result['plan']['followed']:.0%} of steps planned" if "plan" in result else ""
        )
        print(f"{plan:>6}: reward {result['reward']:.1f}, cost {result['cost']:.1f}{followed}")
    return run


if __name__ == "__main__":
    main()
