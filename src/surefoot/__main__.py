"""`python -m surefoot` is `surefoot`."""

from surefoot.cli import main

main()
