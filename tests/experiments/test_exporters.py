"""Exports to TensorBoard, W&B and MLflow: what is written is what the run's own tables and config
say.
"""

import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from laggard import load_results
from laggard.experiments.cli import main

SWEEP = """\
# How high may the rate be?
name: rates
cluster: {workers: 2}
task: {model: quadratic, dim: 3, noise: 0.1}
stop: {updates: 40}
evaluate: {every_updates: 10}
sweep: {algorithm.name: [sync_ps, async_ps], learning.lr: [0.1, 0.2]}
"""
MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


class Recorder:
    """Stands in for a writer of a library; keeps the calls of all its methods, a list for each one
    made.
    """

    made: list["Recorder"]

    def __init__(self, *given, **named):
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [("made", given, named)]
        type(self).made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __getattr__(self, name):
        return lambda *given, **named: self.calls.append((name, given, named))

    def of(self, method):
        return [(given, named) for name, given, named in self.calls if name == method]


@pytest.fixture
def stand_in(monkeypatch):
    """In the place of TensorBoard's and W&B's writers."""

    class Writer(Recorder):
        made: list[Recorder] = []  # noqa: RUF012

    for name, told in [
        ("torch.utils.tensorboard", {"SummaryWriter": Writer}),
        ("wandb", {"init": Writer}),
    ]:
        module = ModuleType(name)
        vars(module).update(told, Settings=dict)
        monkeypatch.setitem(sys.modules, name, module)
    return Writer


def runs_of(results):
    """By the name that exports give a member: its metrics, and what its config and its member
    say.
    """
    found = {}
    for result in results:
        for member, rows in result.metrics.groupby("member"):
            method, lr = result.labels["algorithm.name"], float(rows["learning.lr"].iloc[0])
            found[f"{result.manifest['run']}.{member}"] = (
                rows,
                {"algorithm.name": method, "learning.lr": lr},
            )
    return found


def test_tensorboard_gets_measures_over_updates_and_virtual_time(results, tmp_path, stand_in):
    assert results.export("tensorboard", tmp_path) == tmp_path
    written = {Path(writer.of("made")[0][0][0]).name: writer for writer in stand_in.made}
    assert set(written) == set(runs_of(results))
    for name, (rows, settings) in runs_of(results).items():
        losses = [
            (given[1:], named["walltime"])
            for given, named in written[name].of("add_scalar")
            if given[0] == "test_loss"
        ]
        assert losses == [
            ((row.test_loss, round(row.updates)), row.time) for row in rows.itertuples()
        ]
        ((given, _),) = written[name].of("add_hparams")
        assert given[0] | settings == given[0]
        assert given[1]["final/test_loss"] == rows["test_loss"].iloc[-1]
        assert all(isinstance(value, int | float | str) for value in given[0].values())
        ((given, _),) = written[name].of("add_text")
        assert "\n    cluster:\n      workers: 2\n" in given[1]


def test_wandb_is_offline_and_gets_every_row(results, tmp_path, stand_in):
    results[0].export("wandb", tmp_path)
    expected = {
        name: told for name, told in runs_of(results).items() if name.startswith(results.names[0])
    }
    assert len(stand_in.made) == len(expected) == 2
    for writer in stand_in.made:
        ((_, made),) = writer.of("made")
        rows, settings = expected[made["name"]]
        assert (made["mode"], made["dir"], made["project"]) == ("offline", str(tmp_path), "rates")
        assert made["config"] | settings == made["config"]
        logged = [
            (given[0]["updates"], given[0]["time"], given[0]["test_loss"])
            for given, _ in writer.of("log")
        ]
        assert logged == [(row.updates, row.time, row.test_loss) for row in rows.itertuples()]


def test_non_finite_values_are_left_out(results, tmp_path, stand_in):
    assert results[0].metrics["train_loss"].isna().any(), "nothing is tested"
    results[0].export("tensorboard", tmp_path)
    assert all(
        math.isfinite(given[1]) for writer in stand_in.made for given, _ in writer.of("add_scalar")
    )


@pytest.mark.parametrize("to", MODULES)
def test_missing_library_is_named_in_one_line(
    to,
    results,
    tmp_path,
    monkeypatch,
    mistake,
):
    monkeypatch.setitem(sys.modules, MODULES[to], None)
    error = mistake("export", results[0].path, "--to", to, tmp_path / "there")
    assert error.endswith(f"pip install 'laggard[{to}]'\n")
    assert f"{to} =\n" in (Path(__file__).parents[2] / "setup.cfg").read_text()


def test_tensorboard_refuses_a_folder_with_the_run(results, tmp_path, stand_in, mistake):
    (tmp_path / f"{results.names[0]}.0").mkdir()
    mistake("export", results[0].path, "--to", "tensorboard", tmp_path)
    assert not stand_in.made


@pytest.mark.slow
def test_tensorboard_reads_what_was_written(results, tmp_path):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert main(["export", str(results[0].path.parent), "--to", "tensorboard", str(tmp_path)]) == 0
    for name, (rows, _) in runs_of(load_results(results[0].path.parent)).items():
        events = reading.EventAccumulator(str(tmp_path / name)).Reload()
        found = [
            (event.step, event.wall_time, event.value) for event in events.Scalars("test_loss")
        ]
        assert np.array(found) == pytest.approx(
            rows[["updates", "time", "test_loss"]].to_numpy(), rel=1e-6
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("default:::mlflow")
def test_mlflow_reads_what_was_written(results, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    assert results.export("mlflow", tmp_path)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    home = client.get_experiment_by_name("rates").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([home])}
    for name, (rows, settings) in runs_of(results).items():
        assert runs[name].info.status == "FINISHED"
        assert runs[name].data.params["learning.lr"] == str(settings["learning.lr"])
        history = client.get_metric_history(runs[name].info.run_id, "test_loss")
        assert sorted((metric.step, metric.timestamp, metric.value) for metric in history) == [
            (round(row.updates), round(1000 * row.time), row.test_loss) for row in rows.itertuples()
        ]
        text = next(
            (tmp_path / "artifacts" / runs[name].info.run_id).rglob("config.yaml")
        ).read_text()
        assert "cluster:\n  workers: 2\n" in text
