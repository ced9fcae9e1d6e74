"""The commands about runs on disk: resume, evaluate, export, runs and show."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro
from rich.markup import escape
from tyro.conf import Positional

from surefoot.cli.output import Json, emit, out

if TYPE_CHECKING:
    from surefoot.runs.listing import RunReport


def resume(
    run: Positional[Path],
    steps: int | None = None,
    device: Literal["auto", "cpu", "gpu"] = "auto",
    quiet: bool = False,
) -> None:
    """Resume a run from its last checkpoint, as if it had never stopped.

    Args:
        run: The run's folder.
        steps: A new number of real steps in all, to make a run longer.
        device: What learns; auto takes the device that the run was trained on.
        quiet: Show no progress.
    """
    from surefoot.runs import resume as runs
    from surefoot.runs.device import use_device

    use_device(runs.backend_of(run) if device == "auto" else device)
    print_result(runs.resume(run, steps=steps, quiet=quiet))


def print_result(path: Path) -> None:
    """Print the result of a finished run."""
    from surefoot import api
    from surefoot.runs.folder import RunFolder

    result = RunFolder(path).read_json("result.json")
    evaluation = result["evaluation"]
    spread = lambda name: (
        f" (±{evaluation[f'{name}_std']:.1f} over seeds)" if f"{name}_std" in evaluation else ""
    )
    verdict = "within" if evaluation["cost"] <= evaluation["cost_limit"] else "[red]above[/]"
    try:
        figure = str(api.learning_curve(path))
    except OSError as error:
        figure = f"curve.png cannot be written: {error.strerror or error}; the run is complete"
    saving = result["phases"].get("save", 0.0) / max(result["seconds"], 1e-9)
    out.print(
        f"\n{evaluation['episodes']} fresh episodes: reward [bold]{evaluation['reward']:.2f}[/]"
        f"{spread('reward')}, cost [bold]{evaluation['cost']:.1f}[/]{spread('cost')}, {verdict} "
        f"the limit of {evaluation['cost_limit']:g}; {evaluation['within_limit']:.0%} of episodes "
        f"within it\n{result['real_steps']:,} real steps in {result['seconds']:.0f} s, "
        f"{saving:.2%} of it for checkpoints\n"
        f"figure: {escape(figure)}\nrun:    {escape(str(path))}"
    )


def evaluate(argv: list[str]) -> int:
    """Evaluate a run. The run is read first: its planner is the default."""
    from surefoot.runs.train import EVALUATION_SEED
    from surefoot.use import evaluate as use
    from surefoot.world.planner import PlannerConfig

    argv = full_plan_option(argv)
    usual = _planner_of(argv)

    def command(
        run: Positional[Path],
        episodes: int | None = None,
        seed: int | None = None,
        deterministic: bool = False,
        plan: Literal["look-ahead", "filter"] | None = None,
        planner: PlannerConfig = usual,
        json_: Json = False,
    ) -> None:
        """Evaluate a run's policies on fresh episodes, as they are or with a planner on top.

        Args:
            run: The run's folder.
            episodes: Episodes per seed (default: 100, or 10 if every step is planned).
            seed: Added to the run's seeds; decides which episodes are met.
            deterministic: Take the policy's mode instead of drawing from it.
            plan: Plan every step with the run's model: look-ahead follows the plans (so does --plan
                alone), filter takes the policy's action unless it might cost too much.
            planner: Settings of the planner; the defaults are the run's own.
        """
        first = EVALUATION_SEED if seed is None else seed
        changed = None if planner == usual else planner
        result = use.evaluate(run, episodes, first, deterministic, plan, changed)
        emit(json_, result, _evaluation(result))

    tyro.cli(command, args=argv, prog="surefoot evaluate")
    return 0


def _planner_of(argv: list[str]) -> Any:
    """The planner of the run that is named."""
    from surefoot.algorithms.planning import default_planner
    from surefoot.runs.folder import RunFolder
    from surefoot.runs.info import read_info
    from surefoot.use.evaluate import planner_of

    run = next((Path(word) for word in argv if Path(word).is_dir()), None)
    try:
        return (
            default_planner("", True) if run is None else planner_of(read_info(RunFolder(run)), run)
        )
    except (ValueError, OSError, TypeError, KeyError):  # reported by `evaluate`
        return default_planner("", True)


def full_plan_option(argv: list[str]) -> list[str]:
    """`--plan` alone, at the end or before another option or a folder, means look-ahead."""
    full = []
    for word, after in zip(argv, [*argv, None][1:], strict=True):
        full.append(word)
        alone = after is None or after.startswith("-") or Path(after).is_dir()
        if word == "--plan" and alone:
            full.append("look-ahead")
    return full


def _evaluation(result: dict[str, Any]) -> list[str]:
    """A line for every seed, their mean if there are several, and a report on planning."""
    rows = result["seeds"] if len(result["seeds"]) == 1 else [
        *result["seeds"], {**result, "seed": "mean"}
    ]  # fmt: skip
    lines = [
        f"seed {row['seed']}: reward {row['reward']:.2f}, cost {row['cost']:.1f} (limit "
        f"{result['cost_limit']:g}), within the limit {row['within_limit']:.0%}, mean of the "
        f"worst tenth {row['cost_cvar']:.1f}"
        for row in rows
    ]
    if "plan" in result:
        plan = result["plan"]
        words = [f"{plan['how']}: a plan was followed at {plan['followed']:.1%} of the steps"]
        if plan["safe"] is not None:
            words.append(f"{plan['safe']:.1%} of these plans were safe")
        if plan["plans_per_second"] is not None:
            words.append(f"{plan['plans_per_second']:,.0f} plans/s")
        lines.append(", ".join(words))
    return lines


def export(
    run: Positional[Path], path: Positional[Path] = Path("policy.npz"), which: int = 0
) -> None:
    """Write a run's policy to one file that needs only numpy to act.

    Args:
        run: The run's folder.
        path: The file, .npz.
        which: Which of the run's seeds, counted from 0.
    """
    from surefoot.use.run import load, plans_itself

    out.print(f"wrote {load(run, which).save(path)}", markup=False)
    if plans_itself(run):
        out.print("This is the policy without its planner; it does not keep the limit.")


def runs(folder: Positional[Path] = Path("runs"), json_: Json = False) -> None:
    """List runs with their state, newest first.

    Args:
        folder: The folder that holds the runs.
    """
    from surefoot.runs.listing import list_runs

    rows = list_runs(folder)
    lines = [] if rows else [f"no runs in {folder}"]
    for row in rows:
        requested = "" if row["steps"] is None else f" of {row['steps']:,}"
        words = f"{row['state']:<9} {row['real_steps']:,}{requested} real steps"
        if row["reward"] is not None:
            words += f", reward {row['reward']:.2f}, cost {row['cost']:.1f}"
        started = f" (started {row['started']})" if row["started"] else ""
        lines.append(f"{words}  {row['run']}{started}")
    emit(json_, rows, lines)


def show(run: Positional[Path], json_: Json = False) -> int:
    """Show a run and check every file of it; exit 1 if something is damaged.

    Args:
        run: The run's folder.
    """
    from surefoot.runs.listing import show_run

    row = show_run(run)
    emit(json_, row, _lines(row))
    return 1 if row["problems"] else 0


def _lines(row: "RunReport") -> list[str]:
    problem = f": {row['problem']}" if row["problem"] else ""
    lines = [f"{row['run']}: {row['state']}{problem}"]
    lines += [f"  damaged: {text}" for text in row["problems"]]
    if row["config"]:
        info = row["config"]
        seeds = f"seeds {', '.join(map(str, info['seeds']))}"
        lines.append(f"  {info['task_name']}, {info['algorithm']} ({info['preset']}), {seeds}")
        lines.append(f"  started {info['started']} on {info['device']} with {info['version']}")
        lines.append(f"  known parts of the model: {', '.join(info['known']) or 'none'}")
    requested = "" if row["steps"] is None else f" of {row['steps']:,}"
    lines.append(f"  epoch {row['epoch']}, {row['real_steps']:,}{requested} real steps")
    if row["reward"] is not None:
        lines.append(
            f"  last epoch: reward {row['reward']:.2f}, cost {row['cost']:.1f} "
            f"(limit {row['cost_limit']:g})"
        )
    evaluation = (row["result"] or {}).get("evaluation")
    if evaluation:
        lines.append(
            f"  {evaluation['episodes']} fresh episodes: reward {evaluation['reward']:.2f}, cost "
            f"{evaluation['cost']:.1f}, within the limit {evaluation['within_limit']:.0%}"
        )
    for checkpoint in row["checkpoints"]:
        best = " (the best)" if checkpoint["epoch"] == row["best"] else ""
        lines.append(f"  checkpoint of epoch {checkpoint['epoch']}{best}: {checkpoint['path']}")
    if row["state"] in ("stopped", "failed") or row["problems"]:
        lines.append(f"  resume with: {row['resume']}")
    return lines
