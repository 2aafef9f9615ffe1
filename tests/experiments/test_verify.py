"""`laggard verify`: every statement holds, a finding says what it should, and the command line shows it."""

import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import verify
from experiments.cli import main
from experiments.verify import FAMILIES, Family, Finding, as_json, as_text, findings, summary
from experiments.verify.finding import at_most, batches, close, differ, difference, equals, identical, mean_is
from experiments.verify.trials import TORCH
from simulator import ALGORITHMS
from simulator.rules import COMPENSATIONS, OPTIMIZERS, SCHEDULES

CHECKS = [(family.name, check) for family in FAMILIES.values() for check in family.checks]
ONES = torch.ones(2, 3, dtype=torch.float64)


@pytest.mark.parametrize(("family", "check"), CHECKS, ids=[f"{family}-{check}" for family, check in CHECKS])
def test_every_statement_holds(family, check):
    found = findings(family, check)
    assert found
    assert all(finding.holds for finding in found), as_text([one for one in found if not one.holds])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_has_checks_of_its_own(name):
    """Beside the engine's: its name stands in the source of a family's checks."""
    files = [path for path in Path(verify.__file__).parent.glob("*.py") if path.stem != "engine"]
    assert any(f'"{name}' in path.read_text() for path in files)


def test_every_optimiser_and_schedule_is_held_against_torchs():
    assert {type(optimizer) for optimizer, _ in TORCH.values()} == set(OPTIMIZERS.values())
    source = inspect.getsource(FAMILIES["rules"].checks["schedules"])
    assert all(f"{schedule.__name__}(" in source for name, schedule in SCHEDULES.items() if name != "constant")


def test_every_compensation_has_checks():
    checks = ["one_worker", "damping", "strength_zero"]
    source = "".join(inspect.getsource(FAMILIES["rules"].checks[check]) for check in checks)
    assert all(f"{part.__name__}(" in source for name, part in COMPENSATIONS.items() if name != "none")


def test_an_identity_is_of_every_bit_and_arithmetic_is_to_rounding():
    nearly = ONES * (1 + 2**-50)
    assert identical("", "", ONES, ONES.clone()).holds
    assert not identical("", "", ONES, nearly).holds
    assert close("", "", ONES, nearly).holds
    assert not close("", "", ONES, ONES * (1 + 1e-11)).holds
    assert not close("", "", [ONES, ONES], [ONES, ONES * 2]).holds, "one of several is not"
    assert differ("", "", ONES, ONES * 2).holds
    assert not differ("", "", ONES, nearly).holds


@pytest.mark.parametrize("other", [torch.full_like(ONES, math.nan), torch.ones(2, 2)])
def test_what_cannot_be_compared_is_infinitely_different(other):
    assert difference(ONES, other) == math.inf
    assert difference(other, other.clone()) in (0.0, math.inf)
    assert not identical("", "", ONES, other).holds
    assert not close("", "", torch.full_like(ONES, math.nan), torch.full_like(ONES, math.nan)).holds


def test_a_tolerance_is_the_samples_own_standard_error():
    samples = np.random.default_rng(0).normal(5.0, 2.0, 400)
    finding = mean_is("", "", 5.0, samples)
    assert finding.tolerance == pytest.approx(4 * samples.std(ddof=1) / 20, rel=1e-6)
    assert finding.holds
    assert not mean_is("", "", 5.0 + 2 * finding.tolerance, samples).holds


def test_a_measurement_that_cannot_tell_the_right_from_the_wrong_proves_nothing():
    samples = np.random.default_rng(0).normal(5.0, 2.0, 400)
    assert mean_is("", "", 5.0, samples, excludes=6.0).holds
    assert not mean_is("", "", 5.0, samples, excludes=5.1).holds
    assert not equals("", "", 5.0, 5.0, excludes=5.0).holds


def test_of_several_numbers_the_one_furthest_off_is_measured():
    assert equals("", "", 2.0, [2.0, 2.0 + 1e-12]).holds
    assert equals("", "", 2.0, [[2.0, 1.5], [2.1, 2.0]]).measured == 1.5
    assert not equals("", "", 2.0, []).holds
    assert not equals("", "", 2.0, math.nan).holds
    assert at_most("", "", 2.0, [1.0, 2.0]).holds
    assert not at_most("", "", 2.0, [1.0, 2.1]).holds


def test_batch_means_know_that_neighbours_are_alike():
    steps = np.random.default_rng(0).normal(0.0, 1.0, 5000)
    correlated = np.convolve(steps, np.ones(20), "valid")
    naive, honest = mean_is("", "", 0.0, correlated), mean_is("", "", 0.0, batches(correlated, 50))
    assert honest.tolerance > 2 * naive.tolerance
    assert len(batches(np.arange(103), 10)) == 10


def test_a_check_that_raises_does_not_hold(monkeypatch):
    family = Family("broken", "Broken")

    @family.check
    def raises():
        yield equals("this much is fine", "", 1, 1)
        raise RuntimeError("but this is not")

    monkeypatch.setitem(FAMILIES, "broken", family)
    fine, broken = findings("broken", "raises")
    assert fine.holds
    assert not broken.holds
    assert broken.statement == "raises: RuntimeError: but this is not"


FOUND = [
    Finding("a statement so long that it does not fit into its column and goes on in another line", "Somebody (2020)",
            1.0, 1.5, 0.1, family="rules"),
    Finding("another", "", 2.0, math.nan, family="rules"),
    Finding("a bound", "", 0.25, 0.2, 1e-9, "<=", family="times"),
]  # fmt: skip


def test_the_table_says_what_failed_and_fits_a_terminal():
    text = as_text(FOUND)
    assert text.count("FAILS") == 2
    assert text.count("holds") == 1
    assert "<= 0.25" in text
    assert all(len(line) <= 120 for line in text.splitlines())
    assert [line for line in text.splitlines() if line.endswith(("(rules)", "(times)"))] != []
    assert summary(FOUND, 7.4) == "1 of 3 hold, 7 s"


def test_json_has_no_numbers_that_are_none():
    document = json.loads(as_json(FOUND, 7.4), parse_constant=lambda name: pytest.fail(name))
    assert (document["holds"], document["of"]) == (1, 3)
    assert [row["holds"] for row in document["findings"]] == [False, False, True]
    assert document["findings"][1]["measured"] is None


def test_the_command_verifies_the_families_that_it_is_given(capsys):
    assert main(["verify", "networks"]) == 0
    said = capsys.readouterr().out
    assert FAMILIES["networks"].title in said
    assert FAMILIES["rules"].title not in said
    assert " hold, " in said.splitlines()[-1]
    assert main(["verify", "networks", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] == document["of"] == len(document["findings"]) > 10


def test_a_statement_that_does_not_hold_is_an_exit_code(monkeypatch, capsys):
    monkeypatch.setattr("experiments.verify.verify", lambda names: FOUND)
    assert main(["verify"]) == 1
    assert "1 of 3 hold" in capsys.readouterr().out


def test_a_family_that_does_not_exist_is_said_in_a_line(capsys):
    assert main(["verify", "collectors"]) == 2
    assert capsys.readouterr().err.startswith("verify: 'collectors': expected families of rules, ")
