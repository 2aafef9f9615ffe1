"""Claims of papers compared with runs: a claim is data and a function, its verdict is computed."""

from laggard.experiments.claims.claim import Claim, Criterion, Paper
from laggard.experiments.claims.ledger import Repeat, Row, ledger
from laggard.experiments.claims.papers import claims
from laggard.experiments.claims.presentation import Standing, standing
from laggard.experiments.claims.reproduction import repeat, reproduce
from laggard.experiments.claims.verdicts import CriterionOutcome, RowEntry, Verdict

__all__ = [
    "Claim",
    "Criterion",
    "CriterionOutcome",
    "Paper",
    "Repeat",
    "Row",
    "RowEntry",
    "Standing",
    "Verdict",
    "claims",
    "ledger",
    "repeat",
    "reproduce",
    "standing",
]  # fmt: skip
