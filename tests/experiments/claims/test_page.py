"""REPRODUCTION.md: the page that rows make."""

import pytest

from laggard.experiments.claims import claims, reproduce
from laggard.experiments.claims.presentation import page


def test_the_page_has_the_grids_and_what_was_chosen_from_them(folder, tmp_path):
    own = folder()
    (claim,) = claims([], own)
    row = reproduce(claim, "cpu", tmp_path, 1)
    text = page([claim], {"Z1": row}, "cpu", "PAGE.md", {})
    assert "- Swept in tuning: stop.updates 50; pace slow, quick; learning.lr 0.0001, 0.1, 3.5; seed 7, 8.\n" in text
    assert "- Chosen for report: learning.lr = 0.1, for slow, quick.\n" in text


def test_hours_are_those_of_all_runs_each_once(folder, tmp_path):
    own = folder()
    (claim,) = claims([], own)
    row = reproduce(claim, "cpu", tmp_path, 1)
    one = row.model_copy(update={"runs": {"a": 7200.0, "b": 1800.0}})
    other = row.model_copy(update={"id": "Z2", "runs": {"b": 1800.0, "c": 3600.0}})
    text = page([claim], {"Z1": one, "Z2": other}, "cpu", "PAGE.md", {})
    assert "Their runs took 3.5 hours, added up" in text
    assert "2 runs, 150.0 min of runs" in text


@pytest.mark.parametrize(
    "change",
    [("a noisy quadratic", "another"), ("at_most=1.5", "at_most=1.4"), ('{"slow": "loss of', '{"slow": "the loss of')],
)
def test_a_row_of_a_claim_that_has_been_changed_since_says_so(folder, tmp_path, change):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    own = folder(change)
    (changed,) = claims([], own)
    for of, says in ((claim, False), (changed, True)):
        text = page([of], {"Z1": row}, "cpu", "PAGE.md", {})
        assert ("The claim has been changed since" in text) is says


def test_a_verdict_says_how_many_criteria_hold(folder, tmp_path):
    own = folder(("at_most=1.5", "at_most=-1.0"))
    (claim,) = claims([], own)
    row = reproduce(claim, "cpu", tmp_path, 1)
    assert row.tally == "1 of 2 hold, 1 fail"
    text = page([claim], {"Z1": row}, "cpu", "PAGE.md", {})
    assert "**Holds in part (1 of 2 hold, 1 fail).**" in text
    assert f"{claim.question} | holds in part (1 of 2 hold, 1 fail) |" in text


def test_what_did_not_come_out_is_said_first_and_why(folder, tmp_path):
    own = folder(
        ("at_most=1.5", "at_most=-1.0"),
        ("at_most=1.0", "at_most=-1.0"),
        ("    mark=", '    notes="too much noise. There always is.",\n    mark='),
    )
    (claim,) = claims([], own)
    row = reproduce(claim, "cpu", tmp_path, 1)
    text = page([claim], {"Z1": row}, "cpu", "PAGE.md", {})
    assert f"- [Z1](#z1), fails (0 of 2 hold, 2 fail): {claim.question} too much noise.\n" in text
    assert "**Fails (0 of 2 hold, 2 fail).** too much noise. There always is. 10 runs" in text
    assert "too much noise. There always is. `laggard reproduce Z1 --scale cpu` runs it" in page(
        [claim], {}, "cpu", "PAGE.md", {}
    )
