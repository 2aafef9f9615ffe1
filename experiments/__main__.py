"""Runs the command `laggard` as `python -m experiments`, from a checkout."""

import sys

from laggard.__main__ import entry

sys.exit(entry())
