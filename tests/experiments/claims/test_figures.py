"""The figure of a claim against its table: means and intervals, seeds that never got there, scales
and labels.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import t

from laggard.experiments.claims import claims
from laggard.experiments.claims.exhibits import Picture
from laggard.experiments.claims.reproduction import figure_data
from laggard.experiments.figures.claims import picture, seeds, y_range

TIMES = {"sync": [1.0, 2.0, 4.5, np.inf], "async": [0.5, 0.7, 0.6, 1.0]}


@pytest.fixture
def drawn():
    """The axes of a claim whose figure is `settings`, from a table."""

    def of(table, **settings):
        (claim,) = claims(["B3"])
        figure = Picture(**{"of": "it", "y": "s", **settings})
        return picture(replace(claim, figure=figure), table).axes[0]

    return of


def table(key="method", times=TIMES, **same):
    rows = [
        {key: each, "seed": seed, "value": value, **same}
        for each, values in times.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_seeds_are_summed_up_as_student_has_it():
    line = seeds(table(), "method", list(TIMES))
    assert line.mean == pytest.approx([7.5 / 3, 0.7])
    for ends, values in zip(
        zip(line.low, line.high, strict=True), ([1.0, 2.0, 4.5], TIMES["async"]), strict=True
    ):
        expected = t.interval(
            0.95, len(values) - 1, np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
        )
        assert ends == pytest.approx(expected)
    assert line.never.tolist() == [1, 0]
    assert line.named


def test_on_a_log_axis_they_are_summed_up_by_their_logarithms(drawn):
    """So that an interval stays positive: of 1, 10, 100 it is 10 to the 1 -/+ t(0.975, 2) /
    sqrt(3).
    """
    values = {"sync": [1.0, 10.0, 100.0]}
    line = seeds(table(times=values), "method", ["sync"], log=True)
    half = t.ppf(0.975, 2) / 3**0.5
    assert [*line.low, *line.mean, *line.high] == pytest.approx(
        [10 ** (1 - half), 10.0, 10 ** (1 + half)]
    )
    axes = drawn(table(times=values), x="method", log_y=True)
    assert axes.lines[0].get_ydata() == pytest.approx([10.0])
    assert "Geometric means of 3 seeds" in axes.figure.get_supxlabel().replace("\n", " ")
    zero = drawn(table(times={"sync": [0.0, 2.0]}), x="method", log_y=True)
    assert zero.lines[0].get_ydata() == pytest.approx([1.0])


def test_names_keep_their_order_and_numbers_are_sorted():
    assert seeds(table(), "method", ["sync", "async"]).at.tolist() == [0, 1]
    assert seeds(table("workers", {8: [2.0], 2: [1.0]}), "workers").at.tolist() == [2, 8]


def test_a_mean_of_which_seeds_are_missing_says_so(drawn):
    axes = drawn(table(), x="method")
    assert [text.get_text() for text in axes.texts] == ["1 never"]
    assert axes.texts[0].xy[0] == 0
    assert "without those that never get there" in axes.figure.get_supxlabel().replace("\n", " ")
    assert not drawn(table(times={"sync": [1.0, 2.0], "async": [3.0, 4.0]}), x="method").texts
    diverged = drawn(table(), x="method", lost="diverged")
    assert [text.get_text() for text in diverged.texts] == ["1 diverged"]
    assert "without those that diverged" in diverged.figure.get_supxlabel().replace("\n", " ")


def test_two_lines_that_lose_seeds_at_one_setting_both_say_so(drawn):
    lines = [
        table("strength", {1.0: [1.0, 2.0], 9.0: [np.inf, np.inf]}, workers=workers)
        for workers in (8, 16)
    ]
    first, second = drawn(pd.concat(lines), x="strength", lines="workers").texts
    assert first.xy == second.xy
    assert first.xyann != second.xyann


@pytest.mark.parametrize("log", [False, True])
def test_every_seed_is_within_the_frame_and_an_interval_does_not_blow_it_up(drawn, log):
    """Two seeds, 1 and 2, have an interval of 1.5 -/+ 6.4."""
    low, high = drawn(table(times={"sync": [1.0, 2.0]}), x="method", log_y=log).get_ylim()
    assert low < 1 < 2 < high < 3.2
    assert low > (0.5 if log else -0.2)


def test_what_is_nowhere_finite_has_a_frame_all_the_same():
    line = seeds(table(times={"sync": [np.inf, np.inf]}), "method", ["sync"])
    assert y_range([line], log=False) == (0, 1)
    assert y_range([line], log=True) == (0.1, 1)


def test_accuracies_end_at_one():
    assert (
        y_range([seeds(table(times={"sync": [0.0, 0.98]}), "method", ["sync"])], log=False)[1] < 1.1
    )


def test_lines_are_named_by_themselves_with_their_key_or_as_the_claim_says(drawn):
    both = pd.concat(
        [table("tail", {"light": [1.0, 2.0]}, m=1), table("tail", {"heavy": [1.0, 2.0]}, m=1)]
    )
    many = pd.concat(
        [table("workers", {8: [1.0, 2.0]}, m=1), table("workers", {16: [1.0, 2.0]}, m=1)]
    )

    def names(*of, **settings):
        return drawn(*of, x="m", **settings).get_legend_handles_labels()[1]

    assert names(both, lines="tail") == ["light", "heavy"]
    assert names(both, lines="tail", label="{} tail") == ["light tail", "heavy tail"]
    assert names(many, lines="workers") == ["workers = 8", "workers = 16"]


def test_a_strength_of_zero_has_its_place_on_a_log_axis(drawn):
    axes = drawn(
        table("strength", {0.0: [1.0, 2.0], 100.0: [1.0, 2.0], 10000.0: [3.0, 4.0]}),
        x="strength",
        log_x=True,
    )
    places = axes.transData.transform([(at, 1.0) for at in (0.0, 100.0, 10000.0)])[:, 0]
    assert np.diff(places).min() > 0.15 * np.ptp(places)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "100", "10k"]


def test_a_bar_may_lie_so_much_above_one_setting_and_is_within_the_frame(drawn):
    axes = drawn(table(), x="method", bar=("async", 7.0))
    (bar,) = (line for line in axes.lines if line.get_label() == "bar")
    assert list(bar.get_ydata()) == pytest.approx([0.7 + 7.0] * 2)
    assert axes.get_ylim()[1] > 7.7
    assert drawn(table(), x="method", limits=(0.2, 3.0)).get_ylim() == (0.2, 3.0)


def test_the_table_of_a_figure_has_its_settings_in_order_and_theory_where_there_is_some():
    (claim,) = claims(["B3"])
    values = xr.DataArray(
        np.array([[np.nan, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        dims=("tail", "m"),
        coords={"tail": ["light", "heavy"], "m": ["m = 2", "m = 4", "all"]},
    )
    theory = xr.DataArray([7.0], dims="tail", coords={"tail": ["heavy"]})
    shown = replace(claim, figure=Picture(of="it", x="m", y="s", lines="tail", theory="expected"))
    table = figure_data(shown, {"it": values, "expected": theory})
    # though the first line lacks the first
    assert table["m"].drop_duplicates().tolist() == ["m = 2", "m = 4", "all"]
    assert table["value"].tolist() == [4.0, 2.0, 5.0, 3.0, 6.0]
    assert table.loc[table["tail"] == "heavy", "theory"].tolist() == [7.0] * 3
    assert table.loc[table["tail"] == "light", "theory"].isna().all()


def test_theory_is_drawn_for_the_lines_that_it_knows(drawn):
    known = pd.concat(
        [
            table("x", {1: [1.0, 1.2], 2: [2.0, 2.2]}, line="a", theory=1.5),
            table("x", {1: [3.0]}, line="b"),
        ]
    )
    axes = drawn(known, x="x", lines="line")
    (theory,) = (line for line in axes.lines if line.get_label() == "theory")
    assert theory.get_xdata().tolist() == [1, 2]
    assert theory.get_ydata().tolist() == [1.5, 1.5]
    assert theory.get_zorder() < min(line.get_zorder() for line in axes.lines if line is not theory)
    caption = axes.figure.get_supxlabel().replace("\n", " ")
    assert "Means of 1 to 2 seeds" in caption
