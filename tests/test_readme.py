"""What the README says can be done is done here, and its numbers are those of the stored rows."""

import re
from collections import Counter

import pandas as pd
import pytest

from laggard.experiments.claims import Verdict, claims, ledger
from laggard.experiments.claims.pages import Evidence
from laggard.experiments.claims.presentation import NOT_RUN
from laggard.experiments.claims.statistics import final
from laggard.experiments.claims.studies import kept_runs
from laggard.experiments.config.grid import fill_swept_keys
from tests.documents import ROOT, Reader, blocks, commands

README = ROOT / "README.md"
WORDS = {
    Verdict.HOLDS: "hold",
    Verdict.IN_PART: "hold in part",
    Verdict.FAILS: "fail",
    Verdict.OPEN: "are open",
    Verdict.SILENT: "say nothing",
    NOT_RUN: "wait to be run",
}


def test_readme_is_short_and_shows_commands():
    assert len(README.read_text().splitlines()) <= 150
    assert sum(block.language == "python" for block in blocks(README)) >= 2
    assert {"make quickstart", "make test"} <= {
        line.partition("#")[0].strip() for line in commands(README)
    }


@pytest.mark.long
def test_readme_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    Reader(tmp_path, monkeypatch, capsys).follow(README)


def numbered(words, count):
    """`words` about so many claims, of which they begin with what these do."""
    verb, _, rest = words.partition(" ")
    one = {"are": "is"}.get(verb, f"{verb}s")
    return " ".join([one if count == 1 else verb, *rest.split()])


def test_readme_has_the_accuracy_of_the_figure():
    grid = claims(["A1"])[0].studies["grid"]
    kept = kept_runs(fill_swept_keys(grid.document("cpu")), ROOT / "results/claims/partial")
    best = final(kept, "accuracy").mean("seed").max("lr")
    lost = 100 * (best.sel(delay=0) - best.sel(delay=256))
    said = " ".join(README.read_text().split())
    assert (
        f"256 updates costs SGD with momentum {float(lost.sel(optimiser='momentum')):.1f} points of accuracy at its "
        f"best rate, and Adam {float(lost.sel(optimiser='adam')):.1f}." in said
    )
    adam, momentum = (-100 * number.value for number in ledger()["A4"].criteria[:2])
    assert (
        f"In other seeds, at rates that these three chose, it costs {momentum:.1f} and {adam:.1f}."
        in said
    )


def test_readme_counts_the_stored_verdicts():
    evidence = Evidence(claims(), ledger(), {}, {}, "cpu")
    counts = Counter(
        evidence.verdict(claim) for claim in evidence.claims if claim.basis == "network"
    )
    said = [
        f"{counts[verdict]} {numbered(words, counts[verdict])}"
        for verdict, words in WORDS.items()
        if counts[verdict]
    ]
    text = " ".join(README.read_text().split())
    assert (
        f"{len(evidence.claims)} claims** of papers, {counts.total()} of them on trained networks"
        in text
    )
    assert f"of the {counts.total()}, {', '.join(said)}." in text


def test_readme_bounds_the_stored_errors():
    stored = (
        pd.read_csv(ROOT / "results/real/comparison.csv").set_index("quantity")["difference"].abs()
    )
    worst = 100 * stored["updates/s"].max(), 100 * stored["waiting"].max()
    words = (
        r"predict another within ([\d.]+) % in updates per second and ([\d.]+) points in waiting"
    )
    said = re.search(words, " ".join(README.read_text().split()))
    assert said
    for bound, found in zip(map(float, said.groups()), worst, strict=True):
        assert found <= bound < found + 0.1
