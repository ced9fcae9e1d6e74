"""`python -m surefoot` is `surefoot`."""

import sys

from surefoot.cli import main

sys.argv[0] = "surefoot"  # as runs write down their command
main()
