"""Reward and cost against the limit, for the cart of own_environment.py.

    python examples/choosing_a_limit.py

This takes a few minutes on two CPU cores and writes runs/limits/limits.png.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from own_environment import CART

import surefoot


# --8<-- [start:sweep]
def sweep(limits, out, **settings):
    """Reward and cost on fresh episodes, for each limit."""
    results = []
    for limit in limits:
        folder = Path(out) / f"limit-{limit:g}"
        run = surefoot.train(CART, "ppo-lagrangian", cost_limit=limit, out=folder, **settings)
        results.append(surefoot.evaluate(run, episodes=50))
    return results


# --8<-- [end:sweep]


def main(out="runs/limits", limits=(1, 5, 20, 80), **settings):
    settings = {"steps": 100_000, "steps_per_epoch": 5_000, **settings}
    results = sweep(limits, out, **settings)
    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(5, 5), layout="constrained")
    for axes, name in ((top, "reward"), (bottom, "cost")):
        axes.plot(limits, [result[name] for result in results], "o-")
        axes.set_ylabel(f"{name} of an episode")
    bottom.plot(limits, limits, "k--", label="limit")
    bottom.set(xlabel="cost limit", xscale="log")
    bottom.legend()
    path = Path(out) / "limits.png"
    figure.savefig(path)
    for limit, result in zip(limits, results, strict=True):
        print(f"limit {limit:>3g}: reward {result['reward']:.1f}, cost {result['cost']:.1f}")
    print(f"figure: {path}")
    return path


if __name__ == "__main__":
    main()
