"""Gossip: nodes with data of their own, random matchings and relayed sums."""

from dataclasses import replace
from functools import partial

import networkx
import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Rule, Stop, simulate
from laggard.simulator.algorithms.contrib import matcha
from laggard.simulator.learning.rules import SGD, WarmUp
from laggard.simulator.network.mixing import matrix
from laggard.simulator.network.topology import Complete, Graph, Ring
from laggard.simulator.timing.slowdowns import Factor
from tests.cases import quick
from tests.theory.gossiping import (
    KOLOSKOVA,
    ORDERS,
    STARTS,
    WANG,
    on,
    start_apart,
    sum_by_gradients,
)
from tests.theory.statements import at_most, close, differ, equal, mean_is, same
from tests.theory.test_gossip_methods import looped, models_of
from tests.theory.trials import (
    ADAM,
    LINEAR,
    LR,
    every,
    method,
    note_reads,
    quadratic,
    remains_of,
    slope,
)

LIN, TANG, VOGELS = "Lin et al. (2021)", "Tang et al. (2018)", "Vogels et al. (2021)"
NEDIC, YUAN = "Nedic et al. (2017)", "Yuan et al. (2019)"
h = np.array([1.0, 0.25, 1.0, 0.5, 2.0])
a = np.array([0.0, 2.0, 10.0, -4.0, 1.0])
"""Curvature and optimum of each node."""
P, H = len(h), np.diag(h)
GRAPHS = {
    "ring": Ring(),
    "wheel": Graph("wheel_graph", {"n": P}),
    "path": Graph("path_graph", {"n": P}),
}
OPTIMUM = np.full(P, (h * a).sum() / h.sum())
"""Where the mean of the nodes' losses is least, at every node."""


def stand_still(graph, name, rule, steps, members=1, **settings):
    """The nodes' models `(members, workers)` after many steps on h_i (x - a_i)^2 / 2 without noise.

    One node is twice, another five times as slow as the others.
    """
    slow = [Factor(1, factor=2.0), Factor(3, factor=5.0)]
    task = Quadratic(scale=h.tolist(), shift=a.tolist(), initial=3.0, dtype=torch.float64)
    reads = []
    simulate(
        replace(on(GRAPHS[graph], P), slowdowns=slow),
        method(name, rule, **settings),
        task,
        stop=Stop(updates=steps),
        learning_seeds=range(members),
        observe=note_reads(reads),
    )
    last = {rank: weights[:, 0] for rank, weights in reads}
    return torch.stack([last[rank] for rank in range(P)], 1).numpy()


def mixing_on(graph):
    """W on a graph."""
    return matrix("metropolis", GRAPHS[graph], 0, P)


def adapted(graph, lr):
    """Where x <- W (x - lr H (x - a)) stands still."""
    W = mixing_on(graph)
    point = np.linalg.solve(np.eye(P) - W @ (np.eye(P) - lr * H), W @ (lr * h * a))
    return point


def is_at(text, expected, found, source, rtol):
    same(text, torch.tensor(expected), torch.tensor(found), source=source, rtol=rtol)


@pytest.mark.parametrize("graph", quick(GRAPHS, only=["wheel"]))
def test_averages_of_models_have_bias_of_closed_form(graph):
    """D-PSGD stands still beside the minimum; quasi-global momentum stands where it does."""
    lr, W = 0.3, mixing_on(graph)
    combined = np.linalg.solve(np.eye(P) - W + lr * H, lr * h * a)
    for order, form, point in (
        (ORDERS[0], "(I - W + lr H)^-1 lr H a", combined),
        (ORDERS[1], "(I - W (I - lr H))^-1 W lr H a", adapted(graph, lr)),
    ):
        (found,) = stand_still(graph, "dpsgd", Rule(lr=lr), 150, order=order)
        is_at(f"dpsgd, {order}, {graph}: x -> {form}", point, found, "derived", 1e-12)
        text = f"dpsgd, {order}, {graph}: not where the mean loss is least"
        differ(text, torch.tensor(OPTIMUM), torch.tensor(found), source="derived")
    (found,) = stand_still(graph, "qg_dsgdm", Rule(SGD(momentum=0.9), lr=lr), 300)
    text = f"qg_dsgdm, momentum 0.9, {graph}: x -> where dpsgd, adapt_then_combine, stands still"
    is_at(text, adapted(graph, lr), found, "derived", 1e-12)


