"""Grids, phases, links, graphs and consensus show what an independent calculation gives."""

import math
from itertools import pairwise

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from laggard import load, sweep
from laggard.experiments import figures
from laggard.experiments.figures.network import busiest, steps
from laggard.experiments.figures.timelines import phases, seconds
from laggard.experiments.results.formats import label_text

QUADRATIC = """
cluster: {workers: 1}
task: {model: quadratic, jitter: 0.3, noise: 0.05}
learning: {optimizer: sgd, momentum: 0.0}
stop: {updates: 60}
evaluate: {every_updates: 30}
sweep: {learning.lr: [0.01, 0.1, 0.9, 1.9], learning.seed: [0, 1, 2]}
"""


@pytest.fixture(scope="module")
def grid(bench):
    """Delay by learning rate, three seeds."""
    label = "algorithm.delay"
    return [
        bench(f"{QUADRATIC}algorithm: {{name: delayed, delay: {D}}}\n", **{label: D})
        for D in (0, 1, 8)
    ]


def words(figure):
    return " ".join(figure.get_supxlabel().split())


def labelled(axes, start):
    return [line for line in axes.lines if str(line.get_label()).startswith(start)]


def test_heat_map_shows_seed_means_and_exact_limit(grid):
    figure = figures.lr_delay(grid)
    axes = figure.axes[0]
    cells = axes.collections[0].get_array()
    for row, of in enumerate(grid):
        last = of.metrics.groupby("member").tail(1)
        np.testing.assert_allclose(cells[row], last.groupby("learning.lr")["test_loss"].mean())
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.01", "0.1", "0.9", "1.9"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "1", "8"]
    (stairs,) = [patch for patch in axes.patches if patch.get_label() == "stability limit: theory"]
    limits = np.array([2.0, 1.0, 2 * np.sin(np.pi / 34)])
    expected = np.interp(np.log(limits[1:]), np.log([0.01, 0.1, 0.9, 1.9]), np.arange(4) + 0.5)
    np.testing.assert_allclose(stairs.get_data().values[1:], expected)
    assert 3.5 < stairs.get_data().values[0] < 4
    assert "n = 3 seeds" in words(figure)


def accurate(grid, accuracies):
    """The grid's runs with these final accuracies `(delays, lrs)`, the same for every seed."""
    changed = []
    for of, row in zip(grid, accuracies, strict=True):
        lrs = sorted(of.metrics["learning.lr"].unique())
        ends = [row[lrs.index(lr)] for lr in of.metrics["learning.lr"]]
        changed += swept([of], test_accuracy=ends)
    return changed


def test_measured_limit_separates_learning_from_failing_cells(grid, monkeypatch):
    """No cell of the first row fails, the last of the second fails, all of the third fail; 0.5 is
    chance.
    """
    monkeypatch.setattr("laggard.experiments.figures.grids.exact_limit", lambda config: None)
    monkeypatch.setattr("laggard.experiments.figures.grids.chance", lambda config: 0.1)
    accuracy = [[0.5, 0.9, 0.8, 0.7], [0.5, 0.9, 0.8, 0.1], [0.1, 0.12, 0.1, 0.1]]
    figure = figures.lr_delay(accurate(grid, accuracy))
    axes = figure.axes[0]
    (stairs,) = [
        patch for patch in axes.patches if patch.get_label() == "stability limit: measured"
    ]
    np.testing.assert_allclose(stairs.get_data().values, [4.0, 3.0, 0.0])
    assert "twice chance accuracy" in words(figure)
    np.testing.assert_allclose(axes.collections[0].get_array(), accuracy)


def test_cell_with_diverged_seed_is_hatched(grid):
    broken = swept(grid)
    metrics = broken[2].metrics
    metrics.loc[(metrics["learning.lr"] == 1.9) & (metrics["learning.seed"] == 1), "test_loss"] = (
        np.nan
    )
    figure = figures.lr_delay(broken)
    hatched = [
        patch.get_xy() for patch in figure.axes[0].patches if getattr(patch, "get_hatch", str)()
    ]
    assert hatched == [(3, 2)]
    assert np.ma.getmaskarray(figure.axes[0].collections[0].get_array()).sum() == 1
    assert "hatched: diverged" in words(figure)


