"""Labels and questions are text, wherever they are shown: no formula, no markup, no escape comes
alive.
"""

import csv
import json
import re

import pytest
from matplotlib.text import Text

from laggard import ConfigError, load, load_results, sweep
from laggard.experiments.cli import main
from laggard.experiments.config.grid import runs
from laggard.experiments.figures import ENTRIES
from laggard.experiments.results.formats import format_table
from laggard.experiments.results.measures import summary
from laggard.experiments.results.tables import FORMATS, table
from tests.experiments.conftest import TOY

LABELS = [
    "$x_$",
    "=cmd|'/c calc'!A0",
    "@a",
    "two\nlines",
    "[31mred",
    "<script>|&amp; 50% \\frac{$",
    "[a](b) _a_ *",
]
QUESTION = "$a_$ <b>x</b>\n\\input{y} **z**?"
VARIANTS = {
    label: {"seed": seed, "learning.lr": 0.01 * (1 + seed)} for seed, label in enumerate(LABELS)
}
SWEEP = f"{TOY}sweep: {json.dumps({'m': VARIANTS})}\nquestion: {json.dumps(QUESTION)}"


def unescape(text):
    """A label as it is shown: a line break as text."""
    return text.replace("\n", "\\n")


def test_labels_make_no_control_characters(results):
    for text in (FORMATS["text"](table(results)), format_table(summary(results))):
        assert all(line.isprintable() for line in text.splitlines())
        for label in LABELS:
            assert sum(line.startswith(unescape(label) + " ") for line in text.splitlines()) == 1


def test_labels_make_no_markup_in_markdown(results):
    shown = FORMATS["md"](table(results))
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(LABELS)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
    plain = re.sub(r"\\(.)", "", shown.replace("**", "", 2))
    assert not re.search(r"[<`*\[\]$]|_a_", plain.partition("\n\nn = 1")[0].replace("---:", ""))


def test_labels_make_no_formula_in_csv(results):
    rows = list(csv.reader(FORMATS["csv"](table(results)).splitlines()))
    assert not [
        cell
        for row in rows
        for cell in row
        if cell[:1] in tuple("=+@") or re.match(r"-[^\d]", cell)
    ]
    assert {row[0].removeprefix("'") for row in rows[1:]} == set(map(unescape, LABELS))


def test_labels_make_no_command_in_latex(results):
    lines = FORMATS["latex"](table(results)).splitlines()
    comments = [line for line in lines if line.startswith("%")]
    rows = [line for line in lines if line.endswith(" \\\\")]
    assert len(comments) == 2
    assert len(rows) == 1 + len(LABELS)
    assert len(lines) == len(comments) + len(rows) + 5
    for row in rows:
        assert not row.startswith(("[", "*"))  # the options of the line before
        assert not re.search(r"(?<!\\)[%#^~]|\\(?!\\$|text|[$%&#_{}])", row.removesuffix("\\\\"))


def test_error_has_no_control_characters(toy):
    with pytest.raises(ValueError, match="unknown") as caught:
        load(toy('"a\\nb": 1'))
    assert str(caught.value).isprintable()
    assert str(ConfigError("key", "no \x1b[31mcolours")).isprintable()


@pytest.mark.parametrize(
    "function", [entry.function for entry in ENTRIES], ids=lambda function: function.__name__
)
def test_figures_show_dollar_signs(results, function):
    try:
        figure = function([results[0], results[5]])
    except ValueError:  # the figure does not apply
        return
    # a formula that cannot be read is an error of its drawing
    figure.draw_without_rendering()
    shown = " ".join(text.get_text() for text in figure.findobj(Text)).replace("\\$", "$")
    assert "$x_$" in shown or "x_" not in shown


@pytest.mark.parametrize(
    ("axes", "labels"),
    [
        ("{cluster.compute.mean: [10 ms, 0.5 s, 20]}", [0.01, 0.5, 20]),
        ("{cluster.network.bandwidth: [1 Gbit/s, 2 GB/s]}", [1.25e8, 2e9]),
        ("{cluster.network.message_bytes: [25 MB, 1 KiB]}", [2.5e7, 1024]),
        ("{zip: {cluster.network.latency: [1 ms, 2 us], seed: [3, 4]}}", [0.001, 2e-6]),
        ("{cluster.network.latency: [1 ms, {law: constant, mean: 2 ms}]}",
         [0.001, "{law: constant, mean: 2 ms}"]),
        ("{cluster.slowdowns.0.at: [10 ms, 2 min]}", [0.01, 120]),
        ("{algorithm: [sync_ps, async_ps]}", ["sync_ps", "async_ps"]),
        ("{pace: {10 ms: {stop.time: 10 ms}, 1 s: {stop.time: 1 s}}}", ["10 ms", "1 s"]),
    ],
)  # fmt: skip
def test_label_with_unit_is_its_number(axes, labels, toy):
    """Runs are those of the numbers; names stay text."""
    slow = "cluster.slowdowns=[{kind: crash, worker: 0, at: 1.0}]"
    config = load(toy(f"sweep: {axes}"), slow, "cluster.network.topology=star")
    assert [next(iter(spec.labels.values())) for spec in runs(config)] == labels


def test_value_with_unit_is_selected_either_way(toy, tmp_path, capsys):
    sweep(load(toy("sweep: {cluster.compute.mean: [10 ms, 20 ms]}")), tmp_path / "out")
    folder = tmp_path / "out" / "toy"
    assert load_results(folder).metrics["cluster.compute.mean"].dtype == float
    tables = []
    for value in ("10 ms", "0.01", "[10 ms, 3 s]"):
        assert main(["table", str(folder), "--where", f"cluster.compute.mean={value}"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] == tables[2]
    assert "0.02" not in tables[0]
