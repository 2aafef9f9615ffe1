"""What papers claim, held against runs: a claim is data, its verdict is computed."""

from experiments.claims.claim import Claim, Criterion, Paper, claims
from experiments.claims.ledger import Entry, Row, findings, ledger, verdicts
from experiments.claims.reproduction import reproduced
from experiments.claims.verdicts import Finding, Outcome, Verdict

__all__ = [
    "Claim", "Criterion", "Entry", "Finding", "Outcome", "Paper", "Row", "Verdict", "claims", "findings", "ledger",
    "reproduced", "verdicts",
]  # fmt: skip