def test_third_swept_key_has_separate_panels(grid):
    first, other = (swept(grid, **{"task.batch": size}) for size in (1, 2))
    figure = figures.lr_delay([*first, *other])
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["batch = 1", "batch = 2"]
    with pytest.raises(
        ValueError, match=r"task\.batch: expected several values, got one: sweep it"
    ):
        figures.lr_batch(first)


def test_limit_is_drawn_only_between_learning_rates(grid):
    """Results of several tasks may have panels with one learning rate."""
    single = swept(grid[:2], method="one")
    for of in single:
        of.metrics = of.metrics[of.metrics["learning.lr"] == 0.1]
    figure = figures.lr_delay([*swept(grid[:2], method="all"), *single])
    limits = [
        [patch for patch in axes.patches if patch.get_label().startswith("stability limit")]
        for axes in figure.axes[:2]
    ]
    assert [len(patches) for patches in limits] == [1, 0]


def swept(grid, **values):
    """The grid's runs with another column."""
    return [type(of)(**vars(of) | {"metrics": of.metrics.assign(**values)}) for of in grid]


def ticks(axes, which="y"):
    """The labels of an axis that are shown."""
    shown = [tick.label1 for tick in getattr(axes, f"{which}axis").get_major_ticks()]
    return [label.get_text() for label in shown if label.get_visible()]


def test_panel_has_ticks_at_its_values(grid):
    """Panels with different row values do not share tick labels."""
    few, many = swept(grid[:2], method="few"), swept(grid[1:], method="many")
    figure = figures.lr_delay([*few, *many])
    assert [ticks(axes) for axes in figure.axes[:2]] == [["0", "1"], ["1", "8"]]
    same = figures.lr_delay([*swept(grid, method="few"), *swept(grid, method="many")])
    assert [ticks(axes) for axes in same.axes[:2]] == [["0", "1", "8"], []]


def test_names_follow_order_of_sweep_from_top(grid):
    runs = [run for name in ("none", "best", "middling") for run in swept(grid[:1], method=name)]
    axes = figures.heat(runs, y="method").axes[0]
    assert ticks(axes) == ["middling", "best", "none"]
    labels = [line.get_label() for line in figures.cliff(runs, by="method").axes[0].containers]
    assert labels == ["method = none", "method = best", "method = middling"]


@pytest.mark.parametrize("panels", [1, 5])
def test_lowest_panel_of_column_names_learning_rates(grid, panels):
    figure = figures.cliff(
        [run for number in range(panels) for run in swept(grid, method=f"m{number}")]
    )
    shown = [axes for axes in figure.axes if axes.get_visible()]
    lowest = {axes.get_subplotspec().colspan.start: axes for axes in shown}
    assert [axes for axes in shown if axes.get_xlabel()] == [
        axes for axes in shown if axes in lowest.values()
    ]
    assert all(bool(ticks(axes, "x")) == (axes in lowest.values()) for axes in shown)


def test_learning_rates_that_would_touch_are_turned(grid):
    wide = swept(grid, **{"learning.lr": grid[0].metrics["learning.lr"] * 0.0123})
    turned = [
        figures.lr_delay(runs).axes[0].get_xticklabels()[0].get_rotation() for runs in (grid, wide)
    ]
    six = figures.lr_delay([run for number in range(6) for run in swept(wide, method=f"m{number}")])
    assert [*turned, six.axes[3].get_xticklabels()[0].get_rotation()] == [0, 0, 45]


def test_cliff_shows_mean_and_interval_per_rate(grid):
    accuracies = accurate(grid, [[0.5, 0.9, 0.8, 0.7]] * 3)
    for of in accuracies:
        of.metrics["test_accuracy"] += 0.01 * of.metrics["learning.seed"]
    figure = figures.cliff(accuracies)
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert [container.get_label() for container in axes.containers] == [
        f"delay D = {D}" for D in (0, 1, 8)
    ]
    line, _, (bars,) = axes.containers[1]
    np.testing.assert_allclose(
        line.get_xydata(), np.c_[[0.01, 0.1, 0.9, 1.9], [0.51, 0.91, 0.81, 0.71]]
    )
    low, high = stats.t.interval(0.95, 2, 0.91, 0.01 / np.sqrt(3))
    np.testing.assert_allclose(bars.get_segments()[1][:, 1], (low, high))


