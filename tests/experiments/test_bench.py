"""What the bench measures, at toy size: that it measures, not what."""

import json

import pytest
import torch

from experiments import ConfigError, bench, load
from experiments.cli import main


@pytest.fixture
def config(toy):
    return load(toy(), "task={model: logistic, dataset: {name: synthetic, samples: 64}, batch: 4}", "threads=1")


def test_the_ratio_is_of_speeds_measured_in_the_same_round(config, monkeypatch):
    plain, engine = iter([100.0, 50.0]), iter([150.0, 100.0])
    monkeypatch.setattr(bench, "plain_loop", lambda *_: lambda steps: next(plain))
    monkeypatch.setattr(bench, "engine_speed", lambda *_: next(engine))
    monkeypatch.setattr(bench, "cores", lambda: 1)
    report = bench.real_gradients(config, updates=10, rounds=2)
    assert report.plain == {"1": 75.0}
    assert report.laggard == 125.0
    assert report.ratio == (1.75, 1.5, 2.0)


def test_both_loops_are_timed(config):
    report = bench.real_gradients(config, updates=30, rounds=1)
    assert set(report.plain) >= {"1"}
    assert min(report.plain.values()) > 0
    assert report.ratio.least == report.ratio.median == report.ratio.most > 0
    assert json.loads(report.as_json())["machine"]["cores"] >= 1


def test_a_task_without_a_plain_loop_is_refused_in_one_line(toy, capsys):
    with pytest.raises(ConfigError, match=r"task.model: expected a network on a data set, got 'quadratic'"):
        bench.real_gradients(load(toy()))
    assert main(["bench", str(toy())]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("sweep", ["{seed: [0, 1]}", "{learning.lr: [0.1, 0.2]}", "{task.batch: [2, 4]}"])
def test_several_models_are_refused(toy, sweep):
    task = "task={model: logistic, dataset: {name: synthetic, samples: 64}, batch: 4}"
    with pytest.raises(ConfigError, match=r"^sweep: bench measures one model: fix the swept keys, or sweep=\{\}$"):
        bench.real_gradients(load(toy(), task, f"sweep={sweep}"))


def test_the_plain_loop_runs_where_the_data_lies(config, monkeypatch):
    settled = []
    monkeypatch.setattr(bench, "settle", settled.append)
    data = config.task.dataset.build().to("cpu", torch.float64)
    assert bench.plain_loop(config, data, threads=1)(3) > 0
    assert settled == [torch.device("cpu")] * 2
