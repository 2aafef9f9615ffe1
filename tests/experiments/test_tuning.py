"""`tune` and `scales`: seeds that choose, seeds that report, and versions of a config."""

import pytest

from laggard import load, sweep
from laggard.experiments.cli import main
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.tuning import reporting_runs, tuning_config
from laggard.experiments.running.tuning import chosen_settings, tune_and_report

# without delay the loss after twelve updates at rate lr is (1 - lr)^24 / 2: least at 1
QUADRATIC = """\
cluster: {workers: 1}
algorithm: {name: delayed}
task: {model: quadratic, curvature: 1.0}
stop: {updates: 12}
tune: {over: learning.lr, seeds: [7, 8], by: loss}
sweep:
  algorithm.delay: [0, 1]
  learning.lr: [0.125, 0.25, 1.0, 3.0]
  seeds: 2
"""


@pytest.fixture
def study(tmp_path):
    """Writes a config to `study.yaml`."""

    def write(text=QUADRATIC):
        path = tmp_path / "study.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_each_setting_reports_at_its_own_best(study, tmp_path):
    """Without delay the best rate is 1; with a delay of 1 it is 1/4, where the roots are double."""
    config = load(study())

    def simulate(part, planned):
        return sweep(part, tmp_path, jobs=1, planned=planned)

    chosen, results = tune_and_report(config, simulate)
    assert chosen.set_index("algorithm.delay")["learning.lr"].to_dict() == {0: 1.0, 1: 0.25}
    final = results.final
    rates = final.groupby("algorithm.delay", observed=True)["learning.lr"].unique()
    assert {delay: list(own) for delay, own in rates.items()} == {0: [1.0], 1: [0.25]}
    assert set(final["seed"]) == {0, 1}
    # what is finished is not simulated again
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}
    tune_and_report(config, simulate)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")} == before


def test_runs_that_choose_may_hold_out_samples(study):
    """Those that report learn from all of them, and are measured on the test set."""
    text = QUADRATIC.replace("quadratic, curvature: 1.0", "logistic, dataset: digits")
    text = text.replace("by: loss", "by: loss, validation: 0.25")
    config = load(study(text))
    assert tuning_config(config).task.validation == 0.25
    chosen = [{"algorithm.delay": 0, "learning.lr": 0.25}]
    (run,) = reporting_runs(config, chosen)[:1]
    assert run.spec.config.task.validation == 0
    plain = load(study(text.replace(", validation: 0.25", "")))
    (same,) = reporting_runs(plain, chosen)[:1]
    assert run.spec.digest == same.spec.digest
    without = QUADRATIC.replace("by: loss", "by: loss, validation: 0.25")
    with pytest.raises(ConfigError, match=r"task\.validation"):
        tuning_config(load(study(without)))


def test_variants_without_the_chosen_value_are_left_out(study):
    """Two variants with rates of their own: each choice runs its own variant alone."""
    text = QUADRATIC.replace(
        "  learning.lr: [0.125, 0.25, 1.0, 3.0]\n",
        "  pace:\n"
        "    slow: {learning.momentum: 0.0, sweep: {learning.lr: [0.125, 0.25]}}\n"
        "    quick: {learning.momentum: 0.5, sweep: {learning.lr: [0.25, 1.0]}}\n",
    )
    chosen = [
        {"pace": "slow", "algorithm.delay": 0, "learning.lr": 0.25},
        {"pace": "quick", "algorithm.delay": 0, "learning.lr": 0.25},
        {"pace": "quick", "algorithm.delay": 1, "learning.lr": 1.0},
    ]
    planned = [run.spec for run in reporting_runs(load(study(text)), chosen)]
    found = {
        (spec.labels["pace"], spec.labels["algorithm.delay"], spec.members[0]["learning.lr"])
        for spec in planned
    }
    assert found == {("slow", 0, 0.25), ("quick", 0, 0.25), ("quick", 1, 1.0)}


def test_sweep_in_python_names_function_that_tunes(study, tmp_path):
    with pytest.raises(ConfigError, match=r"tune: .*tune_and_report"):
        sweep(load(study()), tmp_path)


def test_tune_changes_no_run(study):
    """Neither ids nor labels: what chose a setting does not matter to a run."""
    plain = QUADRATIC.replace("tune: {over: learning.lr, seeds: [7, 8], by: loss}\n", "")
    chosen = [{"algorithm.delay": 0, "learning.lr": 1.0}]
    (first, _) = reporting_runs(load(study()), chosen)
    alone = load(study(plain.replace("[0.125, 0.25, 1.0, 3.0]", "[1.0]").replace("[0, 1]", "[0]")))
    assert first.spec.config.explicit().keys() == alone.explicit().keys()
    assert tuning_config(load(study())).tune is None


