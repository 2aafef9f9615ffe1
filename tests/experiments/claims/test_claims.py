"""A claim is run and leaves a row; what is wrong with one; the command line."""

import json
import os
import re
from datetime import UTC, datetime

import numpy as np
import pytest

from laggard.experiments.claims import Verdict, claims, ledger, repeat, reproduce
from laggard.experiments.claims.ledger import STORED, figure_table, read_row, stored_arrays
from laggard.experiments.claims.presentation import describe_repeat
from laggard.experiments.claims.studies import config_of, configs
from laggard.experiments.cli import main
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.figures.claims import picture
from laggard.experiments.results.files import ResultError
from tests.experiments.conftest import write_manifest


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_every_claim_can_be_run_at_every_scale(claim, scale):
    assert configs(claim, scale)


@pytest.mark.parametrize(
    "claim", [pytest.param(one, id=one.id) for one in claims() if one.table and one.table.paper]
)
def test_published_numbers_stand_in_rows_and_columns_that_the_table_has(claim):
    studies = stored_arrays(claim.id, STORED, "cpu")
    if studies is None:
        assert read_row(claim.id, STORED, "cpu") is None  # not run yet
        return
    shown = claim.decide(studies)[claim.table.of]
    rows, columns = (
        shown[claim.table.rows].values.tolist(),
        shown[claim.table.columns].values.tolist(),
    )
    assert set(claim.table.paper) <= set(rows)
    assert {column for published in claim.table.paper.values() for column in published} <= set(
        columns
    )


LONG = {
    "A5",
    "B1",
    "B2",
    "C1",
    "C6",
    "C7",
    "C5",
    "D4",
    "F1",
    "G2",
    "G3",
    "H1",
    "H2",
    "I4",
    "I5",
    "I6",
    "N2",
    "N6",
    "N7",
    "N8",
    "N10",
    "N11",
}
"""Claims whose smoke scale takes more than a second."""


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(one, id=one.id, marks=[pytest.mark.slow] if one.id in LONG else [])
        for one in claims()
    ],
)
def test_every_claim_runs_at_smoke_scale(claim, tmp_path):
    row = reproduce(claim, "smoke", tmp_path, jobs=1)
    assert row.verdict == Verdict.NONE
    assert len(row.criteria) == len(claim.criteria)
    assert all(entry.values for entry in row.criteria)
    # it may show nothing, where so small a grid does not have what it shows
    if claim.figure is not None:
        drawn = {claim.figure.x, *([claim.figure.lines] if claim.figure.lines else [])}
        assert drawn <= set(figure_table(row, tmp_path / "claims"))


def test_a_claim_leaves_a_row(folder, tmp_path):
    (claim,) = claims(["Z1"], folder())
    row = reproduce(claim, "cpu", tmp_path / "out", jobs=1)
    assert row.verdict == Verdict.HOLDS
    assert [entry.outcome for entry in row.criteria] == ["holds", "holds"]
    assert len(row.criteria[0].values) == 3
    stored = ledger(tmp_path / "out" / "claims", "cpu")
    assert stored == {"Z1": row}


def test_a_row_is_the_same_a_second_time_and_runs_nothing_again(folder, tmp_path):
    (claim,) = claims([], folder())
    told = []
    first = reproduce(claim, "cpu", tmp_path, 1, told.append)
    assert all(ended.seconds is not None for ended in told)
    told.clear()
    assert reproduce(claim, "cpu", tmp_path, 1, told.append) == first
    assert told
    assert all(ended.seconds is None for ended in told)


def test_a_repeat_makes_the_runs_anew_and_is_noted_in_the_row(folder, tmp_path, capsys):
    own = folder()
    (claim,) = claims([], own)
    given = ["reproduce", "Z1", "--claims", str(own), "--out", str(tmp_path), "--jobs", "1"]
    assert main([*given, "--again"]) == 1
    assert (
        "Z1.json: is not there, and a repeat has nothing to be held against"
        in capsys.readouterr().err
    )
    first = reproduce(claim, "cpu", tmp_path, 1)
    told = []
    row = repeat(claim, "cpu", tmp_path, 1, told.append)
    assert all(ended.seconds is not None for ended in told)
    assert [(repeat.verdict, repeat.same) for repeat in row.repeats] == [("holds", True)]
    assert row.model_copy(update={"repeats": []}) == first
    assert reproduce(claim, "cpu", tmp_path, 1) == row == ledger(tmp_path / "claims", "cpu")["Z1"]
    assert (
        describe_repeat(row.repeats[0])
        == f"run again on {first.taken}: holds, every number the same"
    )


