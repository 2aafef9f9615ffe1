"""The claims that lie in the repository, the row that a claim leaves, and the page that rows make."""

import json
import os
from datetime import UTC, datetime

import numpy as np
import pytest

from experiments.claims import Verdict, claims, ledger, repeated, reproduced
from experiments.claims.claim import FOLDER, papers
from experiments.claims.ledger import figure_table
from experiments.claims.page import page
from experiments.claims.studies import config_of, configs
from experiments.cli import main
from experiments.errors import ConfigError
from experiments.figures.claims import picture
from experiments.store import ResultError

PAPERS = "dean2012: {authors: Dean et al., year: 2012, title: Large scale distributed deep networks, where: NeurIPS}\n"
CLAIM = """\
id: Z1
question: Is a step of half the curvature's inverse faster than one of a tenth?
paper: dean2012
says: nothing of the kind
mark: derived
setting: a noisy quadratic
studies:
  tuning:
    config:
      cluster: {workers: 2}
      task: {model: quadratic, dim: 4, noise: 0.1, jitter: 0.1}
      stop: {updates: 60}
      sweep:
        pace:
          slow: {learning.momentum: 0.0}
          quick: {learning.momentum: 0.5}
        learning.lr: [0.0001, 0.1]
        seed: [7, 8]
    cpu: {stop.updates: 50}
  report:
    config:
      cluster: {workers: 2}
      task: {model: quadratic, dim: 4, noise: 0.1, jitter: 0.1}
      stop: {updates: 60}
      sweep:
        pace:
          slow: {learning.momentum: 0.0}
          quick: {learning.momentum: 0.5}
        seeds: 3
    smoke: {sweep.seeds: 2}
    tuned: {on: tuning, by: loss}
statistics:
  loss: final(report, "loss")
  slow: at(loss, pace="slow")
criteria:
  - {says: loss of the slow, value: slow, at_most: 1.5}
  - {says: loss of the quick, value: 'at(loss, pace="quick")', at_most: 1.0}
beside: {loss of the slow: 'at(loss, pace="slow")'}
figure: {of: loss, x: pace, y: test loss, log_y: true}
"""


@pytest.fixture
def folder(tmp_path):
    """Claims of one's own: writes Z1, with its text changed."""
    own = tmp_path / "claims"
    own.mkdir()
    (own / "papers.yaml").write_text(PAPERS)

    def write(*changes):
        text = CLAIM
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (own / "Z1.yaml").write_text(text)
        return own

    return write


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_every_claim_of_the_repository_can_be_run_at_every_scale(claim, scale):
    assert configs(claim, scale)
    for study in claim.studies.values():
        assert study.tuned is None or study.tuned.on in claim.studies


def test_every_paper_has_a_claim():
    assert {claim.paper for claim in claims()} <= set(papers())


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
def test_every_claim_runs_at_smoke_scale(claim, tmp_path):
    row = reproduced(claim, "smoke", tmp_path, jobs=1)
    assert row.verdict == Verdict.NONE
    assert len(row.criteria) == len(claim.criteria)
    assert all(entry.values for entry in row.criteria)
    if claim.figure is not None:
        assert len(figure_table(row, tmp_path / "claims"))


def test_a_claim_leaves_a_row_from_which_the_page_is_made(folder, tmp_path):
    own = folder()
    (claim,) = claims(["Z1"], own)
    row = reproduced(claim, "cpu", tmp_path / "out", jobs=1)
    assert row.verdict == Verdict.REPRODUCED
    assert [entry.outcome for entry in row.criteria] == ["holds", "holds"]
    assert len(row.criteria[0].values) == 3
    stored = ledger(tmp_path / "out" / "claims", "cpu")
    assert stored == {"Z1": row}
    text = page([claim], papers(own), stored, "cpu", "PAGE.md", {"Z1": "a.png"})
    for part in (
        "Dean et al. (2012)",
        claim.question,
        "Reproduced.",
        "| <= 1.5 |",
        "![",
        "1 claim: 1 reproduced.",
        "[derived]",
    ):
        assert part in text
    assert "not run" in page([claim], papers(own), {}, "cpu", "PAGE.md", {})


def test_a_row_is_the_same_a_second_time_and_runs_nothing_again(folder, tmp_path):
    (claim,) = claims([], folder())
    told = []
    first = reproduced(claim, "cpu", tmp_path, 1, told.append)
    assert all(ended.seconds is not None for ended in told)
    told.clear()
    assert reproduced(claim, "cpu", tmp_path, 1, told.append) == first
    assert told
    assert all(ended.seconds is None for ended in told)