def test_phases_of_fresh_gradients_have_a_plain_axis(bench):
    """Without any staleness, no bar has a length."""
    run = bench("algorithm: sync_ps\ntask: {model: quadratic}\nstop: {updates: 3}\n")
    left, _ = figures.split(run).axes
    assert left.get_xlim() == (0, 1.15)


def test_phases_count_the_updates_that_fell_into_them():
    """Read at version 0: two updates before the start, one while it is computed, one on the way,
    one in the queue.
    """
    table = pd.DataFrame({
        "time": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "worker": [1, 1, 1, 1, 1, 0], "target": -1,
        "started": [0.0] * 5 + [2.5], "computed": [0.5] * 5 + [3.5], "arrived": [0.6] * 5 + [4.5],
        "version_read": [0, 1, 2, 3, 4, 0], "version": range(6), "staleness": [0] * 5 + [5],
        "status": "applied",
    })  # fmt: skip
    split = phases(table).iloc[-1]
    ways = ["network down", "compute", "network up", "barrier", "queue"]
    assert split[ways].tolist() == [2, 1, 1, 0, 1]
    took = seconds(table).iloc[-1]
    assert took[["compute", "network up", "barrier", "queue"]].tolist() == [1.0, 1.0, 0.0, 1.5]
    unsplit = phases(table.drop(columns="arrived")).iloc[-1]
    assert unsplit[["network down", "compute", "network up, queue, barrier"]].tolist() == [2, 1, 2]


def test_phases_of_a_read_in_the_instant_of_an_update_are_zero():
    """On a free network a worker reads the weights in the instant of the update."""
    table = pd.DataFrame({
        "time": [1.0, 2.0], "worker": 0, "target": -1, "started": [0.0, 1.0],
        "computed": [1.0, 2.0], "arrived": [1.0, 2.0], "version_read": [0, 1], "version": [0, 1],
        "staleness": 0, "status": "applied",
    })  # fmt: skip
    assert not phases(table).drop(columns="worker").any(axis=None)


LOGGED = """
cluster: {workers: 5, compute: {law: gamma, mean: 1, cv: 0.4}, network: {bandwidth: 20, latency: 0.1, message_bytes: 4}}
task: {model: timing}
record: {messages: true}
stop: {updates: 150}
"""


@pytest.fixture(scope="module", params=["async_ps", "{name: soft_sync, gradients: 3}", "sync_ps"])
def logged(bench, request):
    return bench(f"{LOGGED}algorithm: {request.param}\n")


def test_phases_sum_to_staleness_and_age(logged):
    split, took = phases(logged.updates), seconds(logged.updates)
    applied = logged.updates[logged.updates["status"] == "applied"]
    assert (split.drop(columns=["worker", "staleness"]) >= 0).all(axis=None)
    assert (split.drop(columns=["worker", "staleness"]).sum(axis=1) == applied["staleness"]).all()
    np.testing.assert_allclose(
        took.drop(columns="worker").sum(axis=1), applied["time"] - applied["started"]
    )
    assert (took.drop(columns="worker") > -1e-12).all(axis=None)
    figure = figures.split(logged)
    left = figure.axes[0]
    ends = {
        round(bar.get_y() + 0.36): bar.get_x() + bar.get_width()
        for bar in left.patches
        if bar.get_width()
    }
    assert ends.get(0, 0.0) == pytest.approx(applied["staleness"].mean())
    for row, (_, of) in enumerate(applied.groupby("worker"), start=1):
        assert ends.get(row, 0.0) == pytest.approx(of["staleness"].mean())


