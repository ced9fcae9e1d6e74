"""The program: `surefoot`, or `python -m surefoot`."""

import sys

from surefoot.cli import main
from surefoot.core.memory import keep_memory


def program() -> None:
    """Entry point of `surefoot`."""
    keep_memory()
    sys.argv[0] = "surefoot"  # as runs write down their command
    main()


if __name__ == "__main__":
    program()
