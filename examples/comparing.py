"""Two algorithms on one environment, compared with statistics over seeds.

    python examples/comparing.py

This takes a few minutes on two CPU cores and writes runs/comparison/report.html.
"""

from pathlib import Path

from own_environment import CART

import surefoot
from surefoot.report.compare import compare


# --8<-- [start:main]
def main(out="runs/comparison", seeds=4, **settings):
    settings = {"steps": 100_000, "steps_per_epoch": 5_000, **settings}
    runs = [
        surefoot.train(
            CART, algorithm, cost_limit=10, seeds=seeds, out=Path(out) / algorithm, **settings
        )
        for algorithm in ("ppo-lagrangian", "trpo-lagrangian")
    ]
    page = compare(runs, Path(out) / "page", title="Two algorithms on a warm cart")
    print((page.parent / "summary.csv").read_text())
    print("page:", page)
    return page


# --8<-- [end:main]


if __name__ == "__main__":
    main()
