"""Compare `surefoot.safety_gymnasium` with the real package: same seeds, same actions.

    python benchmarks/compatibility.py --reference /path/to/python3.10     # runs the real package
    python benchmarks/compatibility.py --recording reference.npz           # or what it recorded

`--reference` names a Python with safety-gymnasium 1.0.0 installed; this file runs itself there with
`--record` and needs only numpy in that place. For each id: spaces, keys of `info`, attributes of
`task`, and the observations, rewards, costs and ends of whole episodes. Episodes are not restarted
from recorded states, so a difference in one contact stays until the episode ends; `surefoot parity`
compares step by step. The column `itself` is Surefoot against Surefoot, whose joints start 1e-15
faster: where that is below 100 %, rounding errors grow, and no two programs agree for longer.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

ROBOTS = ("Point", "Car", "Doggo", "Racecar", "Ant")
TASKS = {"Goal": 3, "Button": 3, "Push": 3, "Circle": 3, "Run": 1}
RUNNERS = ("HalfCheetah", "Hopper", "Swimmer", "Walker2d", "Ant", "Humanoid")
NAVIGATION = [f"Safety{r}{t}{n}-v0" for r in ROBOTS for t, k in TASKS.items() for n in range(k)]
IDS = NAVIGATION + [f"Safety{r}Velocity-{v}" for v in ("v0", "v1") for r in RUNNERS]
KINDS = ("goal", "hazards", "vases", "buttons", "gremlins", "pillars", "push_box")
LOOKED_AT = 10  # step after which attributes of the task are compared
CLOSE, NEAR = 1e-6, 1e-3
# With AVX512, sines of numpy 1.23 are off in the last bit, and Car's wheels touch the floor or not.
PLAIN = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"


def attributes(task):
    """What others read from `task`, as arrays."""
    agent, conf = task.agent, task.lidar_conf
    out = {"pos": agent.pos, "vel": agent.vel, "mat": agent.mat, "keepout": agent.keepout}
    out |= {"num_steps": task.num_steps, "num_bins": conf.num_bins, "max_dist": conf.max_dist}
    out["extents"] = task.placements_conf.extents
    out["layout"] = task.mechanism_conf.randomize_layout, task.cost_conf.constrain_indicator
    for kind in KINDS:
        objects = getattr(task, kind, None)
        if objects is not None:
            out[kind] = objects.pos
            options = objects.size, objects.keepout, getattr(objects, "num", 1), objects.group
            out[f"{kind}_options"] = (*options, objects.is_constrained, objects.is_lidar_observed)
    if hasattr(task, "goal"):
        out["dist_goal"] = task.dist_goal()
    if hasattr(task, "buttons"):
        out["button"] = task.buttons.goal_button, task.buttons.timer
    return {name: np.array(value, dtype=np.float64) for name, value in out.items()}


def record(package, ids, seeds, steps, disturbance=0.0):
    """Everything to compare, as one flat dict of arrays."""
    out = {}
    for name in ids:
        env = package.make(name, autoreset=True)
        low, high = env.action_space.low, env.action_space.high
        spaces = {"steps": env.spec.max_episode_steps, "keys": []}
        for part, space in (("obs", env.observation_space), ("act", env.action_space)):
            spaces[part] = [list(space.shape), str(space.dtype)]
            out[f"{name}/{part}_bounds"] = np.stack([space.low, space.high])
        keys = set()
        for seed in range(seeds):
            actions = np.random.RandomState(1000 + seed).uniform(low, high, (steps, len(low)))
            actions = actions.astype(env.action_space.dtype)
            rows = [np.asarray(env.reset(seed=seed)[0])]
            numbers, infos = [], []
            if disturbance:
                env.unwrapped.core.simulation.qvel[0] += disturbance
            for t, action in enumerate(actions):
                obs, reward, cost, terminated, truncated, info = env.step(action)
                rows.append(obs)
                numbers.append((reward, cost, terminated, truncated))
                info = info.get("final_info", info)
                keys |= set(info) - {"goal_met"}  # there only in steps that reach it
                infos.append({k: float(v) for k, v in info.items()})
                if t + 1 == LOOKED_AT and hasattr(env.unwrapped, "task"):
                    for key, value in attributes(env.unwrapped.task).items():
                        out[f"{name}/task/{seed}/{key}"] = value
            out[f"{name}/obs/{seed}"] = np.array(rows)
            out[f"{name}/numbers/{seed}"] = np.array(numbers, dtype=np.float64)
            out[f"{name}/infos/{seed}"] = np.array(json.dumps(infos))
        spaces["keys"] = sorted(keys)
        out[f"{name}/spaces"] = np.array(json.dumps(spaces))
        env.close()
    return out


def difference(a, b):
    """Largest difference of two arrays in the last axis, relative above 1."""
    gap = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1.0)
    return gap.max(-1) if gap.ndim > 1 else gap.max(initial=0.0)


def compare(name, ours, theirs, disturbed, seeds):
    """Counts and differences for one id."""
    get = lambda key: (ours[f"{name}/{key}"], theirs[f"{name}/{key}"])
    first, second = (json.loads(str(text)) for text in get("spaces"))
    second["keys"] = sorted(set(second["keys"]) - {"goal_met"})
    same = [first == second]
    same += [np.allclose(*get(f"{part}_bounds"), rtol=0, atol=0) for part in ("obs", "act")]
    row = {"ids": 1, "spaces": int(all(same)), "start": 0.0, "task": 0.0, "infos": 0}
    row |= {"steps": 0, "close": 0, "near": 0, "cost": 0, "end": 0, "paid": 0, "self": 0}
    for seed in range(seeds):
        a, b = get(f"obs/{seed}")
        mine, real = get(f"numbers/{seed}")
        row["start"] = max(row["start"], float(difference(a[:1], b[:1]).max()))
        gap = np.maximum(difference(a[1:], b[1:]), difference(mine[:, :1], real[:, :1]))
        own = difference(a[1:], disturbed[f"{name}/obs/{seed}"][1:])
        row["self"] += int((own <= CLOSE).sum())
        row["steps"] += len(gap)
        row["close"] += int((gap <= CLOSE).sum())
        row["near"] += int((gap <= NEAR).sum())
        row["cost"] += int((mine[:, 1] != real[:, 1]).sum())
        row["paid"] += int(real[:, 1].sum())
        row["end"] += int((mine[:, 2:] != real[:, 2:]).any(1).sum())
        agreed = gap <= CLOSE
        first, second = (json.loads(str(text)) for text in get(f"infos/{seed}"))
        for x, y, ok in zip(first, second, agreed, strict=True):
            fits = x.keys() == y.keys() and all(abs(x[k] - y[k]) <= NEAR for k in x)
            row["infos"] += int(ok and not fits)
        prefix = f"{name}/task/{seed}/"
        if gap[:LOOKED_AT].max(initial=0.0) <= CLOSE:
            for key in [k for k in theirs if k.startswith(prefix)]:
                x, y = ours[key], theirs[key]
                worst = np.inf if x.shape != y.shape else difference(x.ravel(), y.ravel())
                row["task"] = max(row["task"], float(worst))
    return row


def table(rows):
    """A Markdown table, one line per robot and task; differences are the largest of a group."""
    columns = "ids", "spaces", "at reset", "`task`", "steps", "≤ 1e-6", "≤ 1e-3", "itself"
    columns += "cost", "end", "`info`"
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for group, members in rows.items():
        total = {k: sum(m[k] for m in members) for k in members[0]}
        worst = {k: max(m[k] for m in members) for k in ("start", "task")}
        share = lambda key, t=total: f"{100 * t[key] / t['steps']:.1f} %"
        lines.append(
            f"| {group} | {total['spaces']} of {total['ids']} | {worst['start']:.0e} | "
            f"{worst['task']:.0e} | {total['steps']} | {share('close')} | {share('near')} | "
            f"{share('self')} | "
            f"{total['cost']} ({total['paid']}) | {total['end']} | {total['infos']} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", help="a Python that has the real safety-gymnasium")
    parser.add_argument("--recording", type=Path, help="what --record wrote")
    parser.add_argument("--record", type=Path, help="record the real package into this file")
    parser.add_argument("--ids", nargs="+", default=IDS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--all", action="store_true", help="one line per id")
    options = parser.parse_args()
    arguments = options.ids, options.seeds, options.steps
    if options.record:
        import safety_gymnasium

        np.savez_compressed(options.record, **record(safety_gymnasium, *arguments))
        return
    if not (options.reference or options.recording):
        parser.error("give --reference or --recording")
    with tempfile.TemporaryDirectory() as folder:
        file = options.recording or Path(folder) / "reference.npz"
        if options.reference:
            numbers = ["--seeds", str(options.seeds), "--steps", str(options.steps)]
            command = [options.reference, __file__, "--record", str(file), *numbers]
            exact = {**os.environ, "NPY_DISABLE_CPU_FEATURES": PLAIN}
            subprocess.run([*command, "--ids", *options.ids], check=True, env=exact)
        with np.load(file) as recorded:
            theirs = dict(recorded)
    import surefoot.safety_gymnasium

    ours = record(surefoot.safety_gymnasium, *arguments)
    disturbed = record(surefoot.safety_gymnasium, *arguments, disturbance=1e-15)
    rows = defaultdict(list)
    for name in options.ids:
        group = name if options.all else name.rstrip("-v0123456789")
        rows[group].append(compare(name, ours, theirs, disturbed, options.seeds))
    print(table(rows))


if __name__ == "__main__":
    main()