def test_link_bytes_equal_message_bytes(logged):
    figure = figures.utilisation(logged)
    axes = figure.axes[0]
    mesh = axes.collections[0]
    edges = mesh.get_coordinates()[0, :, 0]
    table = mesh.get_array() * np.diff(edges) * 20 / 100
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names[:4] == ["server up", "server down", "worker 0 up", "worker 0 down"]
    there = logged.messages[logged.messages["arrived"].notna()]
    for name, row in zip(names, table, strict=True):
        rank = -1 if name.startswith("server") else int(name.split()[1])
        end = "sender" if name.endswith("up") else "receiver"
        assert row.sum() == pytest.approx(there.loc[there[end] == rank, "bytes"].sum())


HOSTS = "{workers: 4, network: {bandwidth: 20, message_bytes: 4, hosts: {size: 2, bandwidth: 40}}}"


@pytest.mark.parametrize("method", ["sync_ps", "{name: all_reduce, collective: mesh}"])
def test_host_card_counts_bytes_across_host_boundary(bench, method):
    run = bench(
        LOGGED.replace(LOGGED.splitlines()[1], f"cluster: {HOSTS}") + f"algorithm: {method}\n"
    )
    axes = figures.utilisation(run).axes[0]
    mesh = axes.collections[0]
    loads = mesh.get_array() * np.diff(mesh.get_coordinates()[0, :, 0]) * 20 / 100
    found = {
        tick.get_text(): row.sum() for tick, row in zip(axes.get_yticklabels(), loads, strict=True)
    }
    there = run.messages[run.messages["arrived"].notna()]
    names = {-1: "server", 0: "host 0", 1: "host 0", 2: "host 1", 3: "host 1"}
    start, end = there["sender"].map(names), there["receiver"].map(names)
    sums = [
        there["bytes"][start != end].groupby(name + way).sum()
        for name, way in ((start, " up"), (end, " down"))
    ]
    assert found == pytest.approx(pd.concat(sums).to_dict())


RACKS = """{workers: 4, network: {bandwidth: 20, message_bytes: 4, groups: {count: 2,
    trunks: [{switches: [0], to: core, bandwidth: 10}, {switches: [1], to: core}]}}}"""


def test_trunk_counts_bytes_between_groups(bench):
    """The server is in group 0; its weights are larger than what workers send."""
    run = bench(
        LOGGED.replace(LOGGED.splitlines()[1], f"cluster: {RACKS}")
        + "algorithm: {name: async_ps, compress: {name: top_k, keep: 0.25}}\n"
    )
    axes = figures.utilisation(run).axes[0]
    mesh = axes.collections[0]
    loads = mesh.get_array() * np.diff(mesh.get_coordinates()[0, :, 0]) * 10 / 100
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    # the busier one first; the trunk without a bandwidth is not drawn
    assert names[:3] == ["trunk group 0 to core", "trunk core to group 0", "server up"]
    there = run.messages[run.messages["arrived"].notna()]
    for carried, end in zip(loads, ("receiver", "sender"), strict=False):
        crossing = there[end] >= 2
        assert carried.sum() == pytest.approx(there.loc[crossing, "bytes"].sum()) != 0


def test_trunks_that_are_not_drawn_are_named(bench, monkeypatch):
    run = bench(
        LOGGED.replace(LOGGED.splitlines()[1], f"cluster: {RACKS}") + "algorithm: sync_ps\n"
    )
    monkeypatch.setattr("laggard.experiments.figures.network.MAX_TRUNKS", 1)
    monkeypatch.setattr("laggard.experiments.figures.network.MAX_CARDS", 4)
    figure = figures.utilisation(run)
    assert len(figure.axes[0].get_yticklabels()) == 1 + 2 * 4
    note = " ".join(figure.get_supxlabel().split())
    assert "not shown: trunk " in note
    assert note.endswith(", card of worker 3")


