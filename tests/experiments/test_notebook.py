"""What results and configs show in a notebook, against the command line and the runs' own
tables.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from laggard import Results, load, summary, sweep
from laggard.experiments.cli import main
from laggard.experiments.figures import FIGURES
from laggard.experiments.notebook import HTML_ROWS
from laggard.experiments.results.tables import FORMATS

SWEEP = """\
question: "Is <b>1</b> & 2 enough?"
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.3}}
task: {model: quadratic, dim: 3, condition: 10, noise: 0.2, epoch: 20}
stop: {updates: 40}
sweep:
  method: {sync: {algorithm: sync_ps}, <i>late</i>: {algorithm: async_ps}}
  learning.lr: [0.01, 0.1]
  seeds: 4
"""
TABLES = {
    "": {},
    "--columns learning.lr --value loss": {"columns": "learning.lr", "value": ["loss"]},
    "--rows method --best learning.lr --by loss": {
        "rows": ["method"],
        "best": ["learning.lr"],
        "by": "loss",
    },
    "--best learning.lr --by time --target 0.1 --against method=sync": {
        "best": ["learning.lr"],
        "by": "time",
        "target": 0.1,
        "against": {"method": "sync"},
    },
}


@pytest.mark.parametrize("options", TABLES)
def test_table_has_the_cells_of_the_command(options, results, folder, capsys):
    made = results.table(**TABLES[options])
    assert main(["table", str(folder), *options.split()]) == 0
    question, _, *printed = capsys.readouterr().out.splitlines()
    cells = [re.split(r" {2,}", line.strip()) for line in printed[: 1 + len(made)]]
    rows = made.reset_index()
    assert cells == [list(rows), *rows.to_numpy().tolist()]
    assert [question, *printed[2 + len(made) :]] == [made.attrs["question"], *made.attrs["notes"]]


def test_formats_equal_those_of_the_command(results, folder, capsys):
    for style in FORMATS:
        assert main(["table", str(folder), "--columns", "learning.lr", "--format", style]) == 0
        made = results.table(columns="learning.lr", format=style)
        assert capsys.readouterr().out == f"{made}\n"


def test_summary_adds_the_seconds_of_the_manifests(results):
    pd.testing.assert_frame_equal(
        results.summary.drop(columns="wall_seconds").reset_index(drop=True),
        summary(results).reset_index(drop=True),
    )
    for result in results:
        manifest = json.loads((result.path / "manifest.json").read_text())
        rows = results.summary.loc[manifest["run"]]
        assert len(rows) == len(result.members)
        assert set(rows["wall_seconds"]) == {manifest["wall_seconds"]}
        assert set(rows["time"]) == {result.metrics["time"].max()}
        pd.testing.assert_frame_equal(result.summary, rows, check_dtype=False)


def test_figures_equal_those_of_the_command(results, folder, tmp_path):
    assert set(dir(results.plot)) == set(FIGURES)
    for name, options, given in [
        ("learning", "--x updates", {"x": "updates"}),
        ("comparison", "", {}),
    ]:
        words = f"plot {folder} --figure {name} --to {tmp_path}/command.svg {options}"
        assert main(words.split()) == 0
        draw = results.plot if name == "comparison" else getattr(results.plot, name)
        assert len(draw(tmp_path / "method.svg", **given).axes) > 1
        assert (tmp_path / "method.svg").read_bytes() == (tmp_path / "command.svg").read_bytes()
    assert results.plot.learning(x="updates").axes[-1].get_xlabel() == "updates"
    assert results[0].plot.timeline().axes


def test_unknown_figure_is_an_attribute_error(results):
    with pytest.raises(AttributeError, match=r"lr_dealy: no such figure; did you mean lr_delay\?"):
        results.plot.lr_dealy  # noqa: B018
    assert not hasattr(results.plot, "_repr_html_")


def test_cliff_of_one_run_names_its_delay(tmp_path):
    (tmp_path / "late.yaml").write_text(
        "task: {model: quadratic}\ncluster: {workers: 1}\nalgorithm: {name: delayed, delay: 3}\n"
        "stop: {updates: 20}\nsweep: {learning.lr: [0.01, 0.1]}\n"
    )
    (legend,) = sweep(load(tmp_path / "late.yaml"), tmp_path).plot.cliff().legends
    assert [text.get_text() for text in legend.get_texts()] == ["delay D = 3"]


def test_html_is_short_and_escaped(results):
    html = results._repr_html_()
    assert "Is &lt;b&gt;1&lt;/b&gt; &amp; 2 enough?" in html
    assert "&lt;i&gt;late&lt;/i&gt;" in html
    assert not re.search("<[bi]>", html)
    assert "the first of them" in html
    assert html.count("finished") == HTML_ROWS < len(results.summary)
    alone = results[0]._repr_html_()
    assert results.names[0] in alone
    assert alone.count("finished") == len(results[0].members)
    assert results.where(**{"learning.lr": 7})._repr_html_().startswith("<p>Results(0 of 0 runs")


def test_html_reads_only_shown_runs(results, monkeypatch):
    monkeypatch.setattr("laggard.experiments.notebook.HTML_ROWS", 2)
    html = Results([*results[:2], replace(results[2], path=Path("missing"))])._repr_html_()
    assert html.count("finished") == 2


def test_config_shows_its_explicit_settings(folder):
    html = load(folder.parent / "grid.yaml")._repr_html_()
    assert "cluster:\n  workers: 3\n" in html
    assert "&lt;i&gt;late&lt;/i&gt;: {algorithm" in html
    assert "threads" not in html
    assert not re.search("<[bi]>", html)
