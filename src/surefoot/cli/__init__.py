"""The command line: parse, call the library, print."""

from surefoot.cli.app import COMMANDS as COMMANDS
from surefoot.cli.app import main as main
