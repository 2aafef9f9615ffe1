"""`python -m experiments`, from a checkout, is `laggard`."""

import sys

from laggard.experiments.cli import entry

sys.exit(entry())
