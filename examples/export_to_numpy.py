"""A policy on a robot: one file, and numpy to run it.

    python examples/export_to_numpy.py runs/…          # writes policy.npz and acts with it

On the robot, install numpy and Surefoot without its other dependencies: `pip install --no-deps`.
"""

import sys
from pathlib import Path

import numpy as np

from surefoot import Policy


def main(run, out="policy.npz", steps=1000):
    import surefoot  # only to read the run; the rest needs numpy alone

    path = surefoot.load(run).save(Path(out))
    policy = Policy.load(path)
    observation = np.zeros(policy.weights[0].shape[0])
    for _ in range(steps):  # the robot's control loop
        action = policy.act(observation)
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB, last action {np.round(action, 3)}")
    return path


if __name__ == "__main__":
    main(sys.argv[1])
