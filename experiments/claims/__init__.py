"""Claims of papers compared with runs: a claim is data and a function, its verdict is computed."""

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