def test_a_repeat_that_comes_out_otherwise_says_so(folder, tmp_path, capsys):
    own = folder()
    (claim,) = claims([], own)
    row = reproduce(claim, "cpu", tmp_path, 1)
    path = tmp_path / "claims" / "cpu" / "Z1.json"
    altered = row.model_dump()
    altered["criteria"][0]["values"][0] += 1e-9
    path.write_text(json.dumps({**altered, "verdict": "fails"}))
    assert (
        main(
            [
                "reproduce",
                "Z1",
                "--again",
                "--claims",
                str(own),
                "--out",
                str(tmp_path),
                "--jobs",
                "1",
            ]
        )
        == 0
    )
    assert f"run again on {row.taken}: holds, numbers differ" in capsys.readouterr().out
    # The row stays as it was: a repeat replaces nothing, and a fresh decision of other numbers has
    # no repeats yet.
    assert ledger(tmp_path / "claims", "cpu")["Z1"].verdict == "fails"
    assert reproduce(claim, "cpu", tmp_path, 1).repeats == []


def test_runs_that_fail_for_one_reason_are_one_line(folder, tmp_path, monkeypatch, capsys):
    def refuse():
        raise OSError("no network")

    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr("laggard.models.vision.import_torchvision", refuse)
    learnt = '"task": {"model": "logistic", "dataset": "fashion_mnist"}'
    own = folder(('"task": {"model": "quadratic", "dim": 4, "noise": 0.1, "jitter": 0.1}', learnt))
    given = [
        "reproduce",
        "Z1",
        "--scale",
        "cpu",
        "--claims",
        str(own),
        "--out",
        str(tmp_path),
        "--jobs",
        "1",
    ]
    assert main(given) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert re.match(
        r"Z1: run \w+ \(.+\) and 3 others: DataMissingError: FashionMNIST is missing", first
    )
    assert last == "1 of 1 claim could not be decided"


def test_a_second_repeat_on_one_day_would_be_of_the_same_runs(folder, tmp_path, capsys):
    own = folder()
    (claim,) = claims([], own)
    reproduce(claim, "cpu", tmp_path, 1)
    repeat(claim, "cpu", tmp_path, 1)
    page_file = tmp_path / "PAGE.md"
    given = ["reproduce", "--again", "--claims", str(own), "--out", str(tmp_path), "--jobs", "1"]
    assert main([*given, "--page", str(page_file)]) == 1
    error = capsys.readouterr().err
    assert "Z1: was repeated today, and those runs would be taken again" in error
    assert "1 of 1 claim could not be decided" in error
    assert page_file.is_file()
    assert len(ledger(tmp_path / "claims", "cpu")["Z1"].repeats) == 1


@pytest.mark.parametrize("old", [False, True])
def test_a_row_says_when_its_runs_were_made_and_not_when_it_was_decided(folder, tmp_path, old):
    """Old manifests do not say when their runs ended: the day of the file stands for it."""
    (claim,) = claims([], folder())
    reproduce(claim, "cpu", tmp_path, 1)
    then = datetime(2020, 2, 3, 12, tzinfo=UTC)
    for path in tmp_path.glob("*/*/manifest.json"):
        manifest = json.loads(path.read_text())
        manifest |= {
            "ended": then.isoformat(),
            "versions": {**manifest["versions"], "laggard": "0.0.9"},
        }
        write_manifest(
            path.parent,
            {key: value for key, value in manifest.items() if key != "ended" or not old},
        )
        os.utime(path, (then.timestamp(), then.timestamp()))
    row = reproduce(claim, "cpu", tmp_path, 1)
    assert (row.taken, row.version) == ("2020-02-03", "0.0.9")
    (machine,) = row.machine
    assert machine.startswith("cpu (")
    assert "torch" in machine


def test_a_study_is_tuned_for_each_setting_on_seeds_of_its_own(folder, tmp_path):
    """0.0001 learns next to nothing in 50 updates: 0.1 is chosen for both, and the seeds that chose
    do not report.
    """
    from laggard import sweep

    (claim,) = claims([], folder())
    tuning = sweep(config_of(claim, "tuning", "cpu", {}), tmp_path)
    final = config_of(claim, "report", "cpu", {"tuning": tuning})
    assert final.sweep["pace"] == {
        "slow": {"learning.momentum": 0.0, "learning.lr": 0.1},
        "quick": {"learning.momentum": 0.5, "learning.lr": 0.1},
    }
    assert final.sweep["seeds"] == 3
    assert configs(claim, "smoke").keys() == {"tuning"}


