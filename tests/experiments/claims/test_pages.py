"""The pages that rows make: the first one, one a paper, the appendix."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from laggard.experiments.claims import claims, reproduce
from laggard.experiments.claims.exhibits import ClaimTable
from laggard.experiments.claims.ledger import stored_arrays
from laggard.experiments.claims.pages import (
    Evidence,
    matrix_cell,
    pages,
    summary_sentences,
)
from laggard.experiments.claims.presentation import is_outdated
from laggard.experiments.claims.tables import markdown_table
from laggard.experiments.figures.claim_grids import accuracy_grid


def evidence_of(claim, row, out, **more):
    studies = {claim.id: stored_arrays(claim.id, out / "claims")}
    return Evidence([claim], {claim.id: row} if row else {}, studies, more, "cpu")


def texts(claim, row, out):
    """The first page, that of the paper, and the appendix."""
    found = pages(evidence_of(claim, row, out), out / "PAGE.md")
    return [
        " ".join(found[out / name].split())
        for name in ("PAGE.md", "docs/claims/dean2012.md", "docs/claims/appendix.md")
    ]


def test_a_claim_is_on_three_pages_the_more_to_be_read_the_further_down(folder, tmp_path):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    first, paper, appendix = texts(claim, row, tmp_path)
    assert "The arrays that decide 1 claims lie in" in first
    bare = Evidence([claim], {"Z1": row}, {}, {}, "cpu")
    assert (
        "Z1 were decided before arrays were stored"
        in pages(bare, tmp_path / "P.md")[tmp_path / "P.md"]
    )
    number = f"{row.criteria[0].value:.3g}"
    assert f"[Z1](docs/claims/dean2012.md#z1) **holds**, {number} (bar <= 1.5)" in first
    assert "On a quadratic, 1 of 1 claims have run: 1 holds (Z1)." in first
    for part in (
        claim.question,
        "[derived]: nothing of the kind",
        "a noisy quadratic, in short",
        row.criteria[0].measured,
    ):
        assert part in paper
    assert "[All papers](../../PAGE.md)" in paper
    assert (
        "Swept in tuning: stop.updates 50; pace slow, quick; learning.lr 0.0001, 0.1, 3.5; seed 7 to 8."
        in appendix
    )
    assert "Chosen for report: learning.lr = 0.1, for slow, quick." in appendix
    assert f"First verdict: holds, {row.taken}." in appendix
    assert re.search(r"18 runs|10 runs", appendix)
    assert f"{row.gradients:,} gradients" in appendix


def test_a_claim_without_a_row_or_with_one_of_other_criteria_is_not_run(folder, tmp_path):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    for change in (
        ("a noisy quadratic", "another"),
        ("at_most=1.5", "at_most=1.4"),
        ('{"slow": "loss', '{"slow": "the loss'),
    ):
        (changed,) = claims([], folder(change))
        assert is_outdated(changed, row)
        first, paper, appendix = texts(changed, row, tmp_path)
        assert "Z1](docs/claims/dean2012.md#z1) **not run** |" in first
        assert "Not tried yet under the criteria that they have now: Z1." in first
        assert "not run under these criteria; `laggard reproduce Z1 --scale cpu` runs it" in paper
        assert "First verdict: holds" in appendix
    assert not is_outdated(claim, row)


def test_hours_are_those_of_all_runs_each_once(folder, tmp_path):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    one = row.model_copy(update={"runs": {"a": 7200.0, "b": 1800.0}})
    two = row.model_copy(update={"id": "Z2", "runs": {"b": 1800.0, "c": 3600.0}})
    evidence = Evidence([claim, replace(claim, id="Z2")], {"Z1": one, "Z2": two}, {}, {}, "cpu")
    appendix = pages(evidence, tmp_path / "PAGE.md")[tmp_path / "docs/claims/appendix.md"]
    assert "The runs took 3.5 hours, added up" in appendix
    assert "2 runs, " in appendix
    assert "150.0 min of runs" in appendix


def test_what_was_changed_and_said_first_is_in_the_appendix(folder, tmp_path):
    (claim,) = claims([], folder())
    reproduce(claim, "cpu", tmp_path, 1)
    (harder,) = claims(
        [],
        folder(
            ("at_most=1.5", "at_most=-1.0"), ("    mark=", '    changes=("the bar",),\n    mark=')
        ),
    )
    row = reproduce(harder, "cpu", tmp_path, 1)
    first, paper, appendix = texts(harder, row, tmp_path)
    assert "1 holds in part (Z1)" in first
    assert "; fails:" not in first  # it is the criterion whose number is shown
    assert "**So**: holds in part (1 of 2 hold, 1 fail)." in paper
    assert "Changed after a verdict had been seen: the bar" in appendix
    assert "First verdict: holds, " in appendix


def test_a_criterion_that_fails_stands_beside_the_first_that_holds(folder, tmp_path):
    (claim,) = claims([], folder(("at_most=1.0)", "at_most=-1.0)")))
    row = reproduce(claim, "cpu", tmp_path, 1)
    shown = f"; fails: loss of the quick: {row.criteria[1].value:.3g} (bar <= -1)"
    assert shown in texts(claim, row, tmp_path)[0]


def test_the_first_page_says_in_words_what_fails(folder, tmp_path):
    worse = ("at_most=1.5", "at_most=-1.0"), ("at_most=1.0)", "at_most=-1.0)")
    for changes, says in ((worse, True), ((), False)):
        (claim,) = claims(
            [],
            folder(
                *changes,
                ("    mark=", '    notes="It is not faster. Why is not known.",\n    mark='),
            ),
        )
        first = texts(claim, reproduce(claim, "cpu", tmp_path, 1), tmp_path)[0]
        assert ("- What fails: Z1: It is not faster. - Not tried" in first) == says


def test_a_table_stands_on_the_first_page_if_it_has_the_papers_numbers_and_else_on_the_claims_own(
    folder, tmp_path
):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    values = xr.DataArray([[1.0]], dims=("pace", "of"), coords={"pace": ["slow"], "of": ["loss"]})
    for paper, place, link in (
        ({"slow": {"loss": "9"}}, 0, "docs/claims/dean2012.md#z1"),
        ({}, 1, "#z1"),
    ):
        table = ClaimTable("shown", "Losses", "pace", "of", paper)
        shown = replace(
            claim, table=table, decide=lambda studies: {**claim.decide(studies), "shown": values}
        )
        found = texts(shown, row, tmp_path)
        assert f"**Losses** ([Z1]({link}))" in found[place]
        assert not any("**Losses**" in text for text in found[:place] + found[place + 1 :])


def test_the_answers_of_the_figure_of_rates_stand_below_it(folder, tmp_path):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    read_off = replace(claim, id="A1", notes="The later, the lower.")
    evidence = Evidence(
        [read_off],
        {"A1": row.model_copy(update={"id": "A1"})},
        {},
        {"rates": tmp_path / "r.png"},
        "cpu",
    )
    first = " ".join(pages(evidence, tmp_path / "P.md")[tmp_path / "P.md"].split())
    assert (
        "![Accuracy over learning rate and delay](r.png) A1 holds. The later, the lower." in first
    )


def test_a_control_that_fails_makes_a_claim_say_nothing(folder, tmp_path):
    (claim,) = claims([], folder(("at_most=1.0)", "at_most=-1.0, control=True)")))
    row = reproduce(claim, "cpu", tmp_path, 1)
    assert row.verdict == "says nothing here"
    assert "1 says nothing here (Z1)" in summary_sentences(evidence_of(claim, row, tmp_path))[0]
    assert "| control | loss of the quick | <= -1 |" in texts(claim, row, tmp_path)[2]


def test_a_table_has_the_numbers_of_the_paper_beside_ours(folder, tmp_path):
    values = xr.DataArray(
        np.array([[[0.010, 0.012, 0.014]], [[0.02, 0.02, 0.02]]]),
        dims=("method", "workers", "seed"),
        coords={"method": ["ASGD", "SSGD"], "workers": [4], "seed": [0, 1, 2]},
    )
    table = ClaimTable(
        "error",
        "Errors (%)",
        "method",
        "workers",
        {"ASGD": {4: "9.27"}},
        "a large network",
        percent=True,
    )
    (claim,) = claims([], folder())
    text = markdown_table(claim, table, values, "P.md")
    half = 100 * 4.30265 * 0.002 / np.sqrt(3)
    assert "| method | workers 4 | paper |" in text
    assert f"| ASGD | 1.20 ± {half:.2f} | 9.27 |" in text
    assert "| SSGD | 2.00 ± 0.00 |  |" in text
    assert text.endswith("n = 3 seeds, with the 95 % interval. Paper: a large network.")
    alone = markdown_table(claim, replace(table, paper={}), values, "P.md")
    assert f"| method | workers 4 |\n| --- | ---: |\n| ASGD | 1.20 ± {half:.2f} |\n" in alone
    assert alone.endswith("n = 3 seeds, with the 95 % interval.")


def test_a_table_counts_the_seeds_that_got_there_and_has_a_column_only_for_what_is_published(
    folder,
):
    values = xr.DataArray(
        np.array([[[1.0, 3.0, np.inf], [2.0, 2.0, 2.0]]]),
        dims=("method", "workers", "seed"),
        coords={"method": ["ASGD"], "workers": [4, 8], "seed": [0, 1, 2]},
    )
    (claim,) = claims([], folder())
    text = markdown_table(
        claim,
        ClaimTable("time", "Times (s)", "method", "workers", {"ASGD": {8: "9"}}, "it"),
        values,
        "P.md",
    )
    assert "| method | workers 4 | workers 8 | paper |\n| --- | ---: | ---: | ---: |\n" in text
    assert "| ASGD | 2.00 ± 12.71 (2 of 3) | 2.00 ± 0.00 | 9 |" in text
    assert "of those that got there where some did not" in text
    errors = ClaimTable("error", "Errors", "method", "workers", lost="diverged")
    assert "n = 3 seeds, with the 95 % interval, of those that did not diverge." in markdown_table(
        claim, errors, values, "P.md"
    )


def test_a_table_leaves_out_seeds_that_a_setting_does_not_have(folder):
    """They are no seeds that did not get there."""
    values = xr.DataArray(
        np.array([[[1.0, 3.0, np.nan], [2.0, 2.0, 2.0], [np.nan] * 3]]),
        dims=("method", "workers", "seed"),
        coords={"method": ["ASGD"], "workers": [4, 8, 16], "seed": [0, 1, 2]},
    )
    (claim,) = claims([], folder())
    text = markdown_table(
        claim, ClaimTable("time", "Times (s)", "method", "workers"), values, "P.md"
    )
    assert "| ASGD | 2.00 ± 12.71 | 2.00 ± 0.00 | – |" in text
    assert text.endswith("n = 2 to 3 seeds, with the 95 % interval.")


def test_a_column_that_is_a_number_is_called_by_its_key_too(folder):
    (claim,) = claims([], folder())
    for settings, head in (["accuracy", "time"], "accuracy | time"), (["1", "10"], "of 1 | of 10"):
        values = xr.DataArray(
            [[1.0, 2.0]], dims=("method", "of"), coords={"method": ["ASGD"], "of": settings}
        )
        text = markdown_table(claim, ClaimTable("time", "Times", "method", "of"), values, "P.md")
        assert f"| method | {head} |" in text


def test_a_basis_without_claims_has_an_empty_cell(folder, tmp_path):
    (claim,) = claims([], folder())
    evidence = evidence_of(claim, None, tmp_path)
    assert matrix_cell(evidence, [claim], "clock") == ""
    assert (
        matrix_cell(evidence, [claim], "quadratic")
        == "[Z1](docs/claims/dean2012.md#z1) **not run**"
    )


def test_the_grid_of_accuracies_says_what_is_missing(tmp_path):
    values = np.full((2, 2, 3, 2), 0.5)
    values[1, 1] = np.nan
    rates = [0.001, 0.003, 0.01]
    coords = {"delay": [0, 8], "optimiser": ["momentum", "adam"], "lr": rates, "seed": [0, 1]}
    accuracy = xr.DataArray(values, dims=tuple(coords), coords=coords)
    line = xr.DataArray([0.1, 0.003], dims="delay", coords={"delay": [0, 8]})
    figure = accuracy_grid(accuracy, line, tmp_path / "rates.png")
    left, right = figure.axes[:2]
    assert [text.get_text() for text in left.texts] == ["50.0"] * 6
    assert len(right.texts) == 3
    assert any("n = 0 to 2 seeds; hatched: not run yet" in text.get_text() for text in figure.texts)
    beyond = "The line is drawn at the end of the grid where it lies beyond: 0.1 at delay 0."
    assert any(beyond in " ".join(text.get_text().split()) for text in figure.texts)
    assert left.patches[0].get_data().values.tolist() == [3.0, 1.5]


def test_a_grid_over_batches_has_a_row_of_panels_for_each(tmp_path):
    coords = {
        "batch": [32, 1024],
        "optimiser": ["momentum", "adam"],
        "delay": [0],
        "lr": [0.001, 0.01],
        "seed": [0],
    }
    values = np.arange(8).reshape(2, 2, 1, 2, 1) / 10 + 0.2
    figure = accuracy_grid(
        xr.DataArray(values, dims=tuple(coords), coords=coords), path=tmp_path / "batches.png"
    )
    shown = {
        axes.get_title(loc="left") or axes.get_title(): [text.get_text() for text in axes.texts]
        for axes in figure.axes[:4]
    }
    assert shown == {
        "SGD, momentum 0.9, batch 32": ["20.0", "30.0"],
        "Adam, batch 32": ["40.0", "50.0"],
        "SGD, momentum 0.9, batch 1,024": ["60.0", "70.0"],
        "Adam, batch 1,024": ["80.0", "90.0"],
    }
    assert any("n = 1 seed." in text.get_text() for text in figure.texts)


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
def test_a_card_is_short(claim):
    """What its page shows of it, without the names of the lines, their brackets and signs."""
    assert claim.did
    assert claim.headline
    page = (Path(__file__).parents[3] / "docs" / "claims" / f"{claim.paper.key}.md").read_text(
        encoding="utf-8"
    )
    card = page.split(f"## {claim.id}\n")[1].split("\n## ")[0]
    lines = re.findall(
        r"^- \*\*[^*]*\*\*(?: \[\w+\])?: (.*)$",
        re.sub(r"\(\[the first of.*?\)\)", "", card),
        re.MULTILINE,
    )
    assert len(lines) >= 3
    assert len([word for word in " ".join(lines).split() if re.search(r"\w", word)]) <= 90
