"""The commands about the learned model: diagnose, and benchmark imagination."""

import json
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional

out = Console(highlight=False, soft_wrap=True)


def diagnose(
    run: Positional[Path],
    episodes: int = 4,
    seed: int | None = None,
    horizon: int | None = None,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Tell how far to believe a run's learned model, by fresh real episodes of its policy.

    Args:
        run: The run's folder.
        episodes: Fresh episodes per seed.
        seed: Where the environments' seeds start.
        horizon: Steps imagined at a stretch (default: the run's).
        json_: Print one JSON object.
    """
    from surefoot.use.diagnose import EVALUATION_SEED
    from surefoot.use.diagnose import diagnose as diagnose_run

    found = diagnose_run(run, episodes, EVALUATION_SEED if seed is None else seed, horizon)
    if json_:
        print(json.dumps(found, indent=1))
        return
    known = ", ".join(found["known"]) or "nothing"
    lines = [
        f"{found['model']} model after epoch {found['epoch']}, {found['real_steps']:,} real steps; "
        f"told: {known}",
        f"{episodes} fresh episodes per seed; outputs in the mean over seeds\n",
        *_outputs(found),
        "\nerror of the features after the same actions, in units of their spread",
        *_rollouts(found),
        f"\nimagined / real over {found['horizon']} steps",
    ]
    for row in [*found["seeds"], {**found, "seed": "all"}]:
        words = [f"reward {row['reward']['imagined']:.2f} / {row['reward']['real']:.2f}"]
        both = zip(found["cost_names"], row["costs"]["imagined"], row["costs"]["real"], strict=True)
        words += [f"{name} {imagined:.2f} / {real:.2f}" for name, imagined, real in both]
        lines.append(f"seed {row['seed']}: {', '.join(words)}")
    out.print("\n".join([*lines, f"\nfigure: {found['figure']}"]), markup=False)


def _outputs(found: dict[str, Any]) -> list[str]:
    """A line for every output: one-step error and calibration."""
    heads = {"RMSE": 9, "of variance": 12, "loss": 7, "in 50 %": 8, "in 90 %": 8, "in 95 %": 8}
    wide = max(len(name) for name in [*found["outputs"], *found["binary_outputs"], "one step"])
    lines = [f"{'one step':<{wide}}" + "".join(f"{h:>{w}}" for h, w in heads.items()) + "  chi2"]
    one, rates = found["one_step"], found["binary"]
    for i, name in enumerate(found["outputs"]):
        inside = "".join(f"{one[level][i]:>8.0%}" for level in one if level.startswith("coverage"))
        numbers = f"{one['rmse'][i]:>9.2g}{one['share'][i]:>12.2%}{one['loss'][i]:>7.2f}"
        lines.append(f"{name:<{wide}}{numbers}{inside}{one['chi2'][i]:>6.2f}")
    for i, name in enumerate(found["binary_outputs"]):
        said, was, loss = (rates[x][i] for x in ("predicted_rate", "real_rate", "loss"))
        lines.append(f"{name:<{wide}}{'':21}{loss:>7.2g}  said {said:.2%}, was {was:.2%}")
    return lines


def _rollouts(found: dict[str, Any]) -> list[str]:
    """A line for every seed: errors by steps."""
    lines = ["after steps" + "".join(f"{step:>6}" for step in found["steps"])]
    for row in [*found["seeds"], {**found, "seed": "all"}]:
        errors = ("-" if e is None else f"{e:.2f}" for e in row["rollouts"]["error"])
        lines.append(f"seed {row['seed']:<6}" + "".join(f"{error:>6}" for error in errors))
    return lines


def benchmark_imagination(
    task: str = "PointGoal", json_: Annotated[bool, tyro.conf.arg(name="json")] = False
) -> None:
    """Imagined steps per second as training runs them, and one state at a time.

    Args:
        task: Whose default preset.
        json_: Print one JSON object.
    """
    from surefoot.benchmark.imagination import benchmark

    row = benchmark(task)
    if json_:
        print(json.dumps(row, indent=1))
        return
    out.print(
        f"{row['task']}, {row['model']} model of {row['members']} networks "
        f"({'-'.join(map(str, row['hidden']))}), {row['elites']} elites, on {row['device']}\n"
        f"together:       {row['steps_per_second']:>12,.0f} steps/s  ({row['together']})\n"
        f"one at a time:  {row['one_at_a_time_steps_per_second']:>12,.0f} steps/s  "
        f"({row['one_at_a_time']})\n"
        f"ratio:          {row['ratio']:>12,.0f}",
        markup=False,
    )
