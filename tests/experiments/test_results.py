"""Many runs as one table: what each run says, no more, and nothing read before it is needed."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest

from laggard import Results, load, load_results, run, summary, sweep
from laggard.experiments.results import result as store
from laggard.experiments.results.measures import check_target
from tests.experiments.conftest import TOY

SWEEP = f"""{TOY}
sweep:
  method:
    sync: {{algorithm: sync_ps, sweep: {{learning.lr: [0.05, 0.2]}}}}
    late: {{algorithm: async_ps, task.noise: 0.1}}
  seeds: 2
"""
"""A sweep of four runs, two of which are ensembles of two."""


def test_joint_tables_add_the_labels(folder):
    results = load_results(folder)
    assert results.keys == ["method", "seed", "learning.lr"]
    assert [result.labels["method"] for result in results] == ["sync", "sync", "late", "late"]
    for name in ("metrics", "updates", "workers", "nodes"):
        table = getattr(results, name)
        parts = [getattr(result, name) for result in results]
        assert len(table) == sum(map(len, parts))
        for result, part in zip(results, parts, strict=True):
            own = table[table["run"] == result.manifest["run"]]
            assert set(own["method"]) <= {result.labels["method"]}
            assert set(own["seed"]) <= {result.labels["seed"]}
            for column in part.columns.drop(list(result.labels), errors="ignore"):
                assert (
                    own[column].astype(part[column].dtype).tolist() == part[column].tolist()
                    or (own[column].isna().all() and part[column].isna().all())
                    or np.allclose(
                        own[column].astype(float), part[column].astype(float), equal_nan=True
                    )
                )
    late = results.metrics["method"] == "late"
    assert results.metrics.loc[late, "learning.lr"].isna().all()
    assert set(results.metrics.loc[~late, "learning.lr"]) == {0.05, 0.2}


def test_joint_table_that_no_run_has_is_empty(folder):
    results = load_results(folder)
    for name in ("notes", "messages"):
        table = getattr(results, name)
        assert table.empty
        assert list(table) == ["run", *results.keys, *getattr(results[0], name)]


def test_final_has_the_last_row_of_members(folder):
    results = load_results(folder)
    rows = results.final
    assert len(rows) == 2 * 2 + 2
    assert (rows["updates"] == 40).all()
    for row in rows.to_dict("records"):
        (result,) = [result for result in results if result.manifest["run"] == row["run"]]
        curve = result.metrics[result.metrics["member"] == row["member"]]
        assert row["test_loss"] == pytest.approx(curve["test_loss"].iloc[-1])
    assert set(rows["status"]) == {"finished"}


def test_final_names_diverged_members(toy, tmp_path):
    result = run(load(toy("sweep: {learning.lr: [0.1, 1e10]}")), tmp_path)
    rows = Results([result]).final
    assert rows["status"].tolist() == ["finished", "diverged"]
    assert np.isnan(rows["diverged_at"][0])
    assert rows["diverged_at"][1] == result.manifest["diverged"][0]["updates"]


def test_files_are_read_on_first_use(folder, monkeypatch):
    hashed = []
    real = store.hash_of
    monkeypatch.setattr(store, "hash_of", lambda path: hashed.append(path) or real(path))
    results = load_results(folder)
    late = results.where(method="late")
    assert len(late) == 2
    assert repr(results).startswith("Results(4 of 4 runs")
    assert hashed == []
    late.scan("workers", columns=["worker"], where={"seed": 1})
    assert hashed == [late[1].path / "workers.parquet"]
    late.scan("workers")
    # each once
    assert hashed == [late[1].path / "workers.parquet", late[0].path / "workers.parquet"]


def test_scan_returns_the_wanted_part(folder):
    results = load_results(folder)
    updates = results.updates
    for where, rows in (
        (
            {"staleness": 2, "method": ["late"]},
            (updates["staleness"] == 2) & (updates["method"] == "late"),
        ),
        (
            {"status": "applied", "seed": [0]},
            (updates["status"] == "applied") & (updates["seed"] == 0),
        ),
        (
            (ds.field("time") > 0.05) & (ds.field("method") != "sync"),
            (updates["time"] > 0.05) & (updates["method"] != "sync"),
        ),
        ({"method": "nobody"}, updates["time"] < 0),
    ):
        found = results.scan("updates", columns=["time", "run", "staleness"], where=where)
        assert list(found) == ["time", "run", "staleness"]
        wanted = updates.loc[rows, ["time", "run", "staleness"]].reset_index(drop=True)
        pd.testing.assert_frame_equal(found.astype({"run": str}), wanted.astype({"run": str}))
    lr = results.scan("metrics", where={"learning.lr": 0.2})
    assert set(lr["member"]) == {1}
    assert set(lr["method"]) == {"sync"}


def test_where_selects_runs_and_members(folder):
    results = load_results(folder)
    assert [result.labels["seed"] for result in results.where(seed=1)] == [1, 1]
    one = results.where(**{"learning.lr": 0.2, "seed": [0, 1]})
    assert [result.labels["method"] for result in one] == ["sync", "sync"]
    assert set(one.metrics["member"]) == {1} == set(one[0].metrics["member"])
    assert one[0].members["learning.lr"].tolist() == [0.2]
    assert len(results.where(**{"task.noise": 0.1})) == 2  # a key of a variant
    assert len(results.where(**{"cluster.workers": 4})) == 0
    with pytest.raises(
        ValueError, match=r"learning\.Lr: no run has such a key; did you mean learning\.lr\?"
    ):
        results.where(**{"learning.Lr": 1})


def test_parameters_are_the_differing_keys(folder):
    results = load_results(folder)
    table = results.parameters
    assert table["algorithm.name"].tolist() == ["sync_ps", "sync_ps", "async_ps", "async_ps"]
    assert table["task.noise"].tolist() == [0.2, 0.2, 0.1, 0.1]
    assert table["seed"].tolist() == [0, 1, 0, 1]
    assert "cluster.workers" not in table
    assert "learning.lr" not in table


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda results: results.scan("update"),
            "update: no run has such a table; did you mean updates",
        ),
        (
            lambda results: results.scan("notes"),
            "notes: no run has such a table; they have metrics, updates, workers, nodes",
        ),
        (
            lambda results: results.scan("updates", columns=["stalenes"]),
            "stalenes: no such column; did you mean staleness",
        ),
        (lambda results: results.scan("updates", where={"lr": 1}), "lr: no such column"),
        (
            lambda results: results.scan("updates", where={"staleness": "late"}),
            "updates: where: cannot be compared with the columns: ",
        ),
    ],
)
def test_unknown_table_or_column_is_named(folder, call, message):
    with pytest.raises(ValueError, match=message):
        call(load_results(folder))


def test_one_column_may_stand_alone(folder):
    results = load_results(folder)
    assert results.scan("updates", "staleness").equals(results.scan("updates", ["staleness"]))


def test_unknown_setting_is_named(folder):
    result = load_results(folder)[0]
    assert result.setting("task.model") == "quadratic"
    for key in ("learning.lrr", "learning.lr.x", "nothing"):
        with pytest.raises(ValueError, match=f"{key}: .* no such key"):
            result.setting(key)


def test_unfinished_sweep_knows_its_plan(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "toy")
    (load_results(tmp_path / "toy")[0].path / "manifest.json").unlink()
    results = load_results(tmp_path / "toy")
    assert (len(results), results.planned) == (3, 4)


def test_run_under_two_labels_counts_twice(folder):
    results = load_results(folder)
    named = Results([replace(results[0], labels={"experiment": name}) for name in ("one", "other")])
    assert len(named.metrics) == 2 * len(results[0].metrics)
    assert named.metrics["run"].nunique() == 2


def test_messages_of_a_sweep_are_one_table(toy, tmp_path):
    results = sweep(load(toy("record: {messages: true}\nsweep: {seed: [0, 1]}\n")), tmp_path)
    assert len(results.messages) == sum(len(one.messages) for one in results)
    assert set(results.messages["seed"]) == {0, 1}


def test_nodes_have_the_swept_keys_of_members(toy, tmp_path):
    path = toy("sweep: {learning.lr: [0.1, 0.2]}\n")
    nodes = sweep(load(path, "algorithm.name=sgp"), tmp_path).nodes
    assert set(nodes["member"]) == {0, 1}
    assert (nodes["learning.lr"] == nodes["member"].map({0: 0.1, 1: 0.2})).all()


def test_no_runs_have_no_table(folder):
    with pytest.raises(ValueError, match="metrics: there are no runs"):
        _ = load_results(folder)[:0].final


def test_path_or_text_as_argument_is_refused_with_its_remedy():
    with pytest.raises(
        TypeError, match=r"expected results, got str: use load_results\('out/toy'\)"
    ):
        summary("out/toy")
    with pytest.raises(ValueError, match="target: expected a number, got 'high'"):
        check_target("high")
