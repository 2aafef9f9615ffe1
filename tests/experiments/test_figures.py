"""What the figures show is what the tables say."""

from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

from laggard.experiments import figures
from laggard.experiments.figures.delays import MAX_ROWS, ROLLING
from laggard.experiments.figures.evaluations import CURVE_AXES
from laggard.experiments.figures.lines import LEARNT, Line
from laggard.experiments.results.measures import CURVES
from laggard.models import Quadratic
from laggard.simulator import AsyncPS, Cluster, Evaluate, KSync, Network, Rule, Stop, simulate
from laggard.simulator.recording.messages import MESSAGE_COLUMNS
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Factor

NETWORK = Network(bandwidth=1e8, latency=1e-3, message_bytes=1e5)


def result(
    algorithm=None,
    name="stragglers",
    task=None,
    seeds=(0,),
    seed=0,
    accuracy=True,
    workers=4,
    **columns,
):
    """A run on four workers of which worker 0 is five times slower; its accuracy is made up of its
    loss.
    """
    task = task or Quadratic(dim=3, noise=0.3, jitter=0.5, curvature=0.1, batch=8)
    cluster = Cluster(
        workers, Gamma(mean=0.01, cv=0.2), [Factor(worker=0, factor=5.0)], NETWORK, seed=seed
    )
    algorithm = algorithm or AsyncPS(Rule())
    outcome = simulate(
        cluster,
        algorithm,
        task,
        stop=Stop(updates=200),
        evaluate=Evaluate(every_updates=20),
        learning_seeds=seeds,
    )
    metrics = pd.DataFrame(outcome.metrics)
    if accuracy:
        metrics["test_accuracy"] = np.exp(-metrics["test_loss"])
    for column, values in columns.items():
        by_member = isinstance(values, list)
        metrics[column.replace("__", ".")] = (
            [values[m] for m in metrics["member"]] if by_member else values
        )
    return SimpleNamespace(
        metrics=metrics, manifest={}, config=SimpleNamespace(name=name),
        updates=pd.DataFrame(outcome.updates), workers=pd.DataFrame(outcome.workers),
        messages=pd.DataFrame(columns=list(MESSAGE_COLUMNS)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def asynchronous():
    return result(method="async")


@pytest.fixture(scope="module")
def backup():
    return result(KSync(Rule(), wait_for=3), method="backup")


@pytest.fixture(scope="module")
def cancelling():
    return result(KSync(Rule(), wait_for=2, cancel=True), method="cancelling")


def applied(of):
    return of.updates.loc[of.updates["status"] == "applied", "staleness"]


def drawn(axes):
    """The lines of `axes` by their labels."""
    return {line.get_label(): line.get_xydata() for line in axes.lines}


def bars(axes):
    """Left, width and height of each bar."""
    return np.array([(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches])


def words(figure):
    return " ".join(
        [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        + [figure.get_supxlabel().replace("\n", " ")]
    )


def test_comparison_draws_metrics_over_time_and_updates(asynchronous, backup):
    figure = figures.comparison([asynchronous, backup])
    for axes, x in zip(figure.axes[:2], ("time", "updates"), strict=True):
        lines = drawn(axes)
        assert set(lines) == {"async", "backup"}
        for of, name in ((asynchronous, "async"), (backup, "backup")):
            np.testing.assert_array_equal(lines[name], of.metrics[[x, "test_accuracy"]])
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == ["virtual time (s)", "updates"]


def test_histogram_shows_shares_of_applied_gradients_only(asynchronous, backup):
    dropped = (backup.updates["status"] == "dropped").sum()
    assert dropped > 0
    panels = figures.comparison([asynchronous, backup]).axes[2:]
    for axes, of in zip(panels, (asynchronous, backup), strict=True):
        shares = applied(of).value_counts(normalize=True)
        lefts, _, heights = bars(axes).T
        assert heights.sum() == pytest.approx(1)
        assert {
            round(left + 0.5): height for left, height in zip(lefts, heights, strict=True) if height
        } == dict(shares)
        assert axes.lines[0].get_xdata()[0] == applied(of).mean()
        assert f"mean {applied(of).mean():.2f}" in axes.get_title(loc="left")
        assert f"n = {len(applied(of)):,}" in axes.get_title(loc="left")
    assert panels[0].get_xlim() == panels[1].get_xlim()
    assert f"{dropped:,} dropped" in panels[1].get_title(loc="left")
    assert "dropped" not in panels[0].get_title(loc="left")


def test_wide_bins_are_noted():
    of = result(workers=64, accuracy=False)
    of.updates.loc[0, "staleness"] = 150
    axes = figures.comparison([of]).axes[2]
    assert bars(axes)[:, 2].sum() == pytest.approx(1)
    assert "bins of 3" in axes.get_title(loc="left")


def test_members_of_different_seeds_are_one_mean_line():
    of = result(seeds=range(5), learning__seed=list(range(5)))
    figure = figures.comparison([of])
    values = of.metrics.pivot(index="updates", columns="member", values="test_accuracy")
    values = values.astype(float)
    axes = figure.axes[1]
    np.testing.assert_allclose(drawn(axes)["stragglers (n = 5)"][:, 1], values.mean(axis=1))
    band = axes.collections[0].get_paths()[0].vertices
    for at, row in values.iterrows():
        low, high = (
            stats.t.interval(0.95, 4, row.mean(), stats.sem(row))
            if row.std()
            else (row.mean(),) * 2
        )
        drawn_there = band[np.isclose(band[:, 0], at), 1]
        np.testing.assert_allclose(
            (drawn_there.min(), drawn_there.max()), np.clip((low, high), 0, 1), atol=1e-6
        )
    assert "95 % interval" in words(figure)


def test_band_of_few_seeds_is_their_range():
    of = result(seeds=(0, 1, 2), learning__seed=[0, 1, 2])
    figure = figures.comparison([of])
    values = of.metrics.pivot(index="updates", columns="member", values="test_accuracy")
    band = figure.axes[1].collections[0].get_paths()[0].vertices
    for at, row in values.astype(float).iterrows():
        drawn_there = band[np.isclose(band[:, 0], at), 1]
        assert (drawn_there.min(), drawn_there.max()) == (row.min(), row.max())
    assert "range of n seeds" in words(figure)
    assert "95 % interval" not in words(figure)


def test_interval_of_losses_stays_above_zero():
    of = result(seeds=range(5), learning__seed=list(range(5)), accuracy=False)
    of.metrics["test_loss"] = np.where(of.metrics["member"] == 0, 5.0, 0.1)  # 1.1 +- 2.7
    band = figures.comparison([of]).axes[0].collections[0].get_paths()[0].vertices
    assert (band[:, 1] > 0).all()


def test_runs_of_different_seeds_share_one_line():
    runs = [result(seed=seed, **{"cluster__seed": seed}) for seed in (0, 1)]
    figure = figures.comparison(runs)
    line = drawn(figure.axes[0])["stragglers (n = 2)"]
    first, second = (of.metrics for of in runs)
    assert line[:, 0].max() <= min(first["time"].max(), second["time"].max())
    at_line = [np.interp(line[:, 0], of["time"], of["test_accuracy"]) for of in (first, second)]
    np.testing.assert_allclose(line[:, 1], np.mean(at_line, axis=0))
    assert f"n = {sum(len(applied(of)) for of in runs)}" in figure.axes[2].get_title(loc="left")


def test_members_of_run_share_colour_but_not_dashes():
    runs = [
        result(seeds=(0, 0), learning__lr=[0.01, 0.1], method=method) for method in ("one", "two")
    ]
    left, _, *panels = figures.comparison(runs).axes
    colours = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in left.lines}
    assert (
        colours["one, lr = 0.01"][0] == colours["one, lr = 0.1"][0] != colours["two, lr = 0.01"][0]
    )
    assert (
        colours["one, lr = 0.01"][1] == colours["two, lr = 0.01"][1] != colours["one, lr = 0.1"][1]
    )
    for axes, name in zip(panels, ("one", "two"), strict=True):
        assert (
            matplotlib.colors.to_hex(axes.patches[0].get_facecolor()).upper()
            == colours[f"{name}, lr = 0.1"][0]
        )


def test_diverged_line_has_a_note():
    few = result(accuracy=False)
    few.metrics.loc[few.metrics["updates"] > 50, "test_loss"] = np.inf
    assert "a line ends where one of its seeds diverged" in words(figures.comparison([few]))


def test_line_bridges_gaps_and_ends_at_divergence():
    curve = pd.DataFrame(
        {"time": [0.0, 1, 2, 3, 4], "train_loss": [np.nan, 8.0, np.nan, 4.0, np.inf]}
    )
    at, values = Line("run", "run", [curve]).points("time", "train_loss")
    np.testing.assert_array_equal(at, curve["time"])
    np.testing.assert_array_equal(values, [[np.nan, 8, 6, 4, np.nan]])


def test_line_ends_with_the_shortest_curve():
    """The seeds' last evaluations come at seconds of their own: none of them is left out."""
    first = pd.DataFrame({"time": [0.0, 1.0, 3.0], "test_loss": [8.0, 4.0, 2.0]})
    second = pd.DataFrame({"time": [0.0, 0.8, 2.0], "test_loss": [8.0, 4.0, 1.0]})
    for curves in ([first, second], [second, first]):
        at, values = Line("run", "run", curves).points("time", "test_loss")
        assert at[-1] == 2.0
        assert sorted(values[:, -1]) == [1.0, 3.0]


def test_accuracy_axis_spans_differences_and_target(asynchronous):
    of = SimpleNamespace(**vars(asynchronous) | {"metrics": asynchronous.metrics.copy()})
    of.metrics["test_accuracy"] = np.linspace(0.9, 0.99, len(of.metrics))
    of.metrics.loc[0, "test_accuracy"] = 0.1
    axes = figures.comparison([of], target=0.85).axes[0]
    low, high = axes.get_ylim()
    assert 0.8 < low < 0.85
    assert 0.99 < high < 1.01
    assert set(drawn(axes)["target 85 %"][:, 1]) == {0.85}
    assert axes.yaxis.get_major_formatter()(0.975) == "97.5"
    of.metrics.loc[3, "test_accuracy"] = 0.05
    assert figures.comparison([of]).axes[0].get_ylim()[0] < 0.05, "a late collapse is not cut off"


def test_comparison_without_accuracy_shows_loss_or_samples():
    loss = figures.comparison([result(accuracy=False)], target=0.9).axes[0]
    assert set(drawn(loss)) == {"stragglers"}, "the target is an accuracy"
    assert (loss.get_ylabel(), loss.get_yscale()) == ("test loss", "log")
    timing = result(accuracy=False)
    timing.metrics = timing.metrics.drop(columns=["test_loss"]).assign(train_loss=np.nan)
    samples = figures.comparison([timing]).axes[0]
    assert (samples.get_ylabel(), samples.get_yscale()) == ("samples", "linear")
    np.testing.assert_array_equal(drawn(samples)["stragglers"], timing.metrics[["time", "samples"]])


def test_labels_come_from_caller_sweep_or_config(asynchronous):
    names = [set(drawn(figures.comparison(runs).axes[0])) for runs in (
        [asynchronous],
        [result(name="one"), result(name="two")],
        [result(cluster__workers=4, method="a"), result(cluster__workers=8, method="a")],
        [result(algorithm__cancel=True), result(algorithm__cancel=False)],
    )]  # fmt: skip
    assert names == [
        {"stragglers"},
        {"one", "two"},
        {"workers = 4", "workers = 8"},
        {"cancel = True", "cancel = False"},
    ]
    labels = iter(("ours", "theirs"))
    twins = [asynchronous, asynchronous]
    assert set(drawn(figures.comparison(twins, label=lambda _: next(labels)).axes[0])) == {
        "ours",
        "theirs",
    }
    with pytest.raises(ValueError, match="label="):
        figures.comparison(twins)


def test_timeline_has_bars_for_computing_and_status(cancelling):
    axes = figures.timeline(cancelling).axes[0]
    until = axes.get_xlim()[1]
    assert until == cancelling.updates.groupby("worker")["time"].nth(29).min()
    fates = cancelling.updates[cancelling.updates["started"] < until]
    assert set(fates["status"]) == {"applied", "dropped", "cancelled"}
    by_label = {of.get_label(): of.patches for of in axes.containers}
    for status, label in (
        ("applied", "computing"),
        ("dropped", "dropped"),
        ("cancelled", "cancelled"),
    ):
        of = fates[fates["status"] == status]
        ends = of["computed"].fillna(of["time"])
        got = [
            (bar.get_x(), bar.get_x() + bar.get_width(), bar.get_y() + 0.35)
            for bar in by_label[label]
        ]
        np.testing.assert_allclose(
            got, np.stack([of["started"], ends, of["worker"]], axis=1), atol=1e-12
        )
    way = [
        (bar.get_x(), bar.get_x() + bar.get_width())
        for bar in by_label["computed, not yet applied"]
    ]
    computed = fates["computed"].fillna(fates["time"])
    np.testing.assert_allclose(way, np.stack([computed, fates["time"]], axis=1), atol=1e-12)
    ticks = fates.loc[fates["status"] == "applied", ["time", "worker"]]
    np.testing.assert_array_equal(drawn(axes)["applied"], ticks)


def test_timeline_colours_bars_by_staleness(asynchronous):
    figure = figures.timeline(asynchronous, until=0.3)
    axes, bar = figure.axes
    assert axes.get_xlim() == (0, 0.3)
    assert bar.get_ylabel() == "staleness (updates)"
    of = asynchronous.updates[asynchronous.updates["started"] < 0.3]
    colours = matplotlib.colormaps["viridis"](of["staleness"] / of["staleness"].max())
    np.testing.assert_allclose([patch.get_facecolor() for patch in axes.containers[0]], colours)


def test_timeline_starts_at_given_time(asynchronous):
    axes, _ = figures.timeline(asynchronous, start=0.1, until=0.3).axes
    assert axes.get_xlim() == (0.1, 0.3)
    of = asynchronous.updates.query("started < 0.3 and time >= 0.1")
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.containers[0]]
    expected = np.stack([of["started"], of["computed"] - of["started"]], axis=1)
    np.testing.assert_allclose(bars, expected, atol=1e-12)
    end = asynchronous.updates.query("time >= 0.1").groupby("worker")["time"].nth(29).min()
    by_default = figures.timeline(asynchronous, start=0.1).axes[0]
    assert by_default.get_xlim() == (0.1, pytest.approx(end))
    with pytest.raises(ValueError, match=r"start: .* less than 0\.3 s, got 0\.3"):
        figures.timeline(asynchronous, start=0.3, until=0.3)


def test_timeline_shows_chosen_workers_and_names_hidden(asynchronous):
    figure = figures.timeline(asynchronous, workers=[2, 0])
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["2", "0", "server"]
    row = {bar.get_y() + 0.35 for bar in axes.containers[0] if bar.get_width() > 0.03}
    assert row == {1.0}
    assert "not shown: workers 1, 3" in words(figure)


def test_staleness_over_time_is_a_rolling_mean(asynchronous):
    histogram, right = figures.staleness(asynchronous).axes
    assert bars(histogram)[:, 2].sum() == pytest.approx(1)
    of = asynchronous.updates.query("worker == 2 and status == 'applied'")
    line = drawn(right)["worker 2"]
    np.testing.assert_array_equal(line[:, 0], of["time"])
    assert line[-1, 1] == pytest.approx(of["staleness"].tail(ROLLING).mean())
    assert set(drawn(right)["mean"][:, 1]) == {applied(asynchronous).mean()}


def test_only_stalest_of_many_workers_is_coloured():
    figure = figures.staleness(result(workers=12))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["stalest worker", "mean"]
    assert "the stalest worker, 0; grey: the other 11" in words(figure)
    many, few = result(workers=12), result(workers=3)
    for both in ([many, few], [few, many]):
        assert "grey: of more than 8 workers, all but the stalest" in words(figures.staleness(both))


def test_ticks_of_fresh_gradients_are_whole_numbers(asynchronous):
    fresh = asynchronous.updates.assign(staleness=0)
    runs = [
        SimpleNamespace(**vars(asynchronous) | {"updates": fresh, "number": number})
        for number in range(MAX_ROWS + 1)
    ]
    (axes,) = figures.staleness(runs, label=lambda run: f"run {run.number}").axes
    assert (axes.get_xticks() % 1 == 0).all()


def test_panels_of_learning_span_the_same_time(asynchronous):
    """A short run has a single training loss, at its end."""
    ends = asynchronous.metrics.iloc[[0, -1]]
    short = SimpleNamespace(**vars(asynchronous) | {"metrics": ends})
    loss, training = figures.learning(short).axes[-2:]
    assert len(training.lines[0].get_xdata()[np.isfinite(training.lines[0].get_ydata())]) == 1
    assert loss.get_xlim() == training.get_xlim()


def test_curves_are_drawn_against_all_four_axes(asynchronous):
    figure = figures.curves(asynchronous)
    panels = np.reshape(figure.axes, (3, 4))
    assert [axes.get_xlabel() for axes in panels[-1]] == [
        "virtual time (s)",
        "updates",
        "samples",
        "epochs",
    ]
    for row, measure in zip(panels, LEARNT, strict=True):
        assert row[0].get_ylabel() == CURVES[measure]
        for axes, x in zip(row, CURVE_AXES, strict=True):
            np.testing.assert_array_equal(
                drawn(axes)["stragglers"], asynchronous.metrics[[x, measure]]
            )


def test_learning_is_drawn_against_bytes(asynchronous):
    axes = figures.learning(asynchronous, x="bytes").axes[0]
    assert axes.get_xlabel() == "bytes sent"
    (curve,) = drawn(axes).values()
    np.testing.assert_array_equal(curve, asynchronous.metrics[["bytes", "test_accuracy"]])
    assert axes.xaxis.get_major_formatter()(2.5e9) == "2.5 GB"


def test_run_without_bytes_is_not_drawn_against_them(asynchronous):
    older = asynchronous.metrics.drop(columns="bytes")
    of = SimpleNamespace(**vars(asynchronous) | {"metrics": older})
    figures.learning([of], x="updates")
    with pytest.raises(ValueError, match=r"x: .* --force"):
        figures.learning([of], x="bytes")


def test_run_without_applied_gradients_is_drawn(asynchronous):
    of = SimpleNamespace(
        **vars(asynchronous) | {"updates": asynchronous.updates.assign(status="cancelled")}
    )
    for figure in (figures.comparison([of]), figures.staleness(of), figures.timeline(of)):
        figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("draw", "suffix"), [(figures.timeline, ".png"), (figures.comparison, ".SVG")]
)
def test_figure_is_written_in_format_of_suffix(tmp_path, backup, draw, suffix):
    path = tmp_path / "made" / f"figure{suffix}"
    of = [backup] if draw is figures.comparison else backup
    assert isinstance(draw(of, path), Figure)
    assert path.read_bytes().startswith({".png": b"\x89PNG", ".SVG": b"<?xml"}[suffix])
    assert list(path.parent.iterdir()) == [path]
    first = path.read_bytes()
    draw(of, path)
    assert path.read_bytes() == first, "the same data should give the same bytes"
    assert b"<dc:date>" not in first


def test_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "figure.nonsense"
    path.write_text("before")
    with pytest.raises(
        ValueError, match=r"expected a name that ends in one of .*\.png.*, got 'figure\.nonsense'"
    ):
        figures.save(Figure(), path)
    with pytest.raises(ValueError, match=r"\.png, .* got 'noext'"):
        figures.save(Figure(), tmp_path / "noext")
    assert [(file, file.read_text()) for file in tmp_path.iterdir()] == [(path, "before")]


def test_target_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "figure.png"
    path.mkdir()
    with pytest.raises(OSError, match="Is a directory") as caught:
        figures.save(Figure(), path)
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "draw", [figures.timeline, figures.staleness, figures.curves, figures.comparison]
)
def test_nothing_overlaps_or_is_cut(asynchronous, cancelling, draw):
    """Every text lies within the figure, and no title, label or legend on another."""
    figure = draw([asynchronous, cancelling] if draw is figures.comparison else cancelling)
    figure.draw_without_rendering()
    texts = [
        text
        for axes in figure.axes
        for text in (axes._left_title, axes.xaxis.label, axes.yaxis.label)
    ]
    boxes = [
        of.get_window_extent()
        for of in (*texts, *figure.legends, figure._supxlabel)
        if of not in texts or of.get_text()
    ]
    for index, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:index])


def test_no_global_state_is_touched(asynchronous):
    before = dict(matplotlib.rcParams)
    figures.comparison([asynchronous])
    assert dict(matplotlib.rcParams) == before
    sources = list(Path(figures.__file__).parent.glob("*.py"))
    assert len(sources) > 5
    assert not any("pyplot" in source.read_text() for source in sources)


def test_loss_within_decade_has_plain_tick_labels(asynchronous, tmp_path):
    """Minor ticks of a short log axis once pushed its neighbour out of the figure; a warning of
    that fails the test.
    """
    short = SimpleNamespace(**vars(asynchronous))
    short.metrics = asynchronous.metrics.drop(columns="test_accuracy")
    short.metrics["test_loss"] = np.linspace(2.0, 1.04, len(short.metrics))
    figure = figures.comparison([short], tmp_path / "short.png")
    left, right = figure.axes[:2]
    shown = [
        text.get_text() for text in (*left.get_yticklabels(), *left.get_yticklabels(minor=True))
    ]
    assert "1.4" in shown
    assert not any(text.get_visible() for text in right.get_yticklabels(minor=True))
