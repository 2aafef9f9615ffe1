"""Findings as a table for a terminal, and as JSON."""

import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter

from experiments.verify.families import FAMILIES
from experiments.verify.finding import Finding

WIDTHS = {"statement": 51, "source": 23, "expected": 10, "measured": 10, "tolerance": 9}


def as_text(found: Sequence[Finding]) -> str:
    """The findings under their families' titles, at most 120 columns wide."""
    head = "  ".join(_aligned(name, name) for name in WIDTHS) + "  verdict"
    lines = []
    for name, rows in groupby(found, key=attrgetter("family")):
        lines += [f"{FAMILIES[name].title} ({name})", head, *map(_row, rows), ""]
    return "\n".join(lines)


def summary(found: Sequence[Finding], seconds: float) -> str:
    """`61 of 61 hold, 74 s`."""
    return f"{sum(finding.holds for finding in found)} of {len(found)} hold, {seconds:.0f} s"


def as_json(found: Sequence[Finding], seconds: float) -> str:
    """Every finding with its verdict, and how many hold; what is no number is null."""
    rows = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in ({**asdict(finding), "holds": finding.holds} for finding in found)
    ]
    counts = {"holds": sum(finding.holds for finding in found), "of": len(found), "seconds": round(seconds, 1)}
    return json.dumps({**counts, "findings": rows}, indent=2)


def _row(finding: Finding) -> str:
    sign = "" if finding.relation == "=" else finding.relation + " "
    cells = {
        "expected": sign + _number(finding.expected),
        "measured": _number(finding.measured),
        "tolerance": _number(finding.tolerance, 2),
    }
    texts = {name: textwrap.wrap(getattr(finding, name), WIDTHS[name]) or [""] for name in ("statement", "source")}
    lines = []
    for index in range(max(map(len, texts.values()))):
        texts_here = {name: text[index] if index < len(text) else "" for name, text in texts.items()}
        row = {**texts_here, **(cells if index == 0 else dict.fromkeys(cells, ""))}
        verdict = ("holds" if finding.holds else "FAILS") if index == 0 else ""
        lines.append("  ".join([*(_aligned(name, row[name]) for name in WIDTHS), verdict]).rstrip())
    return "\n".join(lines)


def _aligned(name: str, text: str) -> str:
    width = WIDTHS[name]
    return text.ljust(width) if name in ("statement", "source") else text.rjust(width)


def _number(value: float, digits: int = 5) -> str:
    return f"{value:.{digits}g}"
