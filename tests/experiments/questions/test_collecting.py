"""Studies of questions: runs that choose and report, numbers that are stored, overrides."""

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import runs
from laggard.experiments.config.load import load
from laggard.experiments.questions import collecting
from laggard.experiments.questions.catalogue import QUESTIONS
from laggard.experiments.questions.measures import take
from laggard.experiments.questions.question import Study
from laggard.experiments.questions.store import read_numbers, write_numbers
from laggard.experiments.results.files import ResultError
from laggard.experiments.running.sweep import sweep

SPEEDUP = QUESTIONS["delay-speedup"]
EMPTY = pd.DataFrame(columns=["study", "role", "run"])


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return collecting.collect(SPEEDUP, EMPTY, "smoke", out=tmp_path_factory.mktemp("out"), jobs=1)


def test_seeds_that_choose_do_not_report(numbers):
    tune = numbers[numbers["role"] == "tune"]
    report = numbers[numbers["role"] == "report"]
    assert set(tune["seed"]) == {100, 101}
    assert set(report["seed"]) == {103, 104}
    # at each delay of each optimiser one rate reports, the sooner of the two on the other seeds
    means = tune.groupby(["optimiser", "delay", "lr"])["value"].mean()
    best = means.groupby(["optimiser", "delay"]).idxmin().map(lambda place: place[2])
    rates = report.groupby(["optimiser", "delay"])["lr"].unique()
    assert {key: [rate] for key, rate in best.items()} == {
        key: list(of) for key, of in rates.items()
    }


def test_stored_numbers_are_not_simulated_again(numbers, tmp_path, monkeypatch):
    write_numbers(numbers, "kept", tmp_path)
    known = read_numbers("kept", tmp_path)

    def fail(*args, **kwargs):
        raise AssertionError("a stored run was simulated")

    monkeypatch.setattr(collecting, "sweep", fail)
    again = collecting.collect(SPEEDUP, known, "smoke", out=tmp_path)
    pd.testing.assert_frame_equal(again, known)


def test_new_number_replaces_older_one(numbers, tmp_path):
    """An edited plugin changes the ids of its runs: no seed may then be stored twice."""
    older = numbers.assign(run="older", value=numbers["value"] + 1.0)
    again = collecting.collect(SPEEDUP, older, "smoke", out=tmp_path, jobs=1)
    assert "older" not in set(again["run"])
    assert len(again) == len(numbers)


def test_table_is_read_as_it_was_written(numbers, tmp_path):
    """Lost runs and targets that were missed too; the order of rows does not depend on theirs."""
    numbers = numbers.copy()
    numbers.loc[0, "value"] = np.inf
    numbers.loc[1, ["value", "lost"]] = [np.nan, True]
    first = write_numbers(numbers, "first", tmp_path).read_bytes()
    second = write_numbers(numbers.sample(frac=1, random_state=1), "second", tmp_path).read_bytes()
    assert first == second
    back = read_numbers("first", tmp_path)
    assert np.isinf(back["value"]).sum() == 1
    assert back["lost"].sum() == 1
    assert back["value"].isna().sum() == 1


def test_values_common_to_all_rows_are_stored_once(numbers, tmp_path):
    mixed = numbers.copy()
    mixed.loc[0, "model"] = "mlp"
    for table, lines in ((numbers, 3), (mixed, 2)):
        text = write_numbers(table, "some", tmp_path).read_text(encoding="utf-8")
        assert [line[:2] for line in text.splitlines()].count("# ") == lines
        back = read_numbers("some", tmp_path)
        for column in ("dataset", "model", "device"):
            assert sorted(back[column]) == sorted(table[column])


def test_file_without_table_gives_one_line_error(tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ResultError, match=r"bad\.csv: expected a column study"):
        read_numbers("bad", tmp_path)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("learning.lr=0.1", "is swept by delay-speedup"),
        ("cluster.workers=4", "cannot matter in delay-speedup"),
        ("task.modle=lenet5", "task.modle"),
    ],
)
def test_override_without_use_is_refused(override, problem):
    with pytest.raises(ConfigError, match=problem):
        collecting.study_config(SPEEDUP, "targets", "smoke", [override])


def test_target_changes_only_studies_that_train():
    """On a harder data set the target is another; the clock's study has none."""
    question = QUESTIONS["slow-node"]
    overrides = ["stop.accuracy=0.4", "tune.targets=[0.4]"]
    trained = collecting.study_config(question, "trained", "smoke", overrides)
    clock = collecting.study_config(question, "clock", "smoke", overrides)
    assert trained.stop.accuracy == 0.4
    assert trained.tune.targets == [0.4]
    assert clock == collecting.study_config(question, "clock", "smoke")


def test_each_evaluation_has_a_measure_of_loss(tmp_path):
    config = load("example:studies/uneven-workers-race", scale="smoke")
    early = sweep(config, tmp_path, jobs=1, planned=runs(config)[:1])
    table = take(early, ["loss_by_time"])
    assert set(table["measure"]) == {f"loss_at_{tenth / 10:g}s" for tenth in range(11)}
    final = early.final["test_loss"].iloc[0]
    assert table.set_index("measure")["value"]["loss_at_1s"] == final


STUDIES = [
    (question, study)
    for question in QUESTIONS.values()
    for study in question.studies.values()
    if isinstance(study, Study)  # a league has no file of its own
]


# `test_documents.py` checks the keys of the full scale in CI
@pytest.mark.parametrize("scale", [pytest.param(None, marks=pytest.mark.slow), "smoke"])
@pytest.mark.parametrize(("question", "study"), STUDIES, ids=lambda of: getattr(of, "name", ""))
def test_studies_are_valid_at_each_scale(question, study, scale):
    """Seeds that choose do not report: `load` refuses a study in which one does."""
    assert load(f"example:studies/{study.config}", scale=scale)