CORRECTED = {
    "gradient_tracking": ("gradient_tracking", {}, NEDIC, 1e-12),
    "d2, (W + I) / 2": ("d2", {}, YUAN, 1e-9),
    "d2, W": ("d2", {"lazy": False}, TANG, 1e-9),
    "relay_sgd": ("relay_sgd", {}, VOGELS, 1e-12),
}
SLOWEST = ("gradient_tracking", "path")
"""Reaches the minimum in 420 steps at rates of which the others need 250 at twice these."""


@pytest.mark.parametrize("graph", quick(GRAPHS, only=["wheel"]))
@pytest.mark.parametrize("name", CORRECTED)
def test_corrected_gossip_reaches_minimum_of_mean_loss(name, graph):
    """Where the nodes' losses differ, they stand still at sum_i h_i a_i / sum_i h_i alone."""
    kind, settings, source, rtol = CORRECTED[name]
    rate, steps = (0.1, 600) if (name, graph) == SLOWEST else (0.2, 300)
    momentum, lr = torch.tensor([[[0.0], [0.5]], [[rate], [rate / 2]]], dtype=torch.float64)
    found = stand_still(graph, kind, Rule(SGD(momentum), lr), steps, members=2, **settings)
    for member, words in enumerate((f"lr {rate:g}", f"lr {rate / 2:g}, momentum 0.5")):
        text = f"{name}, {graph}, {words}: x -> the minimum"
        is_at(text, OPTIMUM, found[member], source, rtol)


def tracked(lr, W, before, X, G):
    """x <- W (x - lr y), y <- W y + g' - g."""
    Y = W @ before["Y"] + G - before["G"] if before else G
    before.update(Y=Y, G=G)
    return W @ (X - lr * Y)


def corrected(lr, W, before, X, G):
    """x <- W (2 x - x' - lr (g - g')), and W (x - lr g) at first."""
    ahead = 2 * X - before["X"] - lr * (G - before["G"]) if before else X - lr * G
    before.update(X=X, G=G)
    return W @ ahead


def quasi(b, mu, lr, W, before, X, G):
    """x <- W (x - lr (g + b m)), m <- mu m + (1 - mu) (x' - x) / lr."""
    m = before.get("m", torch.zeros_like(X))
    new = W @ (X - lr * (G + b * m))
    before.update(m=mu * m + (1 - mu) * (X - new) / lr)
    return new


def largest(values, k):
    """The k numbers of each row of greatest magnitude, the first of equal ones."""
    rows = []
    for row in values.tolist():
        order = sorted(range(len(row)), key=lambda index: (-abs(row[index]), index))
        rows.append([number if index in order[:k] else 0.0 for index, number in enumerate(row)])
    return torch.tensor(rows, dtype=torch.float64)


def compressed(k, gamma, lr, W, before, X, G):
    """z <- z + C(x - lr g - z), x <- x - lr g + gamma (W - I) z."""
    ahead = X - lr * G
    Z = before.get("Z", torch.zeros_like(X))
    Z = Z + largest(ahead - Z, k)
    before.update(Z=Z)
    return ahead + gamma * (W @ Z - Z)