def test_message_is_spread_evenly_over_its_time(bench):
    run = bench("cluster: {workers: 1, network: {bandwidth: 1, message_bytes: 4}}\n"
                "task: {model: timing}\nrecord: {messages: true}\nstop: {updates: 1}\n")  # fmt: skip
    edges = figures.utilisation(run, bins=9).axes[0].collections[0]
    loads = dict(zip(("up", "down"), edges.get_array()[:2], strict=True))
    np.testing.assert_allclose(
        loads["up"], [100] * 4 + [0] * 5
    )  # weights for 4 s, 1 s of computing, a gradient for 4 s
    np.testing.assert_allclose(loads["down"], [0] * 5 + [100] * 4)
    run.messages = None
    with pytest.raises(ValueError, match="experiment: its method sent no message"):
        figures.utilisation(run)
    silent = bench("cluster: {workers: 1}\ntask: {model: timing}\nstop: {updates: 1}\n")
    with pytest.raises(
        ValueError, match=r"no messages recorded: run it with record\.messages=true"
    ):
        figures.utilisation(silent)
    weightless = bench(
        "cluster: {workers: 1}\ntask: {model: timing}\nrecord: {messages: true}\nstop: {updates: 1}\n"
    )
    with pytest.raises(ValueError, match="no message with a size has crossed a network"):
        figures.utilisation(weightless)


