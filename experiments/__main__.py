"""`python -m experiments`, from a checkout, is `laggard`."""

import sys

from laggard.__main__ import entry

sys.exit(entry())
