"""The command `diagnose`."""

from typing import TYPE_CHECKING

from surefoot.cli.output import Json, Run, emit, with_mean

if TYPE_CHECKING:
    from surefoot.runs.folder import Values


def diagnose(
    run: Run,
    episodes: int = 4,
    seed: int | None = None,
    horizon: int | None = None,
    json_: Json = False,
) -> None:
    """Show how far to trust a run's learned model, on fresh real episodes of its policy.

    Args:
        episodes: Fresh episodes per seed.
        seed: Added to the run's seeds; decides which episodes are met.
        horizon: Steps of an imagined rollout; the run's if not given.
    """
    from surefoot import api
    from surefoot.runs.acting import EVALUATION_SEED

    result = api.diagnose(run, episodes, EVALUATION_SEED if seed is None else seed, horizon)
    lines = [
        f"{result['model']} model after epoch {result['epoch']}, {result['real_steps']:,} real "
        f"steps; known parts: {', '.join(result['known']) or 'none'}",
        f"{episodes} fresh episodes per seed; outputs are means over seeds",
        "",
        *_outputs(result),
        "",
        "error of the features after the same actions, in units of their spread",
        *_rollouts(result),
        "",
        f"imagined / real over {result['horizon']} steps",
    ]
    for row in with_mean(result):
        reward, costs = row["reward"], row["costs"]
        pairs = [("reward", reward["imagined"], reward["real"])]
        pairs += zip(result["cost_names"], costs["imagined"], costs["real"], strict=True)
        words = (f"{name} {imagined:.2f} / {real:.2f}" for name, imagined, real in pairs)
        lines.append(f"seed {row['seed']}: {', '.join(words)}")
    emit(json_, result, [*lines, "", f"figure: {result['figure']}"])


def _outputs(result: "Values") -> list[str]:
    """A line for every output: one-step error and calibration."""
    heads = {"RMSE": 9, "of variance": 12, "loss": 7, "in 50 %": 8, "in 90 %": 8, "in 95 %": 8}
    wide = max(len(name) for name in [*result["outputs"], *result["binary_outputs"], "one step"])
    lines = [f"{'one step':<{wide}}" + "".join(f"{h:>{w}}" for h, w in heads.items()) + "  chi2"]
    one, rates = result["one_step"], result["binary"]
    for i, name in enumerate(result["outputs"]):
        if one["rmse"][i] is None:  # the amount of a cost that did not occur
            dashes = "".join(f"{'-':>{width}}" for width in (*heads.values(), 6))
            lines.append(f"{name:<{wide}}{dashes}")
            continue
        inside = "".join(f"{one[level][i]:>8.0%}" for level in one if level.startswith("coverage"))
        numbers = f"{one['rmse'][i]:>9.2g}{one['share'][i]:>12.2%}{one['loss'][i]:>7.2f}"
        lines.append(f"{name:<{wide}}{numbers}{inside}{one['chi2'][i]:>6.2f}")
    for i, name in enumerate(result["binary_outputs"]):
        predicted, real, loss = (rates[x][i] for x in ("predicted_rate", "real_rate", "loss"))
        rate = f"predicted {predicted:.2%}, real {real:.2%}"
        lines.append(f"{name:<{wide}}{'':21}{loss:>7.2g}  {rate}")
    return lines


def _rollouts(result: "Values") -> list[str]:
    """A line for every seed: errors by steps."""
    lines = ["after steps" + "".join(f"{step:>6}" for step in result["steps"])]
    for row in with_mean(result):
        errors = ("-" if e is None else f"{e:.2f}" for e in row["rollouts"]["error"])
        lines.append(f"seed {row['seed']:<6}" + "".join(f"{error:>6}" for error in errors))
    return lines
