"""Two constraints, each with its own limit and its own multiplier.

The cart of own_environment.py reports two costs in `info`: steps above 60 °C (`heat`) and steps
faster than 2.5 m/s (`speeding`).

    python examples/two_constraints.py

This takes about a minute on two CPU cores and ends with both costs beside their limits.
"""

import csv
from pathlib import Path

from own_environment import CART

import surefoot


def main(out="runs/two-constraints", **settings):
    settings = {"steps": 200_000, "steps_per_epoch": 10_000, **settings}
    run = surefoot.train(
        CART, "ppo-lagrangian", cost=("heat", "speeding"),
        cost_limit={"heat": 10, "speeding": 20}, out=out, **settings,
    )  # fmt: skip
    with (Path(run) / "metrics.csv").open() as file:
        *_, last = csv.DictReader(file)
    for name in ("heat", "speeding"):
        cost, limit, price = (
            float(last[f"{what}_{name}"]) for what in ("cost", "cost_limit", "lambda")
        )
        print(f"{name}: cost {cost:.1f}, limit {limit:g}, lambda {price:.3f}")
    print(f"figure: {Path(run) / 'curve.png'}")
    return run


if __name__ == "__main__":
    main()
