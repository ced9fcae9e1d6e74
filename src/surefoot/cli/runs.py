"""The commands about runs on disk: resume, evaluate, export, runs and show."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import Positional

out = Console(highlight=False, soft_wrap=True)


def resume(
    run: Positional[Path],
    steps: int | None = None,
    device: Literal["auto", "cpu", "gpu"] = "auto",
    quiet: bool = False,
) -> None:
    """Go on with a run from its last checkpoint, as if it had never stopped.

    Args:
        run: The run's folder.
        steps: A new number of real steps in all, to make a run longer.
        device: What learns; auto takes what the run has learned on so far.
        quiet: Show no progress.
    """
    from surefoot.runs.device import use_device
    from surefoot.runs.resume import backend_of
    from surefoot.runs.resume import resume as resume_run

    use_device(backend_of(run) if device == "auto" else device)
    print_result(resume_run(run, steps=steps, quiet=quiet))


def print_result(path: Path) -> None:
    """What a finished run has come to."""
    from surefoot.runs import train as runs

    result = runs.RunFolder(path).read_json("result.json")
    found = result["evaluation"]
    spread = f" (±{found['reward_std']:.1f} over seeds)" if "reward_std" in found else ""
    cost_spread = f" (±{found['cost_std']:.1f})" if "cost_std" in found else ""
    verdict = "within" if found["cost"] <= found["cost_limit"] else "[red]above[/]"
    try:
        figure = str(runs.learning_curve(path))
    except OSError as error:
        figure = f"curve.png cannot be written: {error.strerror or error}; the run is complete"
    saving = result["phases"].get("save", 0.0) / max(result["seconds"], 1e-9)
    out.print(
        f"\n{found['episodes']} fresh episodes: reward [bold]{found['reward']:.2f}[/]{spread}, "
        f"cost [bold]{found['cost']:.1f}[/]{cost_spread}, {verdict} the limit of "
        f"{found['cost_limit']:g}; {found['within_limit']:.0%} of episodes within it\n"
        f"{result['real_steps']:,} real steps in {result['seconds']:.0f} s, {saving:.2%} of it for "
        f"checkpoints\n"
        f"figure: {escape(figure)}\nrun:    {escape(str(path))}"
    )


def evaluate(argv: list[str]) -> int:
    """Evaluate a run. Parsed in two steps: the run says how it plans, which are the defaults."""
    from surefoot.runs import train as runs
    from surefoot.world.planner import PlannerConfig

    usual = _usual_planner(argv)

    def command(
        run: Positional[Path],
        episodes: int | None = None,
        seed: int | None = None,
        deterministic: bool = False,
        plan: Literal["look-ahead", "filter"] | None = None,
        planner: PlannerConfig = usual,
        json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
    ) -> None:
        """Evaluate a run's policies on fresh episodes, as they are or with a planner on top.

        Args:
            run: The run's folder.
            episodes: Episodes per seed (default: 100, or 10 where every step is planned).
            seed: Where the environments' seeds start.
            deterministic: Act by the policy's mode instead of drawing from it.
            plan: Plan every step with the run's model: look-ahead does as planned (so does --plan
                alone), filter keeps the policy's action unless it might cost too much.
            planner: How to plan; the defaults are the run's own, if it is one of safe-loop.
            json_: Print one JSON object.
        """
        first = runs.EVALUATION_SEED if seed is None else seed
        said = None if planner == usual else planner
        found = runs.evaluate(run, episodes, first, deterministic, plan, said)
        if json_:
            print(json.dumps(found, indent=1))
        else:
            out.print("\n".join(_evaluation(found)), markup=False)

    tyro.cli(command, args=argv, prog="surefoot evaluate")
    return 0


def _usual_planner(argv: list[str]) -> Any:
    """How the run that is named plans."""
    from surefoot.algorithms.presets import planner
    from surefoot.runs.folder import RunFolder
    from surefoot.runs.info import read_info
    from surefoot.use.plan import usual_planner

    run = next((Path(word) for word in argv if Path(word).is_dir()), None)
    try:
        return planner(True) if run is None else usual_planner(read_info(RunFolder(run)))
    except (ValueError, OSError, TypeError, KeyError):  # which evaluating it will tell
        return planner(True)


def plan_in_full(argv: list[str]) -> list[str]:
    """`--plan` alone, at the end or before another option or a folder, means look-ahead."""
    full = []
    for word, after in zip(argv, [*argv, None][1:], strict=True):
        full.append(word)
        alone = after is None or after.startswith("-") or Path(after).is_dir()
        if word == "--plan" and alone:
            full.append("look-ahead")
    return full


def _evaluation(found: dict[str, Any]) -> list[str]:
    """A line for every seed, and how was planned."""
    lines = [
        f"seed {row['seed']}: reward {row['reward']:.2f}, cost {row['cost']:.1f} (limit "
        f"{found['cost_limit']:g}), within the limit {row['within_limit']:.0%}, mean of the "
        f"worst tenth {row['cost_cvar']:.1f}"
        for row in [*found["seeds"], {**found, "seed": "all"}]
    ]
    if "plan" in found:
        plan = found["plan"]
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
    from surefoot.runs import train as runs

    out.print(f"wrote {runs.policy_of(run, which).save(path)}", markup=False)
    if runs.plans_itself(run):
        out.print("This is safe-LOOP's policy without its planner, and keeps no limit.")


def runs(
    folder: Positional[Path] = Path("runs"),
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """List runs with their state, newest first.

    Args:
        folder: Where the runs lie.
        json_: Print one JSON list.
    """
    from surefoot.runs.listing import list_runs

    rows = list_runs(folder)
    if json_:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        out.print(f"there are no runs in {folder}", markup=False)
    for row in rows:
        goal = "" if row["steps"] is None else f" of {row['steps']:,}"
        words = f"{row['state']:<9} {row['real_steps']:,}{goal} real steps"
        if row["reward"] is not None:
            words += f", reward {row['reward']:.2f}, cost {row['cost']:.1f}"
        started = f" (started {row['started']})" if row["started"] else ""
        out.print(f"{words}  {row['run']}{started}", markup=False)


def show(run: Positional[Path], json_: Annotated[bool, tyro.conf.arg(name="json")] = False) -> int:
    """Show a run and check every file of it; exit 1 if something is damaged.

    Args:
        run: The run's folder.
        json_: Print one JSON object.
    """
    from surefoot.runs.listing import show_run

    found = show_run(run)
    if json_:
        print(json.dumps(found, indent=1))
    else:
        out.print("\n".join(_lines(found)), markup=False)
    return 1 if found["problems"] else 0


def _lines(found: dict[str, Any]) -> list[str]:
    problem = f": {found['problem']}" if found["problem"] else ""
    lines = [f"{found['run']}: {found['state']}{problem}"]
    lines += [f"  damaged: {text}" for text in found["problems"]]
    if found["config"]:
        info = found["config"]
        seeds = f"seeds {', '.join(map(str, info['seeds']))}"
        task = info["task"] or "own environments"
        lines.append(f"  {task}, {info['algorithm']} ({info['preset']}), {seeds}")
        lines.append(f"  started {info['started']} on {info['device']} with {info['version']}")
        lines.append(f"  known to the model: {', '.join(info.get('known', [])) or 'nothing'}")
    goal = "" if found["steps"] is None else f" of {found['steps']:,}"
    lines.append(f"  epoch {found['epoch']}, {found['real_steps']:,}{goal} real steps")
    if found["reward"] is not None:
        lines.append(
            f"  last epoch: reward {found['reward']:.2f}, cost {found['cost']:.1f} "
            f"(limit {found['cost_limit']:g})"
        )
    evaluation = (found["result"] or {}).get("evaluation")
    if evaluation:
        lines.append(
            f"  {evaluation['episodes']} fresh episodes: reward {evaluation['reward']:.2f}, cost "
            f"{evaluation['cost']:.1f}, within the limit {evaluation['within_limit']:.0%}"
        )
    for checkpoint in found["checkpoints"]:
        best = " (the best)" if checkpoint["epoch"] == found["best"] else ""
        lines.append(f"  checkpoint of epoch {checkpoint['epoch']}{best}: {checkpoint['path']}")
    if found["state"] in ("stopped", "failed") or found["problems"]:
        lines.append(f"  go on with: {found['resume']}")
    return lines
