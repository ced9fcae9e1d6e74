"""Copy finished or stopped runs to docs/results: settings, metrics and evaluation.

    python benchmarks/keep_runs.py runs/point-goal1-seed-* --to docs/results

Metrics are rounded to seven digits, and the output folder in the command is its name alone.
/surefoot stands for the folders of one machine that `--folders` names.
"""

import argparse
import csv
import io
import json
import shlex
from pathlib import Path

from surefoot.runs.folder import METRICS, RunFolder


def short_command(command: str, name: str) -> str:
    """The command with `--out NAME` instead of a path of one machine."""
    words = [
        f"--out={name}" if word.startswith("--out=") else word for word in shlex.split(command)
    ]
    if "--out" in words:
        words[words.index("--out") + 1] = name
    return shlex.join(words)


def rounded(text: str) -> str:
    """Numbers with seven digits; integers and words as they are."""
    try:
        return min(text, f"{float(text):.7g}" if "." in text else text, key=len)
    except ValueError:
        return text


def keep(run: Path, to: Path, folders: list[str]) -> None:
    """Copy one run; its checkpoints and pictures stay behind."""
    old, new = RunFolder(run), RunFolder(to / run.name)
    new.path.mkdir(parents=True, exist_ok=True)
    text = json.dumps(old.read_json("config.json"))
    for folder in folders:
        text = text.replace(f"{folder.rstrip('/')}/", "/surefoot/")
    config = json.loads(text)
    new.write_json("config.json", config | {"command": short_command(config["command"], run.name)})
    if (run / "result.json").exists():
        new.write_json("result.json", old.read_json("result.json"))
    header, *rows = csv.reader(io.StringIO(old.metrics_bytes().decode()))
    lines = [header, *([rounded(text) for text in row] for row in rows)]
    new.write(METRICS, "".join(",".join(line) + "\n" for line in lines).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--to", type=Path, default=Path("docs/results"))
    parser.add_argument("--folders", nargs="*", default=[])
    arguments = parser.parse_args()
    for run in arguments.runs:
        keep(run, arguments.to, arguments.folders)