def test_a_repeat_makes_the_runs_anew_and_is_noted_in_the_row(folder, tmp_path, capsys):
    own = folder()
    (claim,) = claims([], own)
    given = ["reproduce", "Z1", "--claims", str(own), "--out", str(tmp_path), "--jobs", "1"]
    assert main([*given, "--again"]) == 1
    assert "Z1.json: is not there, and a repeat has nothing to be held against" in capsys.readouterr().err
    first = reproduced(claim, "cpu", tmp_path, 1)
    told = []
    row = repeated(claim, "cpu", tmp_path, 1, told.append)
    assert all(ended.seconds is not None for ended in told)
    assert [(repeat.verdict, repeat.same) for repeat in row.repeats] == [("reproduced", True)]
    assert row.model_copy(update={"repeats": []}) == first
    assert reproduced(claim, "cpu", tmp_path, 1) == row == ledger(tmp_path / "claims", "cpu")["Z1"]
    assert f"run again on {first.taken}: reproduced, every number the same" in page(
        [claim], papers(own), {"Z1": row}, "cpu", "PAGE.md", {}
    )


def test_a_repeat_that_comes_out_otherwise_says_so(folder, tmp_path, capsys):
    own = folder()
    (claim,) = claims([], own)
    row = reproduced(claim, "cpu", tmp_path, 1)
    path = tmp_path / "claims" / "cpu" / "Z1.json"
    altered = row.model_dump()
    altered["criteria"][0]["values"][0] += 1e-9
    path.write_text(json.dumps({**altered, "verdict": "contradicted"}))
    assert main(["reproduce", "Z1", "--again", "--claims", str(own), "--out", str(tmp_path), "--jobs", "1"]) == 0
    assert f"run again on {row.taken}: reproduced, numbers differ" in capsys.readouterr().out
    # The row stays as it was: a repeat replaces nothing, and a fresh decision of other numbers has no repeats yet.
    assert ledger(tmp_path / "claims", "cpu")["Z1"].verdict == "contradicted"
    assert reproduced(claim, "cpu", tmp_path, 1).repeats == []


def test_a_second_repeat_on_one_day_would_be_of_the_same_runs(folder, tmp_path, capsys):
    own = folder()
    (claim,) = claims([], own)
    reproduced(claim, "cpu", tmp_path, 1)
    repeated(claim, "cpu", tmp_path, 1)
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
    reproduced(claim, "cpu", tmp_path, 1)
    then = datetime(2020, 2, 3, 12, tzinfo=UTC)
    for path in tmp_path.glob("*/*/manifest.json"):
        manifest = json.loads(path.read_text())
        manifest |= {"ended": then.isoformat(), "versions": {**manifest["versions"], "laggard": "0.0.9"}}
        path.write_text(json.dumps({key: value for key, value in manifest.items() if key != "ended" or not old}))
        os.utime(path, (then.timestamp(), then.timestamp()))
    row = reproduced(claim, "cpu", tmp_path, 1)
    assert (row.taken, row.version) == ("2020-02-03", "0.0.9")
    (machine,) = row.machine
    assert machine.startswith("cpu (")
    assert "torch" in machine


def test_the_page_has_the_grids_and_what_was_chosen_from_them(folder, tmp_path):
    own = folder()
    (claim,) = claims([], own)
    row = reproduced(claim, "cpu", tmp_path, 1)
    text = page([claim], papers(own), {"Z1": row}, "cpu", "PAGE.md", {})
    assert "- Swept in tuning: stop.updates 50; pace slow, quick; learning.lr 0.0001, 0.1; seed 7, 8.\n" in text
    assert "- Chosen for report: learning.lr = 0.1, an end of its grid, for slow, quick.\n" in text


def test_hours_are_those_of_all_runs_each_once(folder, tmp_path):
    own = folder()
    (claim,) = claims([], own)
    row = reproduced(claim, "cpu", tmp_path, 1)
    one = row.model_copy(update={"runs": {"a": 7200.0, "b": 1800.0}})
    other = row.model_copy(update={"id": "Z2", "runs": {"b": 1800.0, "c": 3600.0}})
    text = page([claim], papers(own), {"Z1": one, "Z2": other}, "cpu", "PAGE.md", {})
    assert "Their runs took 3.5 hours, added up" in text
    assert "2 runs, 150.0 min of runs" in text


@pytest.mark.parametrize(
    "change",
    [("a noisy quadratic", "another"), ("at_most: 1.5", "at_most: 1.4"), ("beside: {loss", "beside: {its loss")],
)
def test_a_row_of_a_claim_that_has_been_changed_since_says_so(folder, tmp_path, change):
    (claim,) = claims([], folder())
    row = reproduced(claim, "cpu", tmp_path, 1)
    own = folder(change)
    (changed,) = claims([], own)
    for of, says in ((claim, False), (changed, True)):
        text = page([of], papers(own), {"Z1": row}, "cpu", "PAGE.md", {})
        assert ("The claim has been changed since" in text) is says