def test_the_figure_has_its_numbers_from_the_stored_table(folder, tmp_path):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    table = figure_table(row, tmp_path / "claims")
    (axes,) = picture(claim, table, tmp_path / "figure.png").axes
    drawn = axes.lines[0].get_ydata()
    logs = np.log(table["value"]).groupby(table["pace"], sort=False).mean()
    assert drawn.tolist() == pytest.approx(np.exp(logs).tolist())
    assert axes.get_ylabel() == "test loss"
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.parametrize(("change", "said"), [
    (('on="tuning"', 'on="tunning"'), "report: tuned on a study that is not there"),
    (('"learning.momentum": 0.0', '"learning.momentun": 0.0'), "Z1, tuning: "),
    (('Criterion("slow"', 'Criterion("slwo"'), "Z1: decide gives no slwo"),
    (('beside={"slow"', 'beside={"slwo"'), "Z1: decide gives no slwo"),
    (('of="loss"', 'of="losses"'), "Z1: decide gives no losses"),
    (('Criterion("slow"', 'Criterion("loss"'), "Z1, loss: expected a number a seed, but pace is left"),
])  # fmt: skip
def test_what_is_wrong_with_a_claim_is_said_in_a_line(folder, tmp_path, capsys, change, said):
    code = main(
        [
            "reproduce",
            "--claims",
            str(folder(change)),
            "--out",
            str(tmp_path / "out"),
            "--jobs",
            "1",
        ]
    )
    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_the_command_line(folder, tmp_path, capsys):
    own, out, written = str(folder()), str(tmp_path / "out"), tmp_path / "PAGE.md"
    assert main(["reproduce", "--list", "--claims", own]) == 0
    assert capsys.readouterr().out.startswith("Z1  Is a step")
    assert main(["reproduce", "Z1", "--dry-run", "--claims", own, "--out", out]) == 0
    assert "report: once tuning has chosen" in capsys.readouterr().out
    assert (
        main(
            [
                "reproduce",
                "dean2012",
                "--claims",
                own,
                "--out",
                out,
                "--jobs",
                "1",
                "--page",
                str(written),
            ]
        )
        == 0
    )
    told = capsys.readouterr().out
    assert told.startswith("Z1  holds  (")
    assert (
        "    The paper (dean2012) says [derived]: nothing of the kind\n    Here: a noisy quadratic\n"
        in told
    )
    assert f"    10 runs; the row: {out}/claims/cpu/Z1.json\n" in told
    assert "1 holds (Z1)" in written.read_text()
    assert "**So**: holds." in (tmp_path / "docs" / "claims" / "dean2012.md").read_text()
    assert (tmp_path / "out" / "claims" / "cpu" / "Z1.png").is_file()
    assert (
        main(["reproduce", "Z1", "--scale", "paper", "--claims", own, "--out", out, "--jobs", "1"])
        == 0
    )
    before, _, after = capsys.readouterr().out.partition(
        "an estimate on this machine as busy as it is now"
    )
    assert "tuning: " in before
    assert "Z1  holds" in after
    assert main(["reproduce", "Y9", "--claims", own, "--out", out]) == 2
    assert "no such claim or paper" in capsys.readouterr().err


def test_a_damaged_row_is_named(folder, tmp_path):
    (claim,) = claims([], folder())
    reproduce(claim, "smoke", tmp_path, 1)
    path = tmp_path / "claims" / "smoke" / "Z1.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "verdict": 3}))
    with pytest.raises(ResultError, match=r"Z1\.json: is no row of a ledger"):
        ledger(tmp_path / "claims", "smoke")
    path.with_name("Z2.json").write_text("of another claim, and nobody's business here")
    assert reproduce(claim, "smoke", tmp_path, 1).model_dump() == document


def test_a_folder_without_claims_is_named(tmp_path):
    with pytest.raises(ConfigError, match="expected modules with claims there"):
        claims([], tmp_path / "nowhere")


def test_a_row_says_what_was_chosen_for_the_settings_that_ran(folder, tmp_path):
    """Where several settings are tuned together, and a study runs one of them."""
    only = '"sweep": {"pace": {"slow": PACES["slow"]}, "seeds": 3}'
    own = folder(
        ('"sweep": {"pace": PACES, "seeds": 3}', only),
        ('"quick": at(loss, pace="quick")', '"quick": at(loss, pace="slow")'),
    )
    (claim,) = claims([], own)
    assert reproduce(claim, "smoke", tmp_path, jobs=1).chosen == [
        "report: learning.lr = 0.1, for slow"
    ]