LOOPS = {
    "gradient_tracking": ("gradient_tracking", Rule(lr=LR), {}, tracked, NEDIC),
    "d2, W": ("d2", Rule(lr=LR), {"lazy": False}, corrected, TANG),
    "d2, (W + I) / 2": ("d2", Rule(lr=LR), {}, corrected, YUAN),
    "qg_dsgdm, mu = b": (
        "qg_dsgdm",
        Rule(SGD(momentum=0.9), LR),
        {},
        partial(quasi, 0.9, 0.9),
        LIN,
    ),
    "qg_dsgdm, mu = .6, b = .9": (
        "qg_dsgdm",
        Rule(SGD(momentum=0.9), LR),
        {"decay": 0.6},
        partial(quasi, 0.9, 0.6),
        LIN,
    ),
    "choco, top 2 of 5, gamma .4": (
        "choco",
        Rule(lr=LR),
        {"keep": 0.4, "consensus": 0.4},
        partial(compressed, 2, 0.4),
        KOLOSKOVA,
    ),
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", LOOPS)
def test_models_match_loop_over_matrices(name, graph):
    """The paper's recursion on a matrix with a row per node, mini-batch by mini-batch."""
    kind, rule, settings, step, source = LOOPS[name]
    found = models_of(on(GRAPHS[graph], P), kind, 12, rule, **settings)
    W = torch.from_numpy(mixing_on(graph))
    if "+ I" in name:
        W = (W + torch.eye(P, dtype=torch.float64)) / 2
    expected = looped(P, 12, partial(step, LR, W, {}))
    recursion = step.func if isinstance(step, partial) else step
    text = f"{name}, {graph}, P = {P}: {recursion.__doc__}".rstrip(".")
    close(text, found, list(expected[:, None]), source=source)


def test_sum_moves_by_gradients_at_scheduled_rate():
    """D2's sum of models changes by the gradients alone, each at the rate of its own step."""
    task = Quadratic(curvature=1e-300, dim=5, noise=1.0, epoch=50, dtype=torch.float64)
    length, steps = 20.0, 30
    rule = Rule(lr=LR, schedule=WarmUp(length=length, unit="updates"))
    gradients = {}

    def note(node):
        apply = node.apply

        def applies(weights, given, state=None):
            gradients.setdefault(node.version, []).append(given[0].value)
            apply(weights, given, state)

        node.apply = applies
        start_apart(node)

    stop = Stop(time=steps + 0.5)
    nodes = remains_of(on(Ring(), P), method("d2", rule), task, stop, note).nodes
    moved = STARTS[:P].sum(0, keepdim=True)
    for step, given in gradients.items():
        moved = moved - LR * min(1.0, step / length) * sum(given)
    total = torch.stack([node.weights for node in nodes.values()]).sum(0)
    text = "d2, warm-up: sum of x = sum of starts - sum over steps of lr(t) sum_i g_i(t)"
    close(text, total, moved, source="derived")


AS_DPSGD = {
    "qg_dsgdm, b = mu = 0": ("qg_dsgdm", Rule(lr=LR), {"decay": 0.0}, {}, LIN),
    "qg_dsgdm, b = 0, decay unset": ("qg_dsgdm", Rule(lr=LR), {}, {}, LIN),
    "choco, C = id, gamma = 1": (
        "choco",
        Rule(SGD(momentum=0.9), LR),
        {"keep": 1.0, "consensus": 1.0},
        {"keep": 0.4},
        KOLOSKOVA,
    ),
}
"""Methods that are D-PSGD: a rule, their settings, and how these may differ so that they are not."""


@pytest.mark.parametrize("name", AS_DPSGD)
def test_special_settings_equal_dpsgd(name):
    """Without momentum, or with all numbers kept."""
    kind, rule, settings, others, source = AS_DPSGD[name]
    cluster = on(Ring(), 6)
    adapt = models_of(cluster, "dpsgd", 12, rule, order=ORDERS[1])
    found = models_of(cluster, kind, 12, rule, **settings)
    rtol = 0.0 if kind == "qg_dsgdm" else 1e-12
    same(f"{name}, ring = dpsgd, adapt_then_combine", found, adapt, source=source, rtol=rtol)
    if others:
        found = models_of(cluster, kind, 12, rule, **{**settings, **others})
        differ(f"{kind}, {others}, is not dpsgd", found, adapt, source=source)


ON_COMPLETE = {
    "sgp": ({}, LINEAR),
    "dpsgd": ({"order": ORDERS[1], "mixing": "uniform"}, LINEAR),
    "gradient_tracking": ({"mixing": "uniform"}, LINEAR),
    "d2": ({"mixing": "uniform", "lazy": False}, LINEAR),
    "qg_dsgdm": ({"mixing": "uniform"}, [Rule(lr=LR)]),
    "matcha": ({"activation": 1.0, "weight": 1 / 4}, LINEAR),
    "choco": ({"mixing": "uniform", "keep": 1.0, "consensus": 1.0}, LINEAR),
}


@pytest.mark.parametrize("name", ON_COMPLETE)
def test_complete_graph_equals_server(name):
    """On the complete graph with equal weights gossip equals a server, by linear rules alone."""
    settings, rules = ON_COMPLETE[name]
    nodes = every(on(Complete(), 4), name, rules=rules, **settings)
    server = every(Cluster(workers=4), "sync_ps", rules=rules)
    words = "SGD" if len(rules) == 1 else "linear rules"
    text = f"{name}, complete graph, weights 1/P"
    close(f"{text} = sync_ps, {words}", nodes, server, source="derived")
    if name in ("sgp", "dpsgd"):
        nodes = every(on(Complete(), 4), name, rules=ADAM, **settings)
        server = every(Cluster(workers=4), "sync_ps", rules=ADAM)
        differ(f"{text}, adam, is not sync_ps", nodes, server, source="derived")


@pytest.mark.parametrize("compressor", ["top_k", "random_k"])
def test_compressed_gossip_conserves_sum(compressor):
    """What compression drops moves no sum: the models' sum changes by gradients alone."""
    settings = {"compressor": compressor, "keep": 0.2, "consensus": 0.3}
    algorithm, stop = method("choco", Rule(lr=LR), **settings), Stop(time=40.5)
    nodes = remains_of(on(Ring(), 8), algorithm, slope(), stop, start_apart).nodes
    total = torch.stack([node.weights for node in nodes.values()]).sum(0)
    text = f"choco, {compressor}, 1 of 5: sum of x sees gradients alone"
    close(text, total, sum_by_gradients(nodes, LR), source=KOLOSKOVA)


@pytest.mark.slow
@pytest.mark.parametrize(("compressor", "gamma"), [("top_k", 0.3), ("random_k", 0.1)])
def test_compressed_gossip_stands_where_dpsgd_does(compressor, gamma):
    """It stands still where D-PSGD does with (1 - gamma) I + gamma W: compression adds no bias."""
    lr, W = 0.1, mixing_on("ring")
    W = (1 - gamma) * np.eye(P) + gamma * W
    shifts = np.stack([a, -a, a[::-1], 0.5 * a], 1)
    task = Quadratic(scale=h.tolist(), shift=shifts.tolist(), dim=4, dtype=torch.float64)
    settings = {"compressor": compressor, "keep": 0.25, "consensus": gamma}
    algorithm, stop = method("choco", Rule(lr=lr), **settings), Stop(time=2000.5)
    nodes = remains_of(on(Ring(), P), algorithm, task, stop).nodes
    found = np.concatenate([nodes[rank].weights.numpy() for rank in range(P)])
    point = np.linalg.solve(np.eye(P) - W @ (np.eye(P) - lr * H), W @ (lr * H @ shifts))
    text = (
        f"choco, {compressor}, 1 of 4: x -> where dpsgd with (1 - gamma) I + gamma W stands still"
    )
    is_at(text, point, found, "derived", 1e-9)


TREES = {
    "ring": (Ring(), networkx.path_graph([5, 6, 7, 0, 1, 2, 3, 4])),
    "path": (Graph("path_graph", {"n": 8}), networkx.path_graph(8)),
    "star": (Graph("star_graph", {"n": 7}), networkx.star_graph(7)),
    "binary tree": (
        Graph("full_rary_tree", {"r": 2, "n": 8}),
        networkx.full_rary_tree(2, 8),
    ),
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("apart", [False, True], ids=["one start", "apart"])
def test_relayed_models_are_late_by_distance(tree, apart):
    """x_i(t + 1) = (1/P) sum_j h_j(t - max(0, dist - 1)), h = x - lr g; the start before 0."""
    graph, edges = TREES[tree]
    cluster, rule, steps = on(graph, 8), Rule(lr=LR), 12
    begin = start_apart if apart else lambda node: None
    stop = Stop(time=steps + 0.5)
    nodes = remains_of(cluster, method("relay_sgd", rule), quadratic(), stop, begin).nodes
    late = dict(networkx.all_pairs_shortest_path_length(edges))
    ahead = []
    start = []

    def step(X, G):
        if not start:
            start.append(X)
        ahead.append(X - LR * G)
        rows = []
        for i in range(8):
            parts = []
            for j in range(8):
                moment = len(ahead) - 1 - max(0, late[i][j] - 1)
                parts.append(ahead[moment][j] if moment >= 0 else start[0][i])
            rows.append(sum(parts) / 8)
        return torch.stack(rows)

    expected = looped(8, steps, step, STARTS[:8] if apart else None)
    found = [nodes[rank].weights for rank in range(8)]
    words = "starts apart" if apart else "one start"
    text = f"relay_sgd, {tree}, {words}: x_i(t + 1) = (1/P) sum_j h_j(t - max(0, dist - 1))"
    close(text, found, list(expected[:, None]), source=VOGELS)
    if apart:
        mean = [STARTS[:8].mean(0, keepdim=True)] * 8
        text = f"relay_sgd, {tree}, starts apart: not the mean of the starts"
        differ(text, found, mean, source="derived")


MATCHED = {
    "ring": (Ring(), networkx.cycle_graph(6)),
    "wheel": (Graph("wheel_graph", {"n": 6}), networkx.wheel_graph(6)),
    "complete": (Complete(), networkx.complete_graph(6)),
}


@pytest.mark.parametrize("graph", MATCHED)
def test_random_matchings_match_loop(graph):
    """A coin for all nodes says which matchings are active: x <- (I - a sum L_m) (x - lr g)."""
    topology, _ = MATCHED[graph]
    c, weight, coin, steps = 0.5, 0.2, 3, 12
    matchings = matcha.matchings_on(topology, 6)
    settings = {"activation": c, "weight": weight, "coin": coin}
    found = models_of(on(topology, 6), "matcha", steps, Rule(lr=LR), **settings)
    flips = iter(np.random.default_rng(coin).random((steps, len(matchings))) < c)

    def step(X, G):
        ahead = X - LR * G
        moved = torch.zeros_like(X)
        for active, matching in zip(next(flips), matchings, strict=True):
            for rank, peer in matching.items():
                moved[rank] += int(active) * (ahead[peer] - ahead[rank])
        return ahead + weight * moved

    expected = looped(6, steps, step)
    text = f"matcha, {graph}, c = {c:g}: x <- (I - a sum of active L_m) (x - lr g)"
    close(text, found, list(expected[:, None]), source=WANG)


def test_mean_mixing_matches_laplacian():
    """Each node starts at a unit vector, so that after a step its model is its row of W."""
    c, weight, coins = 0.4, 0.15, 100
    topology, edges = MATCHED["wheel"]
    matrices = []
    for coin in range(coins):
        algorithm = method("matcha", Rule(lr=0.0), activation=c, weight=weight, coin=coin)
        nodes = remains_of(on(topology, 6), algorithm, units(), Stop(time=1.5), start_at_unit).nodes
        matrices.append(np.concatenate([nodes[rank].weights.numpy() for rank in range(6)]))
    W = np.stack(matrices)
    L = networkx.laplacian_matrix(edges).toarray()
    text = f"matcha, wheel, c = {c:g}, {coins} coins: E[W] = I - a c L"
    for row in range(6):
        for column in range(6):
            expected = float(row == column) - weight * c * float(L[row, column])
            found = W[:, row, column]
            mean_is(f"{text}, {row}, {column}", expected, found, source=WANG)


def units():
    return Quadratic(dim=6, noise=0.0, dtype=torch.float64)


def start_at_unit(node):
    node.weights = torch.eye(6, dtype=torch.float64)[node.rank][None]


@pytest.mark.parametrize("c", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("graph", MATCHED)
def test_default_weight_minimises_bound_on_distances(graph, c):
    """The default weight is where the largest eigenvalue of E[W W] - 11'/P is least."""
    topology, edges = MATCHED[graph]
    L = networkx.laplacian_matrix(edges).toarray().astype(float)

    def bound(weight):
        square = (c * L) @ (c * L) + 2 * c * (1 - c) * L
        second = np.eye(6) - 2 * weight * c * L + weight**2 * square - np.ones((6, 6)) / 6
        return float(np.linalg.eigvalsh(second)[-1])

    weight = matcha.best_weight(topology, 6, c)
    others = [bound(other) for other in np.linspace(0.01, 1.0, 400)]
    text = f"matcha, {graph}, c = {c:g}: contraction at the default weight, of 400 weights"
    at_most(text, min(others), bound(weight), source=WANG)
    equal(
        f"matcha, {graph}, c = {c:g}: that of the best",
        bound(weight),
        min(others),
        source=WANG,
        rtol=1e-3,
    )