def test_a_verdict_says_how_many_criteria_hold(folder, tmp_path):
    own = folder(("at_most: 1.5", "at_most: -1"))
    (claim,) = claims([], own)
    row = reproduced(claim, "cpu", tmp_path, 1)
    assert row.tally == "1 of 2 hold, 1 fail"
    text = page([claim], papers(own), {"Z1": row}, "cpu", "PAGE.md", {})
    assert "**Reproduced in part (1 of 2 hold, 1 fail).**" in text
    assert f"{claim.question} | reproduced in part (1 of 2 hold, 1 fail) |" in text


def test_what_did_not_come_out_is_said_first_and_why(folder, tmp_path):
    own = folder(
        ("at_most: 1.5", "at_most: -1"),
        ("at_most: 1.0", "at_most: -1"),
        ("mark: derived", "notes: too much noise. There always is.\nmark: derived"),
    )
    (claim,) = claims([], own)
    row = reproduced(claim, "cpu", tmp_path, 1)
    text = page([claim], papers(own), {"Z1": row}, "cpu", "PAGE.md", {})
    assert f"- [Z1](#z1), contradicted (0 of 2 hold, 2 fail): {claim.question} too much noise.\n" in text
    assert "**Contradicted (0 of 2 hold, 2 fail).** too much noise. There always is. 10 runs" in text
    assert "too much noise. There always is. `laggard reproduce Z1 --scale cpu` runs it" in page(
        [claim], papers(own), {}, "cpu", "PAGE.md", {}
    )


def test_a_study_is_tuned_for_each_setting_on_seeds_of_its_own(folder, tmp_path):
    """0.0001 learns next to nothing in 50 updates: 0.1 is chosen for both, and the seeds that chose do not report."""
    from experiments import sweep

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
    row = reproduced(claim, "cpu", tmp_path, 1)
    table = figure_table(row, tmp_path / "claims")
    (axes,) = picture(claim, table, tmp_path / "figure.png").axes
    drawn = axes.lines[0].get_ydata()
    logs = np.log(table["value"]).groupby(table["pace"], sort=False).mean()
    assert drawn.tolist() == pytest.approx(np.exp(logs).tolist())
    assert axes.get_ylabel() == "test loss"
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.parametrize(("change", "said"), [
    (("id: Z1", "id: Z2"), "Z1.yaml: id: expected Z1, as the file is called, got Z2"),
    (("paper: dean2012", "paper: dean2013"), "paper: 'dean2013' is no paper of papers.yaml; did you mean dean2012?"),
    (("question:", "qestion:"), "Z1.yaml: qestion: unknown key; did you mean question?"),
    ((", at_most: 1.5", ""), "expected at_most, at_least or both"),
    (("on: tuning", "on: tunning"), "report: tuned on a study that is not there"),
    (("learning.momentum: 0.0", "learning.momentun: 0.0"), "Z1.yaml, tuning: "),
    (("value: slow", "value: slwo"), "Z1.yaml, criteria.0: 'slwo': 'slwo' is not known here"),
    (("loss: final(", "final: final("), "Z1.yaml: statistics.final: is the name of a function already"),
    (("value: slow", "value: loss"), "expected a number a seed, but pace is left"),
])  # fmt: skip
def test_what_is_wrong_with_a_claim_is_said_in_a_line(folder, tmp_path, capsys, change, said):
    code = main(["reproduce", "--claims", str(folder(change)), "--out", str(tmp_path / "out"), "--jobs", "1"])
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
    assert main(["reproduce", "dean2012", "--claims", own, "--out", out, "--jobs", "1", "--page", str(written)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Z1  reproduced  (")
    assert "    The paper (dean2012) says [derived]: nothing of the kind\n    Here: a noisy quadratic\n" in told
    assert f"    10 runs; the row: {out}/claims/cpu/Z1.json\n" in told
    assert "Reproduced." in written.read_text()
    assert "for which one needs a GPU, 0 of 1 have been run" in written.read_text()
    assert main(["reproduce", "Z1", "--scale", "paper", "--claims", own, "--out", out, "--jobs", "1"]) == 0
    before, _, after = capsys.readouterr().out.partition("an estimate on this machine as busy as it is now")
    assert "tuning: " in before
    assert "Z1  reproduced" in after
    assert main(["reproduce", "Y9", "--claims", own, "--out", out]) == 2
    assert "no such claim or paper" in capsys.readouterr().err


def test_a_damaged_row_is_named(folder, tmp_path):
    (claim,) = claims([], folder())
    reproduced(claim, "smoke", tmp_path, 1)
    path = tmp_path / "claims" / "smoke" / "Z1.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "verdict": 3}))
    with pytest.raises(ResultError, match=r"Z1\.json: is no row of a ledger"):
        ledger(tmp_path / "claims", "smoke")
    path.with_name("Z2.json").write_text("of another claim, and nobody's business here")
    assert reproduced(claim, "smoke", tmp_path, 1).model_dump() == document


def test_a_folder_without_claims_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no claims there"):
        claims([], tmp_path / "nowhere")
    assert FOLDER.is_dir()
