"""The commands about environments: envs, watch and parity."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table
from tyro.conf import Positional

from surefoot.cli.output import Json, emit, err, out, progress


def envs(json_: Json = False) -> None:
    """List the tasks with their sizes and options."""
    from surefoot.envs.family.tasks import describe_families
    from surefoot.envs.task import TASKS, describe

    families = describe_families()
    members = {name for family in families for name in family["observations"]}
    rows = [describe(TASKS[name]) for name in TASKS if name not in members]
    if json_:
        emit(True, rows + families, ())
        return
    for row in rows:
        sizes = ", ".join(f"{name} {size}" for name, size in row["observations"].items())
        limits = ", ".join(f"{name} (limit {x:g})" for name, x in row["cost_limits"].items())
        out.print(f"\n[bold]{row['name']}[/]  ({row['id']})\n  {row['summary']}")
        out.print(f"  observations: {sizes}; actions: {row['actions']}; costs: {limits}")
        out.print(_options(row["options"]))
    for row in families:
        names = [f"{robot}{row['name']}" for robot in row["robots"]]
        levels = ", ".join(map(str, row["levels"]))
        out.print(f"\n[bold]{', '.join(names)}[/]  with level {levels}, such as {names[0]}0")
        costs = [f"{n}: {', '.join(x) or 'none'}" for n, x in row["costs"].items()]
        out.print(f"  {row['summary']}\n  costs by level: {'; '.join(costs)} (limit 25 on any)")
        table = Table("observations", *names, box=None, pad_edge=False, padding=(0, 2))
        for level in row["levels"]:
            sizes = [str(row["observations"][f"{name}{level}"]) for name in names]
            table.add_row(f"  level {level}", *sizes)
        table.add_row("  actions", *(str(n) for n in row["actions"].values()))
        out.print(table)
    out.print("\nOptions of all tasks with levels, with the values of the last one:")
    out.print(_options(families[-1]["options"]))


def _options(options: list[dict[str, Any]]) -> Table:
    table = Table("option", "default", "meaning", box=None, pad_edge=False, padding=(0, 2))
    for option in options:
        table.add_row(option["name"], str(option["default"]), option["help"])
    return table


def parity(files: Positional[tuple[Path, ...]], json_: Json = False) -> int:
    """Replay recordings of the reference environment and compare; exit 1 outside tolerance.

    Args:
        files: Recordings (.npz).
    """
    from surefoot.envs.parity import check

    if not files:
        raise ValueError("files: no recording was given; usage: surefoot parity FILE.npz …")
    reports = [check(f) for f in files]
    emit(json_, [r.as_dict() for r in reports], [r.line() for r in reports])
    bad = [(r.file, r.failures()) for r in reports if r.failures()]
    for name, failures in bad:
        err.print(f"[red]outside tolerance[/] {name}: {'; '.join(failures)}")
    return 1 if bad else 0


def watch(
    what: Positional[str],
    out_: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    policy: Literal["random", "still"] = "random",
    which: tuple[int, ...] = (0,),
    plan: Literal["look-ahead", "filter"] | None = None,
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    seed: int = 0,
    every: int = 2,
    size: int = 640,
    cost_limit: float | None = None,
    beside: bool = False,
) -> None:
    """Film one episode of a task or of a run.

    Args:
        what: A task (see surefoot train), or a run's folder, whose policy then acts.
        out_: The clip's file, .mp4 or .gif; clip.mp4 if not given, or clip.gif without imageio.
        policy: What acts if no run does.
        which: Which of the run's seeds act, counted from 0; several are shown in a grid.
        plan: Plan on top of the run's policy, as in evaluate; safe-loop runs look ahead anyway.
        view: top is drawn from above (velocity tasks: from the side) and needs no OpenGL; camera
            is MuJoCo's and does.
        steps: Steps to film; one episode if not given.
        seed: Which episode.
        every: Film every n-th step.
        size: Width of the picture in pixels.
        cost_limit: Limit shown beside the running cost.
        beside: Show the policy without the plan beside it.
    """
    from surefoot.envs.render.clip import default_clip

    out_ = out_ or default_clip()
    if Path(what).is_dir():
        from surefoot.use.film import film as film_run

        with progress("filming") as show:
            path = film_run(
                what, out_, which, view, steps, seed, every, size, plan, beside, on_step=show
            )
    elif plan is not None:
        raise ValueError(f"--plan {plan} needs a run with a model: {what!r} is not a run's folder")
    else:
        from surefoot.envs.render.film import film

        path = film(what, out_, policy, view, steps, seed, every, size, cost_limit)
    out.print(f"wrote {path}", markup=False)
