"""Leagues as studies: their numbers, the first places, the tables of the first page."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.config.errors import ConfigError
from laggard.experiments.questions import collecting
from laggard.experiments.questions.catalogue import QUESTIONS
from laggard.experiments.questions.leagues import (
    CLUSTERS,
    MIXTURES,
    decide_first_method,
    decide_unequal_data,
    play_study,
    setting_of,
    tabulate_accuracies,
    tabulate_times,
)
from laggard.experiments.questions.question import LeagueStudy
from tests.experiments.questions.made_up import rows, spread, table

FIRST = QUESTIONS["first-method"]
SEEDS = 12
SMALL = LeagueStudy(
    "even",
    "mnist",
    methods=("k_sync",),
    overrides=("cluster.workers=2", "stop.updates=6"),
    budget=6,
    seeds=6,
)


def seconds(study, method, values):
    return rows("time_to", values, study=study, target=0.95, limit=30.0, **chose(method))


def chose(method):
    """A method, and the settings of its trials."""
    return {"method": method, "settings": f"lr 0.1, made for {method}"}


def times_of(study, **factors):
    """Equal draws for all methods: the differences of pairs have a sign."""
    usual = spread(20.0, 3.0, SEEDS)
    return [seconds(study, method, factor * usual) for method, factor in factors.items()]


def test_fastest_method_is_first_with_its_factor():
    (answer,) = decide_first_method(table(*times_of("even", all_reduce=1.0, sgp=0.5)))
    assert answer.says == f"on a cluster {CLUSTERS['even']}: sgp"
    assert answer.number.value == pytest.approx(2.0, rel=1e-12)
    assert set(answer.beside) == {
        f"seconds of {name} (lr 0.1, made for {name})" for name in ("all_reduce", "sgp")
    }


def test_same_times_share_the_first_place():
    (answer,) = decide_first_method(table(*times_of("even", all_reduce=1.0, clone=1.0)))
    assert "shares the first place with clone" in answer.says
    assert answer.number.value == 1.0


def test_lost_run_is_a_miss_and_never_first():
    """In the order of places, too, where a missing number would compare as nothing."""
    parts = times_of("even", all_reduce=1.0, sgp=np.nan)
    (answer,) = decide_first_method(table(*parts))
    assert answer.says.endswith(": overlapped all-reduce")
    cells = {line[0]: line[1:] for line in tabulate_times(table(*parts))}
    assert cells["sgp"][0] == f"miss ({SEEDS} of {SEEDS})"


def test_table_marks_first_places_misses_and_absent_methods():
    parts = [
        *times_of("even", all_reduce=1.0, sgp=0.5, adpsgd=np.inf),
        *times_of("one-slow", all_reduce=1.0, adpsgd=0.3),
    ]
    heading, target, *lines = tabulate_times(table(*parts))
    cells = {line[0]: line[1:] for line in lines}
    assert heading[1:3] == [CLUSTERS["even"], CLUSTERS["one-slow"]]
    assert target[1:] == ["95.0 %", "95.0 %", *["not run yet"] * 3]
    assert cells["sgp"][0].startswith("**10")
    assert cells["sgp"][1] == "–"
    assert cells["adpsgd"][0] == f"miss ({SEEDS} of {SEEDS})"
    assert cells["adpsgd"][1].startswith("**6")
    assert not cells["all_reduce"][0].startswith("**")


def test_most_accurate_method_leads_by_points():
    base = spread(0.90, 0.005, SEEDS)
    parts = [
        rows("accuracy", base, study="mild", **chose("sync_ps")),
        rows("accuracy", base + 0.02, study="mild", **chose("ringleader")),
        rows("accuracy", base * np.nan, study="mild", **chose("scaffold")),
        rows("accuracy_at_samples", base * np.nan, study="mild", **chose("scaffold")),
        rows("accuracy_at_samples", base, study="mild", **chose("sync_ps")),
        rows("accuracy_at_samples", base + np.inf, study="mild", **chose("ringleader")),
    ]
    (answer,) = decide_unequal_data(table(*parts))
    assert answer.says == f"{MIXTURES['mild']}: ringleader"
    assert answer.number.value == pytest.approx(2.0, abs=1e-9)
    heading, *lines = tabulate_accuracies(table(*parts))
    cells = {line[0]: line[1:] for line in lines}
    assert MIXTURES["mild"] in heading[1]
    assert heading[-1] == f"{MIXTURES['strong']}: not run yet"
    assert cells["scaffold"] == ["all lost", "all lost", "", ""]
    assert cells["ringleader"][0].startswith("**")
    assert cells["ringleader"][1] == f"miss ({SEEDS} of {SEEDS})"
    assert cells["sync_ps"][1] == f"**{cells['sync_ps'][0]}**"


def test_league_has_row_per_method_seed_and_measure(tmp_path):
    numbers = play_study(SMALL, "smoke", [], tmp_path, jobs=1)
    counts = numbers.groupby(["method", "measure"])["seed"].nunique()
    assert set(counts) == {SMALL.seeds}
    measures = {"time_to", "accuracy", "accuracy_at_samples"}
    assert set(counts.index.get_level_values("measure")) == measures
    assert {"all_reduce", "sync_ps"} <= set(numbers["method"])
    assert numbers["seed"].min() > 2  # none of the seeds that choose
    settings = numbers.groupby("method")["settings"].unique()
    assert all(len(own) == 1 and "lr " in own[0] for own in settings)
    # at half as long again as the time limit all-reduce has more than the samples of the limit
    own = numbers[numbers["method"] == "all_reduce"].set_index(["measure", "seed"])["value"]
    assert np.isfinite(own["accuracy_at_samples"]).all()


def test_league_with_numbers_is_not_played_again(monkeypatch, tmp_path):
    def fail(*args):
        raise AssertionError("a stored league was played")

    monkeypatch.setattr(collecting, "play_study", fail)
    parts = [part for name in FIRST.studies for part in times_of(name, all_reduce=1.0)]
    known = table(*parts)
    pd.testing.assert_frame_equal(collecting.collect(FIRST, known, out=tmp_path), known)


def test_override_reaches_cluster_and_task():
    study = FIRST.studies["one-lost"]
    changes = ["cluster.workers=20", "task.dataset=fashion_mnist"]
    base = setting_of(study, None, changes).base
    assert base["cluster"]["workers"] == 20
    assert base["cluster"]["slowdowns"] == [{"kind": "crash", "worker": 15, "at": 10}]
    assert base["task"]["dataset"] == "fashion_mnist"


@pytest.mark.parametrize(
    ("override", "key"), [("learning.lr=0.1", "learning.lr"), ("task.bacth=3", "bacth")]
)
def test_override_that_the_league_cannot_use_is_refused(override, key):
    with pytest.raises(ConfigError, match=key):
        setting_of(FIRST.studies["even"], None, [override])


def test_each_league_has_its_cluster_and_its_methods():
    for question in (FIRST, QUESTIONS["unequal-data"]):
        for name, study in question.studies.items():
            setting = setting_of(study, None, [])
            assert setting.base["cluster"]["workers"] == 16, name
            assert Path(setting.cluster_file).name == study.cluster
