"""The commands about runs on disk: resume, evaluate, export, runs and show."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.markup import escape
from tyro.conf import Positional

from surefoot.cli.output import Json, Run, emit, out, progress, with_mean
from surefoot.core.files import printable

if TYPE_CHECKING:
    from surefoot.algorithms.loop import Epoch
    from surefoot.runs.folder import Values
    from surefoot.runs.listing import RunReport, RunState
    from surefoot.world.planner import PlannerConfig


def resume(
    run: Run,
    steps: int | None = None,
    device: Literal["auto", "cpu", "gpu"] = "auto",
    quiet: bool = False,
) -> None:
    """Resume a run from its last checkpoint, as if it had never stopped.

    Args:
        steps: A new number of real steps in all, to make a run longer.
        device: What learns; auto takes the device that the run was trained on.
        quiet: Show no progress.
    """
    from surefoot.runs import resume as runs
    from surefoot.runs.device import use_device

    use_device(runs.backend_of(run) if device == "auto" else device)
    epochs: list[Epoch] = []
    done = (run / "result.json").exists()
    path = runs.resume(run, steps=steps, quiet=quiet, on_epoch=epochs.append)
    print_result(path)
    if done and not epochs:
        out.print("it was finished already; --steps, above its real steps, makes it longer")


def print_result(path: Path) -> None:
    """Print the result of a finished run."""
    from surefoot import api
    from surefoot.runs.folder import RunFolder
    from surefoot.runs.info import read_info
    from surefoot.runs.listing import read_result

    result = read_result(RunFolder(path))
    evaluation = result["evaluation"]
    means = {}
    for name, digits in (("reward", 2), ("cost", 1)):
        interval = evaluation.get(f"{name}_interval")
        spread = (
            "" if interval is None else f" (95 % interval {interval[0]:.1f} to {interval[1]:.1f})"
        )
        means[name] = f"{name} [bold]{evaluation[name]:.{digits}f}[/]{spread}"
    verdict = "within" if evaluation["cost"] <= evaluation["cost_limit"] else "[red]above[/]"
    try:
        figure = str(api.learning_curve(path))
    except OSError as error:
        figure = f"curve.png cannot be written: {error.strerror or error}; the run is complete"
    within = f"{evaluation['within_limit']:.0%} of episodes within it"
    if target := read_info(RunFolder(path)).config.get("within"):
        missed = "" if evaluation["within_limit"] >= target else ", [red]missed[/]"
        within += f" (target {target:.0%}{missed})"
    saving = result["phases"].get("save", 0.0) / max(result["seconds"], 1e-9)
    out.print(
        f"\n{evaluation['episodes']} fresh episodes: {means['reward']}, {means['cost']}, {verdict} "
        f"the limit of {evaluation['cost_limit']:g}; {within}, mean cost of the worst tenth "
        f"{evaluation['cost_cvar']:.1f}{_how(evaluation)}\n{result['real_steps']:,} real steps in "
        f"{result['seconds']:.0f} s, {saving:.2%} of it for checkpoints\n"
        f"figure: {escape(printable(figure))}\nrun:    {escape(printable(path))}"
    )
    for line in _each_cost(evaluation, path):
        out.print(line, markup=False)
    if evaluation["cost"] > evaluation["cost_limit"]:
        out.print(advice_for(path, result["real_steps"]), markup=False)


def _each_cost(evaluation: "Values", path: Path) -> Iterator[str]:
    """The mean cost of each constraint, if there are several."""
    from surefoot.runs.folder import RunFolder
    from surefoot.runs.info import read_info

    seeds = [seed["costs"] for seed in evaluation["seeds"] if seed.get("costs")]
    if seeds:
        limits = read_info(RunFolder(path)).cost_limits
        means = {name: sum(costs[name] for costs in seeds) / len(seeds) for name in seeds[0]}
        each = [f"{name} {mean:.1f} (limit {limits[name]:g})" for name, mean in means.items()]
        yield f"mean costs: {', '.join(each)}"


def _how(evaluation: "Values") -> str:
    """How actions were chosen, if that is known."""
    if "deterministic" not in evaluation:
        return ""
    return "; most likely actions" if evaluation["deterministic"] else "; sampled actions"


def advice_for(path: Path, steps: int) -> str:
    """What may help a run above its limit."""
    from surefoot.algorithms.algorithm import WITHOUT_MODEL
    from surefoot.envs.task import BLACK_BOX
    from surefoot.runs.folder import RunFolder
    from surefoot.runs.info import algorithm_of, keeps_limit, read_info

    run, folder = shlex.quote(str(path)), RunFolder(path)
    info = read_info(folder)
    with_model, trained = algorithm_of(info).uses_model, keeps_limit(info)
    advice = []
    if trained:
        advice.append(f"train longer (surefoot resume {run} --steps {2 * steps})")
        if with_model and info.config.get("model") == BLACK_BOX and folder.read_policy().bounded:
            advice.append(f"try --algorithm {WITHOUT_MODEL}")
    if with_model:
        advice.append(f"let plans step in (surefoot evaluate {run} --plan filter)")
    start = "above the limit" if trained else "trained without the limit"
    return f"{start}: {' or '.join(advice)}" if advice else start


def evaluate(argv: list[str]) -> int:
    """Evaluate a run. The run is read first: its planner is the default."""
    from surefoot.runs.acting import EVALUATION_SEED
    from surefoot.use import evaluate as use
    from surefoot.world.planner import PlannerConfig

    usual = _planner_of(argv)

    def command(
        run: Run,
        episodes: int | None = None,
        seed: int = EVALUATION_SEED,
        deterministic: bool = False,
        plan: Literal["look-ahead", "filter", "none"] | None = None,
        planner: PlannerConfig = usual,
        json_: Json = False,
    ) -> None:
        """Evaluate a run's policies on fresh episodes, as they are or with a planner on top.

        Args:
            episodes: Episodes per seed; 100 if not given, or 10 if every step is planned.
            seed: Added to the run's seeds; decides which episodes are met.
            deterministic: Take the policy's mode instead of drawing from it.
            plan: Plan every step with the run's model: look-ahead follows the plans (so does --plan
                alone), filter takes the policy's action unless it might cost too much, none takes
                the policy alone. If not given, a run acts as in training.
            planner: Settings of the planner; the defaults are the run's own.
        """
        changed = None if planner == usual else planner
        with progress("evaluating") as show:
            result = use.evaluate(run, episodes, seed, deterministic, plan, changed, on_step=show)
        emit(json_, result, [*_evaluation(result), *_each_cost(result, run)])

    tyro.cli(command, args=argv, prog="surefoot evaluate")
    return 0


def _planner_of(argv: list[str]) -> "PlannerConfig":
    """The planner of the run that is named."""
    from surefoot.algorithms.planning import default_planner
    from surefoot.use.evaluate import planner_of

    with suppress(ValueError, OSError, TypeError, KeyError):  # reported by `evaluate`
        for run in filter(Path.is_dir, map(Path, argv)):
            return planner_of(run)
    return default_planner()


def full_plan_option(argv: list[str]) -> list[str]:
    """`--plan` alone, at the end or before another option or a folder, means look-ahead."""
    full: list[str] = []
    for word, after in zip(argv, [*argv[1:], "-"], strict=False):
        alone = word == "--plan" and (after.startswith("-") or Path(after).is_dir())
        full += [word, "look-ahead"] if alone else [word]
    return full


def _evaluation(result: "Values") -> Iterator[str]:
    """A line for every seed, their mean if there are several, and a report on planning."""
    for row in with_mean(result):
        yield (
            f"seed {row['seed']}: reward {row['reward']:.2f}, cost {row['cost']:.1f} (limit "
            f"{result['cost_limit']:g}), within the limit {row['within_limit']:.0%}, mean of the "
            f"worst tenth {row['cost_cvar']:.1f}"
        )
    intervals = [
        f"{name} {low:.1f} to {high:.1f}"
        for name in ("reward", "cost")
        for low, high in filter(None, [result[f"{name}_interval"]])
    ]
    many = " per seed" * (len(result["seeds"]) > 1)
    episodes = f"{result['episodes']} fresh episodes{many}"
    parts = [episodes, *(f"95 % interval: {', '.join(intervals)}",) * bool(intervals)]
    yield "; ".join(parts) + _how(result)
    if "plan" in result:
        plan = result["plan"]
        line = f"{plan['how']}: a plan was followed at {plan['followed']:.1%} of the steps"
        if plan["safe"] is not None:
            line += f", {plan['safe']:.1%} of these plans were safe"
        if plan["plans_per_second"] is not None:
            line += f", {plan['plans_per_second']:,.0f} plans/s"
        yield line
        if plan["how"] == "filter" and result["cost"] < result["cost_limit"] / 2:
            yield (
                "the filter avoids every cost, whatever the limit is; a larger "
                "--planner.cost-threshold, the worst-case cost of a plan, steps in more rarely"
            )


def export(run: Run, path: Positional[Path] = Path("policy.npz"), which: int = 0) -> None:
    """Write a run's policy to one file that needs only numpy to act.

    Args:
        path: The file, .npz.
        which: Which of the run's seeds, counted from 0.
    """
    from surefoot.use.run import load, plan_of

    written = load(run, which).save(path)
    out.print(
        f"wrote {written}; in Python: surefoot.load({str(written)!r}).act(observation)",
        markup=False,
    )
    if plan_of(run):
        out.print("This is the policy without its planner or filter; it costs more without it.")


def runs(folder: Positional[Path] = Path("runs"), json_: Json = False) -> int:
    """List runs with their state, newest first; exit 1 if one is damaged.

    Args:
        folder: The folder that holds the runs.
    """
    from surefoot.runs.listing import list_runs

    states = list_runs(folder)
    lines = [] if states else [f"no runs in {folder}"]
    for run in states:
        words = f"{run.state:<9} {_progress(run)}"
        if run.evaluation is not None:
            words += f", {_fresh(run.evaluation)}"
        elif run.reward is not None:
            words += f", last epoch: reward {run.reward:.2f}, cost {run.cost:.1f}"
        started = f" (started {run.started})" if run.started else ""
        why = f": {run.problem}" if run.state in ("failed", "damaged") and run.problem else ""
        lines.append(f"{words}  {run.run}{started}{why}")
    emit(json_, [asdict(run) for run in states], lines)
    return 1 if any(run.state == "damaged" for run in states) else 0


def _fresh(evaluation: "Values") -> str:
    """An evaluation in short."""
    return (
        f"{evaluation['episodes']} fresh episodes: reward {evaluation['reward']:.2f}, cost "
        f"{evaluation['cost']:.1f}, within the limit {evaluation['within_limit']:.0%}"
    )


def _progress(run: "RunState") -> str:
    requested = "" if run.steps is None else f" of {run.steps:,}"
    return f"{run.real_steps:,}{requested} real steps"


def show(run: Run, json_: Json = False) -> int:
    """Show a run and check every file of it; exit 1 if something is damaged."""
    from surefoot.runs.listing import show_run

    report = show_run(run)
    emit(json_, asdict(report), _lines(report))
    return 1 if report.problems else 0


def _lines(report: "RunReport") -> Iterator[str]:
    yield f"{report.run}: {report.state}{f': {report.problem}' if report.problem else ''}"
    yield from (f"  damaged: {text}" for text in report.problems)
    if info := report.config:
        seeds = f"seeds {', '.join(map(str, info['seeds']))}"
        yield f"  {info['task_name']}, {info['algorithm']} ({info['preset']}), {seeds}"
        yield f"  started {info['started']} on {info['device']} with {info['version']}"
        if warm := info["warm_start"]:
            taken = ", ".join(warm["taken"])
            yield f"  warm start from {printable(warm['run'])}: {printable(taken)}"
        yield f"  known parts of the model: {', '.join(info['known']) or 'none'}"
    if report.evaluation:
        yield f"  {_fresh(report.evaluation)}"
    yield f"  epoch {report.epoch}, {_progress(report)}"
    if report.reward is not None:
        numbers = f"reward {report.reward:.2f}, cost {report.cost:.1f}"
        limit = "" if report.cost_limit is None else f" (limit {report.cost_limit:g})"
        yield f"  last epoch: {numbers}{limit}"
    for checkpoint in report.checkpoints:
        best = " (the best by its next real episodes)" if checkpoint["epoch"] == report.best else ""
        yield f"  checkpoint of epoch {checkpoint['epoch']}{best}: {checkpoint['path']}"
    if report.state in ("stopped", "failed") or report.problems:
        yield f"  resume with: {report.resume}"
