"""Correctness in public: the identities and closed forms of every family, run as experiments."""

from experiments.verify.families import FAMILIES, finding_by_finding, findings, verify
from experiments.verify.finding import Family, Finding
from experiments.verify.report import as_json, as_text, summary

__all__ = ["FAMILIES", "Family", "Finding", "as_json", "as_text", "finding_by_finding", "findings", "summary", "verify"]
