"""Reports: one page that needs nothing else, readable by everybody, whose numbers are the
tables'.
"""

import re
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pytest

from laggard import load, sweep
from laggard.experiments.cli import main
from laggard.experiments.figures.lines import pool_seeds
from laggard.experiments.report import report_page, staleness_table, waiting_table
from laggard.experiments.report.charts import draw_curves, draw_timelines
from laggard.experiments.report.settings import setting_lines, settings_table
from laggard.experiments.results.ranking import rank
from laggard.experiments.results.store import FILES

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """What a page is made of, and where it breaks its promises."""

    def __init__(self, text):
        super().__init__()
        self.faults = []
        self.open = []
        self.headings = []
        self.ids = []
        self.pictures = []
        self.selects = []
        self.ranked = []
        self.scripts = []
        self.text = ""
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self.open]
        self.faults += [
            f"id {one} is there twice" for one in set(self.ids) if self.ids.count(one) > 1
        ]
        steps = zip([0, *self.headings], self.headings, strict=False)
        self.faults += [f"h{last} is followed by h{own}" for last, own in steps if own > last + 1]
        if self.headings.count(1) != 1:
            self.faults.append("not one h1")

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("iframe", "object", "embed", "form"):
            self.faults.append(f"a <{tag}>")
        if tag == "html" and "lang" not in given:
            self.faults.append("no language")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "img":
            self.pictures.append(given.get("src", ""))
            if len(given.get("alt", "")) < 20:
                self.faults.append("a picture without a text")
        self.ids += [given["id"]] if "id" in given else []
        if tag == "select":
            self.selects.append(given.get("data-column", given.get("id", "")))
        if tag == "tr" and "data-rank" in given:
            self.ranked.append(given)
        for name, value in given.items():
            refers = name in ("src", "href", "srcset", "action", "data", "poster")
            if (
                name.startswith("on")
                or (refers and not value.startswith(("data:", "#")))
                or "url(" in value
            ):
                self.faults.append(f"<{tag} {name}={value[:40]}>")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
            return
        self.text += data
        if self.open and self.open[-1] == "style" and re.search(r"url\(|@import|//", data):
            self.faults.append("a style that refers to something")


def faults(text):
    """What keeps a page from standing alone, its pictures' own references included."""
    found = Page(text)
    inside = [b64decode(uri.partition("base64,")[2]).decode("latin-1") for uri in found.pictures]
    links = [link for picture in inside for link in re.findall(r'href="([^"]{0,40})', picture)]
    return found.faults + [
        f"a picture refers to {link}" for link in links if not link.startswith(("#", "data:"))
    ]


@pytest.fixture(scope="module")
def text(results):
    return report_page(results, "Which of <both>?")


SWEEP = """\
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.3}, seed: 5}
task: {model: quadratic, dim: 3, noise: 0.2, epoch: 20}
stop: {updates: 30}
sweep:
  method: {"a < b & c": {algorithm.name: sync_ps}, late: {algorithm.name: async_ps}}
  task.noise: [0.1, 0.4]
  learning.lr: [0.1, 0.2]
  seed: [0, 1]
"""


def test_page_of_a_sweep_stands_alone(text):
    assert faults(text) == []
    found = Page(text)
    assert found.pictures
    assert "a < b & c" in found.text
    assert "Which of <both>?" in found.text
    assert "http" not in found.text
    assert "http" not in found.scripts[-1], "the page's own script"
    assert len(text) < 6e6


def test_page_lists_the_best_setting_first(text, results):
    rows = Page(text).ranked
    ranked = rank(results)
    best = list(dict.fromkeys(row for row, _, _ in ranked.cells))
    assert [row["data-rank"] for row in rows] == [str(rank) for rank in range(8)]
    assert ["data-best" in row for row in rows] == [True] * len(best) + [False] * 4
    for row, setting in zip(rows, best, strict=False):
        method, noise, rate = setting
        assert row["data-name"] == f"{method}, noise = {noise}, lr = {rate}"
        assert float(row["data-low"]) <= ranked.cells[setting, (), "loss"].value
    # a select for each of three keys, the axis of the curves, and the run of the timeline
    assert Page(text).selects == ["0", "1", "2", "axis", "run"]


def data_of(chart, name):
    """The columns of the renderer of that name, a column a list."""
    renderers = [renderer for renderer in chart.renderers if renderer.name == name]
    data = renderers[-1].data_source.data
    return data


def test_line_of_a_chart_is_mean_over_seeds(results):
    ranking = settings_table(results)
    charts = draw_curves(setting_lines(results, ranking), shown=[0])
    assert [chart.yaxis[0].axis_label for chart in charts] == ["test loss", "training loss"]
    data = data_of(charts[0], "line")
    for index, row in enumerate(ranking.rows):
        method, noise, rate = row.settings
        keys = {"method": method, "task.noise": float(noise), "learning.lr": float(rate)}
        metrics = results.where(**keys).metrics
        assert data["name"][index] == f"{row.name} (n = 2)"
        mean = metrics.groupby("updates")["test_loss"].mean()
        np.testing.assert_array_equal(data["x updates"][index], mean.index)
        np.testing.assert_allclose(data["y updates"][index], mean)


