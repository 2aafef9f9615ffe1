"""Figures of results that are hardly any, or too many: drawn without a warning, or refused in a
line.
"""

import numpy as np
import pytest

from laggard.experiments.figures import FIGURES

pytestmark = pytest.mark.slow

TEXT = """
cluster: {workers: 3, compute: {law: gamma, mean: 1, cv: 0.3}, network: {bandwidth: 100, message_bytes: 4}}
task: {model: quadratic, dim: 3, noise: 0.2, jitter: 0.2}
record: {messages: true}
stop: {updates: 30}
evaluate: {every_updates: 10}
"""
LONG = "a method whose name goes on and on until nobody can remember how it began, least of all a legend"
EVERYWHERE = [
    name
    for name in FIGURES
    if name not in ("lr_delay", "lr_batch", "cliff", "scaling", "target_time", "consensus")
]


def drawn(name, results):
    """The figure, laid out; a warning of matplotlib's is an error here."""
    figure = FIGURES[name].function(results)
    figure.draw_without_rendering()
    return figure


def changed(result, **tables):
    return type(result)(**vars(result) | tables)


@pytest.fixture(scope="module")
def plain(bench):
    return bench(TEXT)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_run_without_applied_gradients_is_drawn(plain, name):
    drawn(name, [changed(plain, updates=plain.updates.assign(status="cancelled"))])
    drawn(name, [changed(plain, updates=plain.updates.iloc[:0])])


@pytest.mark.parametrize("name", EVERYWHERE)
def test_run_with_one_evaluation_is_drawn(plain, name):
    drawn(name, [changed(plain, metrics=plain.metrics.iloc[:1])])


@pytest.mark.parametrize("name", ["comparison", "learning", "curves", "staleness"])
def test_run_diverged_from_start_is_drawn(plain, name):
    metrics = plain.metrics.assign(test_loss=np.nan, train_loss=np.nan)
    drawn(name, [changed(plain, metrics=metrics)])
    drawn(name, [changed(plain, metrics=metrics.assign(test_accuracy=np.nan)), plain][:1])


@pytest.mark.parametrize("name", ["lr_delay", "cliff"])
def test_diverged_grid_is_drawn(bench, name):
    sweep = "algorithm: {name: delayed, delay: %d}\nlearning: {optimizer: sgd}\nsweep: {learning.lr: [1e20, 1e30]}\n"
    runs = [
        bench(TEXT.replace("workers: 3", "workers: 1") + sweep % D, **{"algorithm.delay": D})
        for D in (1, 9)
    ]
    assert not any(np.isfinite(run.metrics["test_loss"].iloc[-2:]).any() for run in runs)
    figure = drawn(name, runs)
    assert "diverged" in figure.get_supxlabel()


@pytest.mark.parametrize("name", [*EVERYWHERE, "consensus"])
def test_sixty_four_workers_are_drawn(bench, name):
    method = "algorithm: dpsgd\n" if name == "consensus" else ""
    drawn(name, [bench(TEXT.replace("workers: 3", "workers: 64") + method)])


@pytest.mark.parametrize("name", ["comparison", "learning", "curves", "cliff"])
def test_forty_lines_are_drawn(bench, name):
    lrs = ", ".join(f"{0.001 * 1.1**k:.6f}" for k in range(40))
    drawn(name, [bench(f"{TEXT}sweep: {{learning.lr: [{lrs}]}}\n")])


def test_forty_delays_fit_one_cliff(plain):
    metrics = plain.metrics.assign(**{"learning.lr": 0.1})
    other = plain.metrics.assign(**{"learning.lr": 0.2})
    runs = [
        changed(plain, metrics=of.assign(**{"algorithm.delay": D}))
        for D in range(40)
        for of in (metrics, other)
    ]
    figure = drawn("cliff", runs)
    assert len(figure.axes[0].containers) == 40
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert 8 <= len(named) <= 13
    assert named[-1] == "delay D = 39"
    drawn("lr_delay", runs[::8] + runs[1::8])


@pytest.mark.parametrize("name", [name for name in EVERYWHERE if name != "topology"])
def test_long_names_stay_in_the_figure(plain, name):
    runs = [
        changed(plain, metrics=plain.metrics.assign(method=f"{LONG} {number}"))
        for number in range(3)
    ]
    figure = drawn(name, runs)
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1
    for axes in figure.axes:
        title = axes._left_title.get_window_extent()
        assert not axes._left_title.get_text() or title.x1 <= figure.bbox.x1 + 1
        assert (
            axes.get_window_extent().width > 0.1 * figure.bbox.width
            or not axes.get_visible()
            or name != "split"
        )


@pytest.mark.parametrize("name", FIGURES)
def test_no_results_are_refused(name):
    with pytest.raises(ValueError, match="expected a result to draw, got none"):
        FIGURES[name].function([])
