"""Is my model believable? Train a run, diagnose its model, write its page.

    python examples/reading_a_run.py

This takes a few minutes on two CPU cores and writes runs/read-me/report.html.
"""

from own_environment import CART

import surefoot


# --8<-- [start:main]
def main(out="runs/read-me", fresh=4, **settings):
    run = surefoot.train(CART, cost_limit=10, out=out, **settings)
    found = surefoot.diagnose(run, episodes=fresh)
    for name, share in zip(found["outputs"], found["one_step"]["share"], strict=True):
        print(f"{name}: error {'-' if share is None else f'{share:.1%}'} of the variance")
    print("imagined and real reward:", found["reward"])
    print("imagined and real cost:  ", found["costs"])
    print("page:", surefoot.write_report(run))
    return run


# --8<-- [end:main]


if __name__ == "__main__":
    main()