def test_timeline_has_the_gradients_and_their_staleness(ran):
    """As many updates lie between a gradient's read and its own as its staleness says."""
    result = ran("cluster.network={bandwidth: 1000, message_bytes: 4}")
    data = data_of(draw_timelines([result], most=1000), "run 0")
    updates = result.updates.sort_values("started")
    for name, column in {"worker": "worker", "ended": "time", "staleness": "staleness"}.items():
        np.testing.assert_array_equal(data[name], updates[column].astype(data[name].dtype))
    times = data["ended"][data["status"] == 0]
    pairs = zip(data["read"], data["ended"], strict=True)
    between = [((times >= read) & (times < ended)).sum() for read, ended in pairs]
    assert between == list(data["staleness"])
    assert max(between) > 1


def test_runs_without_updates_have_a_page(toy, tmp_path):
    config = load(toy(), "stop={time: 1e-9}", "sweep={learning.lr: [0.1, 0.2]}")
    found = sweep(config, tmp_path, jobs=1)
    assert faults(report_page(found, "Nothing yet?")) == []


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("</main>", '<script src="https://cdn.example/x.js"></script></main>'),
        ("</main>", '<button onclick="alert()">now</button></main>'),
        ("</main>", '<img src="https://example.org/a.png" alt="a picture from elsewhere"></main>'),
        ("</style>", "@import '//example.org/a.css';</style>"),
        ("</main>", "<h6>too deep</h6></main>"),
        ("</main>", '<img src="data:," alt=""></main>'),
        ("</main>", '<p id="config">again</p></main>'),
        ("</section>", ""),
        ("</main>", '<a href="https://example.org">away</a></main>'),
    ],
)
def test_planted_fault_is_found(text, place, fault):
    assert faults(text.replace(place, fault, 1))


def test_page_of_run_has_config_and_hashes(ran):
    result = ran("record.messages=true")
    found = Page(report_page([result]))
    assert found.faults == []
    assert len(found.pictures) >= 2
    for said in (
        result.manifest["run"],
        *FILES,
        *result.manifest["files"].values(),
        "law: gamma",
        "messages lost",
    ):
        assert said in found.text, said


def test_shares_of_time_are_the_workers_seconds(ran):
    result = ran()
    rows, _ = waiting_table(result)
    for (name, shares), (_, seconds) in zip(rows, result.workers.iterrows(), strict=True):
        assert name == f"worker {seconds['worker']:.0f}"
        assert sum(shares.values()) == pytest.approx(1)
        assert shares["waiting"] * result.manifest["mileage"]["time"] == pytest.approx(
            seconds["waiting"]
        )


def test_staleness_is_counted_over_applied_gradients(ran):
    result = ran()
    (row,) = staleness_table(result).rows
    applied = sorted(result.updates["staleness"][result.updates["status"] == "applied"])
    assert row[0] == str(len(applied))
    assert float(row[1]) == pytest.approx(sum(applied) / len(applied), rel=1e-3)
    assert float(row[5]) == applied[-1]


def test_command_writes_the_question_of_the_config(ran, tmp_path, capsys):
    result = ran()
    assert main(["report", str(result.path)]) == 0
    path = result.path / "report.html"
    assert capsys.readouterr().out == f"{path}\n"
    assert (
        "A noisy quadratic on three uneven workers." in Page(path.read_text(encoding="utf-8")).text
    )
    other = tmp_path / "other.yaml"
    other.write_text("# Which of the three is late?\n")
    assert main(["report", str(result.path), "--config", str(other)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert "Which of the three is late?" in (text := Page(path.read_text(encoding="utf-8")).text)
    assert "A noisy quadratic on three uneven workers." not in text.split("Results")[0]


@pytest.fixture
def two_sweeps(toy, tmp_path):
    """The folders of equal sweeps of two configs."""
    folders = []
    for name in ("first", "second"):
        config = load(toy("sweep: {cluster.workers: [2, 3], seed: [0, 1]}"), f"name={name}")
        sweep(config, tmp_path, jobs=1)
        folders.append(str(tmp_path / name))
    return folders


TWO_SWEEPS = [
    "first, workers = 2",
    "first, workers = 3",
    "second, workers = 2",
    "second, workers = 3",
]


def test_page_of_two_sweeps_does_not_pool_them(two_sweeps, tmp_path):
    path = tmp_path / "page.html"
    assert main(["report", *two_sweeps, "--to", str(path)]) == 0
    page = Page(path.read_text(encoding="utf-8"))
    assert "first, second" in page.text
    assert sorted(row["data-name"] for row in page.ranked) == TWO_SWEEPS


def test_figure_of_two_sweeps_does_not_pool_them(two_sweeps, tmp_path, monkeypatch):
    panels = []

    def histograms(results, path):
        panels.extend(pool_seeds(results))
        path.write_text("drawn")

    monkeypatch.setattr("laggard.experiments.figures.histograms", histograms)
    path = str(tmp_path / "figure.png")
    assert main(["plot", *two_sweeps, "--figure", "histograms", "--to", path]) == 0
    assert [(name, len(pool)) for name, pool in panels] == [(name, 2) for name in TWO_SWEEPS]
