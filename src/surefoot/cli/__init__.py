"""The command line: parse, call the library, print."""

from surefoot.runs.interrupt import end_at_signals

COMMANDS = {
    "check": ("check:check", "check an environment before training on it"),
    "train": ("train:train", "train a policy on a task"),
    "resume": ("runs:resume", "resume a run, or make it longer"),
    "runs": ("runs:runs", "list runs with their state"),
    "show": ("runs:show", "show a run and check its files"),
    "evaluate": ("runs:evaluate", "evaluate a run on fresh episodes"),
    "compare": ("report:compare", "compare runs: statistics, figures and a page"),
    "report": ("report:report", "write a page about one run"),
    "reproduce": ("reproduce:reproduce", "run an experiment and write its page"),
    "diagnose": ("diagnose:diagnose", "check a run's learned model on real episodes"),
    "export": ("runs:export", "write a run's policy to a file that needs only numpy"),
    "envs": ("envs:envs", "list the tasks with their sizes and options"),
    "watch": ("envs:watch", "film an episode"),
    "parity": ("envs:parity", "compare with recordings of the reference environment"),
    "benchmark all": ("benchmark:benchmark_all", "all parts of training against a fixed loop"),
    "benchmark env": ("benchmark:benchmark_env", "steps per second of environments"),
    "benchmark train": ("benchmark:benchmark_train", "steps per second of training"),
    "benchmark imagination": ("benchmark:benchmark_imagination", "imagined steps per second"),
    "benchmark planner": ("benchmark:benchmark_planner", "planned steps per second"),
    "benchmark profile": ("benchmark:benchmark_profile", "where the time of training goes"),
    "benchmark growth": ("benchmark:benchmark_growth", "how time and memory grow with the work"),
}
"""Where the function of each command lives, imported when it runs, and what it does."""


def main(argv: list[str] | None = None) -> None:
    """Entry point of `surefoot`; without `argv` this process is the program's own."""
    if argv is None:
        end_at_signals()
    from surefoot.cli.app import run  # takes a while, so signals come first

    run(argv)
