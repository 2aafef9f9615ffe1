"""`python -m laggard` is `laggard`."""

import sys

from laggard.experiments.cli import entry

sys.exit(entry())