def test_arrivals_divide_thin_bars_of_timeline(logged):
    axes = figures.timeline(logged).axes[0]
    spans = {
        bars.get_label(): [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
        for bars in axes.containers
    }
    until = axes.get_xlim()[1]
    gradients = logged.updates[logged.updates["started"] < until]
    np.testing.assert_allclose(spans["on its way"], gradients[["computed", "arrived"]], atol=1e-12)
    # the legend has these bars only where some gradient waits at the server
    is_waiting = gradients["arrived"] < gradients["time"]
    assert ("arrived, not yet applied" in spans) == is_waiting.any()
    if is_waiting.any():
        queued = spans["arrived, not yet applied"]
        np.testing.assert_allclose(queued, gradients[["arrived", "time"]], atol=1e-12)
    (ticks,) = labelled(axes, "update")
    server = logged.updates.query("status == 'applied' and target < 0")
    assert set(ticks.get_xdata()) == set(server.loc[server["time"] <= until, "time"])


GOSSIP = "task: {model: quadratic, dim: 3, noise: 1, jitter: 1}\nstop: {updates: 20}\nevaluate: {every_updates: 2}\n"


def test_consensus_draws_metrics_and_refuses_server_methods(bench, grid):
    runs = [
        bench(f"name: {name}\ncluster: {{workers: 4}}\nalgorithm: {name}\n{GOSSIP}")
        for name in ("dpsgd", "adpsgd")
    ]
    axes = figures.consensus(runs).axes[0]
    assert axes.get_yscale() == "log"
    for of in runs:
        (line,) = labelled(axes, of.config.name)
        np.testing.assert_allclose(
            line.get_xydata(), of.metrics[["updates", "consensus"]].iloc[1:], rtol=1e-6
        )
    with pytest.raises(ValueError, match="no result has a consensus distance"):
        figures.consensus(grid[:1])
    assert "1 of 3 runs have no models" in words(figures.consensus([*runs, grid[0]]))
    with pytest.raises(ValueError, match=r"x: expected one of time, .*, got 'steps'"):
        figures.consensus(runs, x="steps")
    short = bench(
        f"cluster: {{workers: 4}}\nalgorithm: dpsgd\n{GOSSIP.replace('updates: 20', 'time: 1.0e-6')}"
    )
    with pytest.raises(ValueError, match="no result has a consensus distance after an update"):
        figures.consensus(short)


@pytest.mark.parametrize(
    ("method", "workers", "count", "cost"),
    [
        ("sync_ps", 6, [12], [(6, 6)]),
        ("dpsgd", 6, [12], [(2, 2)]),
        ("{name: sgp}", 8, [8, 8, 8], [(1, 1)] * 3),
        ("{name: all_reduce}", 5, [20], [(4, 4)]),
    ],
)
def test_topology_has_the_edges_of_its_config(bench, method, workers, count, cost):
    run = bench(
        f"cluster: {{workers: {workers}}}\nalgorithm: {method}\n{GOSSIP.replace('20', '1')}"
    )
    drawings = steps(run)
    assert [one.graph.number_of_edges() for one in drawings] == count
    assert [busiest(one.graph) for one in drawings] == cost
    assert all(nx.is_directed(one.graph) for one in drawings)
    figure = figures.topology(run)
    arrows = [
        sum(isinstance(patch, figures.network.FancyArrowPatch) for patch in axes.patches)
        for axes in figure.axes
    ]
    pairs = [len({frozenset(edge) for edge in one.graph.edges}) for one in drawings]
    assert arrows[: len(pairs)] == pairs


def test_busiest_host_card_carries_messages_of_its_workers(bench):
    """On a complete graph of four, two on a host: two messages of each of two workers, 4 x 4 B at
    20 B/s.
    """
    text = f"cluster: {HOSTS.replace('bandwidth: 20', 'topology: complete, bandwidth: 20')}\nalgorithm: dpsgd\n"
    (panel,) = figures.topology(bench(text + GOSSIP.replace("20", "1"))).axes
    said = "complete of 4, 2 on a host\nbusiest card: 4 up, 4 down\n4 x 4 B: 800 ms"
    assert panel.get_title(loc="left") == said


def test_topology_says_that_groups_are_not_drawn(bench):
    groups = "groups: {count: 2, trunks: [{switches: [0], to: 1, bandwidth: 2}]}"
    network = f"{{bandwidth: 20, message_bytes: 6, {groups}}}"
    text = f"cluster: {{workers: 8, network: {network}}}\n{GOSSIP.replace('20', '1')}"
    figure = figures.topology(bench(text + "algorithm: sync_ps\n"))
    assert "groups" in words(figure)
    title = "star of 8 in groups\nbusiest card: 8 up, 8 down\n8 x 6 B: 2.4 s"
    assert figure.axes[0].get_title(loc="left") == title


def test_collectives_that_share_a_graph_are_both_named(bench):
    text = f"cluster: {{workers: 4}}\n{GOSSIP.replace('20', '1')}algorithm: {{name: all_reduce, collective: NAME}}\n"
    (panel,) = figures.topology(
        [bench(text.replace("NAME", name)) for name in ("mesh", "ring")]
    ).axes
    assert (
        panel.get_title(loc="left") == "complete of 4\nits collective: mesh\nits collective: ring"
    )


def test_torus_stands_on_a_grid(bench):
    run = bench(
        "cluster: {workers: 12, network: {topology: torus}}\nalgorithm: dpsgd\n"
        + GOSSIP.replace("20", "1")
    )
    (drawing,) = steps(run)
    assert {place for place in drawing.places.values()} == {
        (x, -y) for x in range(4) for y in range(3)
    }
    assert all(degree == 4 for _, degree in drawing.graph.out_degree())


K_SYNC = "{name: k_sync, wait_for: %d, cancel: true}"


@pytest.mark.parametrize(
    ("cluster", "methods", "seconds"),
    [
        (
            "network: {bandwidth: 8, latency: 0.125, message_bytes: 2}",
            {2: "sync_ps", 4: "sync_ps"},
            [1.25 + 4 * 0.25, 1.25 + 8 * 0.25],
        ),
        # the server waits for one of two and for all of four: no single setting gives the line
        ("slowdowns: [{worker: 0, factor: 3}]", {2: K_SYNC % 1, 4: K_SYNC % 4}, [1, 3]),
    ],
)
def test_scaling_draws_measurements_and_closed_form(bench, cluster, methods, seconds):
    runs = []
    for workers, method in methods.items():
        text = f"cluster: {{workers: {workers}, {cluster}}}\nalgorithm: {method}\n"
        text += "task: {model: timing}\nstop: {updates: 9}\n"
        runs.append(bench(text, **{"cluster.workers": workers}))
    points, line = figures.scaling(runs).axes[0].lines
    np.testing.assert_allclose(line.get_xydata(), np.column_stack([list(methods), seconds]))
    np.testing.assert_allclose(points.get_xydata(), line.get_xydata())
    assert (points.get_label() == "8 B/s") == ("bandwidth" in cluster)
    with pytest.raises(ValueError, match=r"cluster\.workers: expected several values"):
        figures.scaling(runs[:1])


def test_occupation_shows_shares_of_workers_and_runs(bench):
    """Worker 0 takes 3 s, the others 1 s of each synchronous round and wait for 2."""
    text = "cluster: {workers: 3, slowdowns: [{worker: 0, factor: 3}]}\ntask: {model: timing}\nstop: {updates: 12}\n"
    sync, free = (
        bench(f"{text}algorithm: {name}\n", name=name) for name in ("sync_ps", "async_ps")
    )
    for results, computing in ([sync], [1, 1 / 3, 1 / 3]), ([sync, free], [5 / 9, 1]):
        axes = figures.occupation(results).axes[0]
        bars = {container.get_label(): np.zeros(len(computing)) for container in axes.containers}
        for container in axes.containers:
            for bar in container:  # states that took no time have no bar
                bars[container.get_label()][round(bar.get_y() + bar.get_height() / 2)] = (
                    bar.get_width()
                )
        np.testing.assert_allclose(bars["computing"], computing)
        np.testing.assert_allclose(bars["waiting"], 1 - np.array(computing), atol=1e-12)
        assert [text.get_text() for text in axes.texts] == [
            f"{1 - share:.0%}" for share in computing
        ]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "sync_ps (n = 3)",
        "async_ps (n = 3)",
    ]


