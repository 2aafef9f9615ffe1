"""What papers claim, held against runs: a claim is data, its verdict is computed."""

from experiments.claims.claim import Claim, Criterion, Paper, claims
from experiments.claims.ledger import Entry, Repeat, Row, ledger
from experiments.claims.reproduction import repeated, reproduced
from experiments.claims.standing import Standing, standing
from experiments.claims.verdicts import Finding, Outcome, Verdict

__all__ = [
    "Claim", "Criterion", "Entry", "Finding", "Outcome", "Paper", "Repeat", "Row", "Standing", "Verdict", "claims",
    "ledger", "repeated", "reproduced", "standing",
]  # fmt: skip