def test_command_prints_the_choice(study, tmp_path, drawn, capsys):
    out = str(tmp_path / "out")
    assert main(["sweep", str(study()), "--out", out, "--dry-run"]) == 0
    assert "then the seeds that report" in capsys.readouterr().out
    assert main(["sweep", str(study()), "--out", out, "--jobs", "1"]) == 0
    assert "chosen on seeds 7, 8" in capsys.readouterr().out


def test_missing_settings_are_left_out_of_a_choice():
    import pandas as pd

    table = pd.DataFrame({"a": ["x", None], "lr": [0.1, 0.2], "edge": ["", ""], "tied": [0, 0]})
    assert chosen_settings(table) == [{"a": "x", "lr": 0.1}, {"a": None, "lr": 0.2}]


VARIANTS = """\
  method:
    some: {{algorithm: k_async, sweep: {{{key}: [{values}]}}}}
    all: {{algorithm: async_ps}}
"""


@pytest.mark.parametrize(
    ("key", "axis", "chosen", "expected"),
    [
        # a list, which tables show as text
        (
            "task.curvature",
            "  task.curvature: [[1.0, 2.0], [1.0, 3.0]]\n",
            [{"task.curvature": "[1.0, 3.0]"}],
            [("async_ps", [1.0, 3.0])],
        ),
        # a whole number, which is none in the column of a key that some variants lack
        (
            "algorithm.wait_for",
            VARIANTS.format(key="algorithm.wait_for", values="1, 2"),
            [
                {"method": "some", "algorithm.wait_for": 2.0},
                {"method": "all", "algorithm.wait_for": None},
            ],
            [("k_async", 2), ("async_ps", None)],
        ),
        # no value of one variant, and no axis of the other
        (
            "cluster.network.message_bytes",
            VARIANTS.format(key="cluster.network.message_bytes", values="null, 1.0"),
            [
                {"method": "some", "cluster.network.message_bytes": None},
                {"method": "all", "cluster.network.message_bytes": None},
            ],
            [("k_async", None), ("async_ps", None)],
        ),
    ],
    ids=["list", "whole number", "null"],
)
def test_chosen_values_are_those_of_the_sweep(study, key, axis, chosen, expected):
    """Tables show values in other forms, and may have one of two types in a column."""
    text = (
        "cluster: {workers: 2}\n"
        "task: {model: quadratic}\n"
        f"tune: {{over: {key}, seeds: [7], by: loss}}\n"
        f"sweep:\n{axis}  seeds: 1\n"
    )
    found = []
    for run in reporting_runs(load(study(text)), chosen):
        assert run.members == (0,)
        config = run.spec.config
        part, _, name = key.rpartition(".")
        owner = config
        for place in part.split("."):
            owner = getattr(owner, place)
        found.append((config.algorithm.name, getattr(owner, name, None)))
    assert found == expected


SCALES = "scales:\n  small: {stop.updates: 2, sweep.seeds: 1, learning.lr: 0.5}\n"


def test_scale_makes_its_changes_before_the_overrides(study):
    path = study(QUADRATIC.replace("tune: {over: learning.lr, seeds: [7, 8], by: loss}\n", SCALES))
    assert load(path).stop.updates == 12
    small = load(path, "stop.updates=3", scale="small")
    assert (small.stop.updates, small.learning.lr, dict(small.sweep)["seeds"]) == (3, 0.5, 1)
    assert "learning.lr" not in small.sweep


@pytest.mark.parametrize(
    ("text", "scale", "problem"),
    [
        (SCALES, "large", r"scales: expected one of the file's scales \(small\), got large"),
        ("", "small", r"scales: expected one of the file's scales \(none\), got small"),
        ("scales: 3\n", None, "scales: expected a mapping of scales, got 3"),
        ("scales: {small: 3}\n", "small", "scales.small: expected a mapping of dotted keys"),
        ("scales: {small: {stop.update: 3}}\n", "small", "stop.update"),
    ],
)
def test_unknown_scale_gives_one_line_error(study, text, scale, problem):
    with pytest.raises(ConfigError, match=problem):
        load(study(QUADRATIC + text), scale=scale)
