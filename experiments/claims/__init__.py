"""Claims of papers compared with runs: a claim is data and a function, its verdict is computed."""
# ruff: noqa: E402

from laggard.models.optional import import_optional

import_optional(
    "xarray", "claims"
)  # one line with the remedy, before any module of claims needs it

from laggard.experiments.claims.claim import Claim, Criterion
from laggard.experiments.claims.ledger import ledger
from laggard.experiments.claims.papers import claims
from laggard.experiments.claims.presentation import standing
from laggard.experiments.claims.reproduction import decide_again, repeat, reproduce
from laggard.experiments.claims.verdicts import Verdict

__all__ = [
    "Claim",
    "Criterion",
    "Verdict",
    "claims",
    "decide_again",
    "ledger",
    "repeat",
    "reproduce",
    "standing",
]
