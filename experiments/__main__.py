"""`python -m experiments` is `laggard`."""

import sys

from experiments.cli import entry

sys.exit(entry())
