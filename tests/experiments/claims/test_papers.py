"""The claims that come with laggard: each is well formed, and their rows and page are those of the
repository.
"""

import math
import re
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from laggard.experiments.claims import Criterion, claims, ledger
from laggard.experiments.claims import papers as modules
from laggard.experiments.claims.claim import Study, Tuning, log_grid, paragraph
from laggard.experiments.claims.ledger import STORED, figure_table, stored_arrays
from laggard.experiments.claims.pages import Evidence, pages
from laggard.experiments.claims.probing import PROBES
from laggard.experiments.claims.reproduction import measured_so_far

ROOT = Path(__file__).parents[3]
CLAIMS = claims()
A1, *_ = CLAIMS


def flaws(claim):
    """What is not well formed in a claim, a line each."""
    texts = (
        claim.question,
        claim.says,
        claim.setting,
        *claim.beside.values(),
        *(each.says for each in claim.criteria),
    )
    bars = [(each.at_least, each.at_most) for each in claim.criteria]
    tunings = [study.tuned.on for study in claim.studies.values() if study.tuned is not None]
    wrong = {
        "its id is no letter and number": not re.fullmatch(r"[A-Z]\d+", claim.id),
        "a text is missing": not all(texts),
        "a text has line breaks or two spaces": any(
            text != paragraph(text) for text in (*texts, claim.notes)
        ),
        "its mark is unknown": claim.mark not in ("read", "notes", "recalled", "derived"),
        "nothing is run": not claim.studies,
        "nothing decides it": not claim.criteria,
        "two criteria look at one number": len({each.number for each in claim.criteria})
        < len(claim.criteria),
        "a bar is not finite": not all(
            math.isfinite(bar) for pair in bars for bar in pair if bar is not None
        ),
        "nothing lies between its bars": any(
            None not in pair and pair[0] > pair[1] for pair in bars
        ),
        "it is tuned on a study that is not there": not set(tunings) <= set(claim.studies),
        "a probe is unknown": not {study.probe for study in claim.studies.values()}
        <= {None, *PROBES},
    }
    return [flaw for flaw, found in wrong.items() if found]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_well_formed(claim):
    assert flaws(claim) == []


@pytest.mark.parametrize(("change", "flaw"), [
    ({"id": "A"}, "its id is no letter and number"),
    ({"beside": {"lr_max_0": ""}}, "a text is missing"),
    ({"notes": "two  spaces"}, "a text has line breaks or two spaces"),
    ({"mark": "heard"}, "its mark is unknown"),
    ({"studies": {}}, "nothing is run"),
    ({"criteria": ()}, "nothing decides it"),
    ({"criteria": (A1.criteria[0],) * 2}, "two criteria look at one number"),
    ({"criteria": (Criterion("ratio", "it", at_most=math.inf),)}, "a bar is not finite"),
    ({"criteria": (Criterion("ratio", "it", at_least=1.0, at_most=0.9),)}, "nothing lies between its bars"),
    ({"studies": {"grid": Study({}, tuned=Tuning("nothing"))}}, "it is tuned on a study that is not there"),
    ({"studies": {"grid": Study({}, probe="gap")}}, "a probe is unknown"),
])  # fmt: skip
def test_a_claim_that_is_not_well_formed_is_noticed(change, flaw):
    assert flaws(replace(A1, **change)) == [flaw]


def test_ids_are_unique_and_a_module_has_the_claims_of_its_paper():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert [claim.place for claim in CLAIMS] == sorted(claim.place for claim in CLAIMS)
    stems = {
        Path(entry.name).stem for entry in files(modules).iterdir() if entry.name.endswith(".py")
    } - {"__init__"}
    # a paper of many claims has a second module, key_subject
    keys = {stem.partition("_")[0] for stem in stems}
    assert {claim.paper.key for claim in CLAIMS} == keys
    assert len({claim.paper for claim in CLAIMS}) == len(keys)
    for claim in CLAIMS:
        assert claim.decide.__module__.rpartition(".")[2].partition("_")[0] == claim.paper.key


def test_a_criterion_without_a_bar_is_refused():
    with pytest.raises(ValueError, match="it: expected at_most, at_least or both"):
        Criterion("number", "it")


def test_the_settings_of_a_log_grid_are_equal_factors_apart_to_three_digits():
    settings = log_grid(1e-5, 0.1, 3)
    assert len(settings) == 13
    assert (settings[0], settings[-1]) == (1e-5, 0.1)
    for low, high in pairwise(settings):
        assert high / low == pytest.approx(10 ** (1 / 3), rel=0.005)


def test_each_stored_row_is_of_a_claim_and_names_its_version():
    """Rows may be missing, or decided by earlier criteria: the pages show such claims as not
    run.
    """
    rows = ledger(STORED, "cpu")
    assert rows.keys() <= {claim.id for claim in CLAIMS}
    # of runs of several sittings
    versions = [version for row in rows.values() for version in row.version.split(", ")]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
    assert all(rows[claim.id].paper == claim.paper.key for claim in CLAIMS if claim.id in rows)


def test_the_pages_of_the_repository_are_those_of_its_rows():
    rows = ledger(STORED, "cpu")
    studies = {name: found for name in rows if (found := stored_arrays(name)) is not None}
    evidence = Evidence(CLAIMS, rows, studies, {}, "cpu")
    folder = ROOT / "results" / "claims" / "cpu"
    pictures = {
        claim.id: folder / f"{claim.id}.png"
        for claim in CLAIMS
        if claim.figure and evidence.row(claim)
    }
    if measured_so_far(A1, "grid", "cpu") is not None:
        pictures["rates"] = folder / "rates.png"
    grids = [name for name in pictures if name in studies and claims([name])[0].grid]
    pictures |= {f"{name}, grid": folder / f"{name}-grid.png" for name in grids}
    for path, text in pages(replace(evidence, pictures=pictures), ROOT / "REPRODUCTION.md").items():
        assert text == path.read_text(encoding="utf-8"), path.name
    assert all(path.is_file() for path in pictures.values())
    assert all(len(figure_table(evidence.rows[name])) for name in pictures if name in evidence.rows)