def test_cliff_ticks_are_swept_rates_without_overlap(bench):
    rates = [0.02, 0.05, 0.1, 0.11, 1.0]
    grid = [bench(QUADRATIC.replace("[0.01, 0.1, 0.9, 1.9]", str(rates)) + "algorithm: async_ps")]
    figure = figures.cliff(grid)
    figure.draw_without_rendering()
    shown = [tick for tick in figure.axes[0].xaxis.get_ticklabels(which="both") if tick.get_text()]
    # 0.11 has a tick, and no name
    assert [float(tick.get_text()) for tick in shown] == [0.02, 0.05, 0.1, 1.0]
    assert list(figure.axes[0].xaxis.get_ticklocs(minor=True)) == [0.11]
    boxes = [tick.get_window_extent() for tick in shown]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_histogram_pools_the_seeds_of_a_setting(bench):
    runs = [
        bench(
            f"{TIMED.replace('seed: 0', f'seed: {seed}')}algorithm: {name}",
            **{"algorithm.name": name, "seed": seed},
        )
        for name in ("async_ps", "sync_ps")
        for seed in (0, 1, 2)
    ]
    figure = figures.histograms(runs)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title("left").splitlines()[0] for axes in panels] == [
        f"{name} (n = 3 seeds)" for name in ("async_ps", "sync_ps")
    ]
    pooled = pd.concat([run.updates for run in runs[:3]])["staleness"]
    heights = [bar.get_height() for bar in panels[0].patches]
    np.testing.assert_allclose(heights, np.bincount(pooled, minlength=len(heights)) / len(pooled))
    assert len(figures.histograms(runs[:1] + runs[3:4]).axes) == 2


TIMED = """
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.3}}
task: {model: timing}
stop: {updates: 60}
seed: 0
"""


def test_pdf_has_no_type_3_fonts(grid, tmp_path):
    figures.cliff(grid, tmp_path / "figure.pdf")
    content = (tmp_path / "figure.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/CIDFontType2" in content


def message_lines(axes):
    """The ends (s, row, s, row) of the lines of messages and tokens in a timeline."""
    ends = [
        segment.ravel()
        for lines in axes.collections
        if lines.get_label() in ("message", "token")
        for segment in lines.get_segments()
    ]
    return np.array(sorted(map(tuple, ends)))


def test_timeline_lines_lead_from_sender_to_receiver(logged):
    axes = figures.timeline(logged).axes[0]
    workers = len(logged.workers)
    sent = logged.messages[logged.messages["sent"] < axes.get_xlim()[1]].dropna(subset="arrived")
    rows = sent[["sender", "receiver"]].where(sent[["sender", "receiver"]] >= 0, workers)
    expected = np.column_stack([sent["sent"], rows["sender"], sent["arrived"], rows["receiver"]])
    assert len(expected) > 10
    np.testing.assert_allclose(message_lines(axes), np.array(sorted(map(tuple, expected))))


def test_note_counts_messages_that_are_not_drawn(logged, monkeypatch):
    monkeypatch.setattr("laggard.experiments.figures.timelines.MAX_MESSAGES", 10)
    figure = figures.timeline(logged)
    assert not len(message_lines(figure.axes[0]))
    assert any("messages are not drawn" in text.get_text() for text in figure.texts)


@pytest.mark.parametrize(
    ("away", "note"),
    [
        ("", "without a thick bar: sending or waiting"),
        (", uptime: 2, downtime: 1", "without a thick bar: sending, waiting or away"),
    ],
)
def test_timeline_explains_blanks(bench, away, note):
    members = f"members: {{start: 0{away}}}"
    text = f"cluster: {{workers: 2, {members}}}\ntask: {{model: timing}}\nstop: {{updates: 9}}\n"
    figure = figures.timeline(bench(f"{text}algorithm: async_ps\n"))
    assert [text.get_text() for text in figure.texts if text.get_text() == note] == [note]


@pytest.mark.parametrize(
    ("value", "key", "label"),
    [
        (1e6, "cluster.network.bandwidth", "bandwidth = 1 MB/s"),
        (math.inf, "cluster.network.server_bandwidth", "server_bandwidth = unlimited"),
        (1.234567e8, "bandwidth", "bandwidth = 123.457 MB/s"),
        (0.1, "learning.lr", "lr = 0.1"),
        (4, "cluster.workers", "workers = 4"),
    ],
)
def test_label_has_unit_of_bandwidth(value, key, label):
    assert label_text(value, key) == label


def test_target_time_takes_best_rate_per_cluster_size(tmp_path):
    """Without noise the loss is a quarter after a step at a rate of 1/2, and more at lower rates: so
    the third step of a second ends the fastest line, and one of workers that take two seconds.
    """
    path = tmp_path / "workers.yaml"
    path.write_text(
        "algorithm: sync_ps\n"
        "task: {model: quadratic}\n"
        "stop: {time: 40}\n"
        "evaluate: {every_updates: 1}\n"
        "sweep:\n"
        "  method:\n"
        "    quick: {cluster: {compute: {law: constant, mean: 1}}}\n"
        "    slow: {cluster: {compute: {law: constant, mean: 2}}}\n"
        "    cut: {stop: {time: 2}}\n"
        "  cluster.workers: [2, 4]\n"
        "  learning.lr: [0.25, 0.5]\n",
        encoding="utf-8",
    )
    results = sweep(load(path), tmp_path, jobs=1)
    axes = figures.target_time(results, target=0.5 * 0.25**3).axes[0]
    lines = {container.get_label(): container[0].get_xydata() for container in axes.containers}
    np.testing.assert_allclose(lines["quick"], [(2, 3), (4, 3)])
    np.testing.assert_allclose(lines["slow"], [(2, 6), (4, 6)])
    assert len(lines["cut"]) == 0
    (crosses,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert list(crosses.get_xdata()) == [2, 4]
    notes = " ".join(text.get_text() for text in axes.figure.texts)
    assert "points: n = 1 seed," in notes
    (ideal,) = [line for line in axes.lines if line.get_label().startswith("ideal")]
    np.testing.assert_allclose(ideal.get_xydata(), [(2, 3), (4, 1.5)])
    with pytest.raises(ValueError, match=r"cluster\.workers: expected several values"):
        figures.target_time(results.where(**{"cluster.workers": 2}), target=0.1)


def test_equal_models_are_a_line_at_zero_without_a_gap(bench):
    run = bench(
        "cluster: {workers: 2}\n"
        "algorithm: all_reduce\n"
        "task: {model: quadratic}\n"
        "stop: {updates: 4}\n"
        "evaluate: {every_updates: 1}\n"
    )
    figure = figures.consensus([run])
    (line,) = figure.axes[0].lines
    assert set(line.get_ydata()) == {0}
    assert "a gap" not in figure.get_supxlabel()
