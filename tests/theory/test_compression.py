"""Compressed messages: what is sent, what a node remembers, and where training ends."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from laggard.models import MLP, Quadratic, Supervised, synthetic
from laggard.simulator import ALGORITHMS, Cluster, Network, Node, Record, Rule, Stop, simulate
from laggard.simulator.algorithms.contrib.power_sgd import Factors
from laggard.simulator.learning.compression import (
    Compress,
    Encoder,
    quantize,
    top_k,
)
from laggard.simulator.learning.gradients import APPLIED
from laggard.simulator.learning.promises import known
from laggard.simulator.timing.distributions import Constant
from tests.theory.statements import at_most, close, differ, equal, mean_is, same
from tests.theory.trials import (
    LINEAR,
    LR,
    RULES,
    UNEVEN,
    batches_of,
    every,
    first_weights,
    gradient_of,
    method,
    quadratic,
    slope,
    update_times,
)

STICH, KARIMIREDDY = "Stich et al. (2018)", "Karimireddy et al. (2019)"
VOGELS = "Vogels et al. (2019)"
ALISTARH, RICHTARIK = "Alistarh et al. (2017)", "Richtarik et al. (2021)"
METHODS: dict[str, dict[str, Any]] = {
    "sync_ps": {},
    "k_sync": {"wait_for": 3},
    "async_ps": {"accumulate": 2},
    "k_async": {"wait_for": 2},
    "soft_sync": {"gradients": 3},
    "ssp": {"bound": 1},
    "all_reduce": {"collective": "mesh"},
}
"""Methods whose nodes can compress gradients."""
LOCAL: dict[str, dict[str, Any]] = {
    "local_sgd": {"average": "updates", "wait_for": 3},
    "diloco": {"average": "updates"},
    "local_all_reduce": {"collective": "mesh"},
    "diloco_all_reduce": {"collective": "mesh"},
}
"""Methods whose nodes can compress the change of local steps."""
DROP = ("k_sync", "local_sgd")
"""Methods that drop messages, which `ef` then feeds back, where a node without memory loses them."""
SIZES = {
    "top_k, 2 of 5": (Compress("top_k", keep=0.4), 4 / 5),
    "top_k, 4 of 5": (Compress("top_k", keep=0.8), 1.0),
    "random_k, 2 of 5": (Compress("random_k", keep=0.3), 2 / 5),
    "sign": (Compress("sign"), 1 / 32 + 1 / 5),
    "qsgd, s = 4": (Compress("qsgd", levels=4, feedback="none"), 4 / 32 + 1 / 5),
    "qsgd, s = 7": (Compress("qsgd", levels=7, feedback="none"), 4 / 32 + 1 / 5),
}
VECTORS = torch.randn(50, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", [*METHODS, *LOCAL])
def test_all_numbers_are_no_compression(name: str) -> None:
    """Whatever becomes of the rest, since there is none."""
    run = partial(every, UNEVEN, name, rules=[RULES[0], RULES[-1]], updates=6)
    settings = {**METHODS, **LOCAL}[name]
    plain = run(**settings)
    for feedback in ("none", "ef", "ef21"):
        if feedback == "ef" and name in DROP:
            continue
        compress = Compress("top_k", keep=1.0, feedback=feedback)  # type: ignore[arg-type]
        kept = run(compress=compress, **settings)
        text = f"{name}, all numbers kept, {feedback}, = {name}"
        if feedback == "ef21" or name in LOCAL:  # sums and differences of other numbers
            close(text, kept, plain, source="derived")
        else:
            same(text, kept, plain, source="derived")


@pytest.mark.parametrize("name", SIZES)
def test_message_has_size_of_formula(name: str) -> None:
    """32 bits a number, an index, a norm; servers answer with whole models."""
    compress, size = SIZES[name]
    network = Network(bandwidth=8.0, latency=0.125, message_bytes=4.0)
    cluster = Cluster(3, Constant(1.0), network=network)
    for algorithm in (
        method("async_ps", compress=compress),
        method("all_reduce", collective="mesh", compress=compress),
    ):
        record, stop = Record(messages=True), Stop(updates=6)
        log = simulate(cluster, algorithm, quadratic(), stop=stop, record=record).message_log
        assert log is not None
        sent = log["bytes"][(log["receiver"] >= 0) == (log["sender"] >= 0)]
        if type(algorithm).__name__ == "AsyncPS":
            sent = log["bytes"][(log["receiver"] < 0) & (log["bytes"] > 0)]
            answers = log["bytes"][log["sender"] < 0]
            equal(f"{name}: bytes of an answer", 4.0, answers, source="derived", rtol=1e-12)
        equal(f"{name}: bytes of a message", 4 * size, sent, source="derived", rtol=1e-12)


def test_step_takes_coding_and_bytes_of_messages() -> None:
    """t_c + codec_seconds + alpha + s N beta, and the answer's alpha + N beta."""
    network = Network(bandwidth=8.0, latency=0.125, message_bytes=4.0)
    compress = Compress("random_k", keep=0.4, codec_seconds=0.0625)
    coded, s, N_beta = 1.0 + 0.0625, 0.4, 0.5
    one = Cluster(1, Constant(1.0), network=network)
    times = update_times(one, method("sync_ps", compress=compress), 5, quadratic())
    text = "sync_ps, P = 1: t_c + codec_seconds + 2 alpha + (s + 1) N beta"
    equal(text, coded + 0.25 + (s + 1) * N_beta, times[1:], source="derived")
    three = Cluster(3, Constant(1.0), network=network)
    for collective, seconds in (
        ("mesh", 0.125 + 2 * s * N_beta),
        ("ring", 4 * 0.125 + 4 / 3 * s * N_beta),
    ):
        algorithm = method("all_reduce", collective=collective, compress=compress)
        times = update_times(three, algorithm, 5, quadratic())
        text = f"all_reduce, {collective}: t_c + codec_seconds + the collective's of s N"
        equal(text, coded + seconds, times, source="derived")
        algorithm = method(
            "local_all_reduce", collective=collective, compress=compress, local_steps=2
        )
        times = update_times(three, algorithm, 5, quadratic())
        text = f"local_all_reduce, {collective}: H t_c + codec_seconds + the collective's of s N"
        equal(text, 1.0 + coded + seconds, times, source="derived")


def with_encoders(name: str) -> tuple[Any, list[Encoder]]:
    """A method's class, and the encoders of its nodes as they are made."""
    encoders: list[Encoder] = []
    right: Any = ALGORITHMS[name]

    class Watched(right):  # type: ignore[misc]
        def encoder(self, node: Node) -> Encoder:
            encoders.append(right.encoder(self, node))
            return encoders[-1]

    return Watched, encoders


def rest_of(encoder: Encoder) -> Tensor:
    """What a node has been given and nobody has applied."""
    rest = encoder._memory
    if encoder._last is not None and encoder._last.status != APPLIED:
        rest = encoder._whole
    assert rest is not None
    return rest.value


@pytest.mark.parametrize(
    ("name", "compressor"),
    [
        ("sync_ps", "top_k"),
        ("k_sync", "top_k"),
        ("k_sync", "sign"),
        ("async_ps", "random_k"),
        ("all_reduce", "sign"),
    ],
)
def test_applied_and_remembered_gradients_sum_to_all(name: str, compressor: str) -> None:
    """w_0 - w_t + lr mean e = lr times the mean of the same gradients, some of them dropped."""
    kind, encoders = with_encoders(name)
    keep = None if compressor == "sign" else 0.2
    compress = Compress(compressor, keep=keep)  # type: ignore[arg-type]
    settings = {"async_ps": {}}.get(name, METHODS[name])
    algorithm = kind(Rule(lr=LR), compress=compress, **settings)
    outcome = simulate(UNEVEN, algorithm, slope(), stop=Stop(updates=60))
    start, given, rest = first_weights(slope()), [], []
    for rank, encoder in enumerate(encoders):
        batches = batches_of(slope(), rank)
        given += [gradient_of(slope(), start, next(batches)) for _ in range(encoder._calls)]
        rest.append(rest_of(encoder))
    gathered = {"k_sync": 3, "async_ps": 1}.get(name, 4)
    moved = (start - outcome.weights) * gathered / LR
    if name != "async_ps":
        assert (outcome.gradients["dropped"] > 5) == (name == "k_sync")
    text = f"{name}, {compressor}: sum of what is applied + e = sum of gradients"
    close(text, moved + sum(rest), sum(given), source=KARIMIREDDY, rtol=1e-11)  # type: ignore[arg-type]


def test_change_of_local_steps_is_remembered() -> None:
    """As gradients are: where H = 1, `local_sgd` is `sync_ps`, in what it leaves out too."""
    compress = Compress("top_k", keep=0.2)
    for name, other in (("local_sgd", "sync_ps"), ("local_all_reduce", "all_reduce")):
        settings: dict[str, Any] = {"collective": "mesh"}
        more = {}
        if name == "local_sgd":
            settings, more = {}, {"average": "updates"}
        rules = LINEAR[:1]
        one = every(UNEVEN, name, rules=rules, local_steps=1, compress=compress, **settings, **more)
        two = every(UNEVEN, other, rules=rules, compress=compress, **settings)
        text = f"{name}, H = 1, sgd, top 1 of 5 = {other}, top 1 of 5"
        close(text, one, two, source="derived")


def test_compressors_are_contractions() -> None:
    """|v - C(v)|^2 <= (1 - delta) |v|^2."""
    whole = VECTORS.square().sum(1)
    for k in (1, 3, 7):
        left = (VECTORS - top_k(VECTORS, k)).square().sum(1)
        text = f"top_k, {k} of 8: |v - C(v)|^2 / |v|^2 <= 1 - k / d"
        at_most(text, 1 - k / 8, (left / whole).numpy(), source=STICH)
    left = (VECTORS - Compress("sign").apply(VECTORS, rank=0, call=1)).square().sum(1)
    expected = whole - VECTORS.abs().sum(1).square() / 8
    close("sign: |v - C(v)|^2 = |v|^2 - |v|_1^2 / d", left, expected, source=KARIMIREDDY)


def test_estimate_tends_to_constant_value() -> None:
    """EF21's error shrinks by the compressor's factor with every message, or faster."""
    value = VECTORS[:1]
    encoder = Encoder(Compress("top_k", keep=0.25, feedback="ef21"), 0, 8)
    shrunk, bounds = [], []
    for t in range(1, 5):
        left = (value - encoder.encode(known(value), None).value).square().sum()  # type: ignore[arg-type]
        shrunk.append(float(left / value.square().sum()))
        bounds.append((1 - 2 / 8) ** t)
    text = "ef21, top 2 of 8, constant v: |v - h|^2 / ((1 - k/d)^t |v|^2) <= 1"
    at_most(text, 1.0, np.array(shrunk) / bounds, source=RICHTARIK)
    equal("and h = v after d / k messages", 0.0, shrunk[-1], source="derived", rtol=1e-12)


def standing_still(name: str, feedback: str, **settings: Any) -> tuple[Tensor, Tensor]:
    """Where workers with optima and curvatures of their own end, and the true optimum."""
    h, shift = [1.0, 0.25, 2.0], [[0.0, 1.0], [5.0, -2.0], [1.0, 4.0]]
    task = Quadratic(curvature=[1.0, 0.5], scale=h, shift=shift, initial=3.0, dtype=torch.float64)
    compress = Compress("top_k", keep=0.5, feedback=feedback)  # type: ignore[arg-type]
    algorithm = method(name, Rule(lr=0.2), compress=compress, **settings)
    weights = simulate(Cluster(3), algorithm, task, stop=Stop(updates=250)).weights
    scales = torch.tensor(h, dtype=torch.float64)
    optima = torch.tensor(shift, dtype=torch.float64)
    return weights, (scales @ optima / scales.sum())[None]


@pytest.mark.parametrize("name", ["sync_ps", "all_reduce"])
def test_ef21_reaches_minimum_of_mean_loss(name: str) -> None:
    """Where gradients of workers do not vanish, error feedback circles, at a constant rate."""
    settings = METHODS[name]
    weights, optimum = standing_still(name, "ef21", **settings)
    text = f"{name}, ef21, top 1 of 2: sum h_i a_i / sum h_i"
    close(text, weights, optimum, source=RICHTARIK)
    weights, optimum = standing_still(name, "ef", **settings)
    text = f"{name}, ef, top 1 of 2, is not there"
    differ(text, weights, optimum, source=RICHTARIK, least=1e-3)


def test_random_rounding_is_unbiased() -> None:
    """E C(v) = v, with the variance of the fractional parts."""
    v, s = VECTORS[0], 3
    compress = Compress("qsgd", levels=s, feedback="none")
    rounded = torch.cat([compress.apply(v[None], rank=0, call=call) for call in range(3000)])
    for place in range(8):
        text = f"qsgd, s = 3: E C(v) = v, number {place}"
        mean_is(text, float(v[place]), rounded[:, place].numpy(), source=ALISTARH)
    p = (s * v.abs() / v.norm()) % 1
    variance = float((v.norm() / s) ** 2 * (p * (1 - p)).sum())
    squares = (rounded - v).square().sum(1)
    text = "qsgd, s = 3: E |C(v) - v|^2 = (|v| / s)^2 sum p (1 - p)"
    mean_is(text, variance, squares.numpy(), source="derived")
    bound = min(8 / s**2, math.sqrt(8) / s) * float(v.square().sum())
    at_most("which is at most min(d / s^2, sqrt(d) / s) |v|^2", bound, variance, source=ALISTARH)
    same(
        "and C(0) = 0",
        quantize(0 * v[None], s, torch.rand(8, dtype=torch.float64)),
        0 * v[None],
        source="derived",
    )


def test_nodes_draw_the_same_indices() -> None:
    """So that a sum of messages has k numbers, and any collective can add them up."""
    compress = Compress("random_k", keep=0.4, feedback="none")
    run = partial(every, UNEVEN, "all_reduce", rules=RULES[:1], compress=compress)
    ring, mesh = (run(updates=9, collective=name) for name in ("ring", "mesh"))
    close("all_reduce, random 2 of 5: ring = mesh", ring, mesh, source=STICH)
    before = run(updates=8, collective="mesh")
    moved = int((before[0] != mesh[0]).sum())
    equal("all_reduce, random 2 of 5: numbers that an update moves", 2, moved, source=STICH)


def network() -> Supervised:
    """A network with matrices of 12 x 16, 7 x 12 and 3 x 7, and vectors."""
    data = synthetic(samples=120, features=16, classes=3)
    build = MLP(hidden=(12, 7)).build
    return Supervised(build, data, batch=8, dtype=torch.float64, device="cpu", threads=1)


@pytest.mark.parametrize("collective", ["ring", "mesh"])
def test_full_rank_is_all_reduce(collective: str) -> None:
    run = partial(every, UNEVEN, task=network(), rules=LINEAR, updates=12, collective=collective)
    text = f"power_sgd, rank >= min(n, m) = all_reduce, {collective}"
    close(text, run("power_sgd", rank=12), run("all_reduce"), source=VOGELS)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_low_rank_is_its_loop(rank: int) -> None:
    """Over matrices, with any basis of the same space; a rank of 5 is one of 3 for the last."""
    P, updates, task = 3, 6, network()
    weights = first_weights(task)
    batches = [batches_of(task, node) for node in range(P)]
    shapes = task.shapes()
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    rests = [torch.zeros_like(weights) for _ in range(P)]
    drawn = np.random.default_rng(0)
    rights = {
        name: torch.from_numpy(drawn.standard_normal((shape[1], min(rank, *shape))))
        for name, shape in shapes.items()
        if len(shape) > 1
    }
    for _ in range(updates):
        gradients = [gradient_of(task, weights, next(batches[node])) for node in range(P)]
        step = torch.zeros_like(weights)
        for (name, shape), end in zip(shapes.items(), ends, strict=True):
            place = slice(int(end) - math.prod(shape), int(end))
            if len(shape) == 1:
                step[:, place] = sum(gradient[:, place] for gradient in gradients) / P
                continue
            whole = [
                (gradient + rest)[0, place].reshape(shape)
                for gradient, rest in zip(gradients, rests, strict=True)
            ]
            mean = torch.stack(whole).mean(0)
            basis = torch.from_numpy(np.linalg.svd((mean @ rights[name]).numpy())[0])
            basis = basis[:, : rights[name].shape[1]]
            product = basis @ (basis.T @ mean)
            rights[name] = mean.T @ basis
            step[0, place] = product.flatten()
            for rest, own in zip(rests, whole, strict=True):
                rest[0, place] = (own - product).flatten()
        weights = weights - LR * step
    algorithm = method("power_sgd", Rule(lr=LR), rank=rank)
    found = simulate(Cluster(P), algorithm, task, stop=Stop(updates=updates)).weights
    close(f"power_sgd, rank {rank} = its loop", found, weights, source=VOGELS, rtol=1e-10)


def test_gradients_of_low_rank_are_exact_at_once() -> None:
    """From any Q whose columns span enough."""
    draws = torch.Generator().manual_seed(1)
    rows, columns = torch.randn(2, 12, 2, generator=draws, dtype=torch.float64)
    gradient = (rows @ columns[:9].T).reshape(1, -1)
    factors = Factors({"weight": (12, 9)}, rank=2)
    right = factors.first_right(gradient, coin=0)
    left = factors.orthonormal(factors.times_right(gradient, right))
    product = factors.join(left, factors.times_left(gradient, left), gradient[:, :0])
    close("power_sgd, G of rank 2 = P Q' after a step", product, gradient, source=VOGELS)


def test_thin_matrices_have_the_bytes_of_formula() -> None:
    """r (n + m) of a matrix, and the vectors."""
    P, rank, task = 3, 2, network()
    d = first_weights(task).shape[1]
    s = (rank * (12 + 16) + rank * (7 + 12) + rank * (3 + 7) + 12 + 7 + 3) / d
    network_of = Network(bandwidth=8.0, latency=0.125, message_bytes=4.0)
    cluster = Cluster(P, Constant(1.0), network=network_of)
    algorithm, record = method("power_sgd", rank=rank), Record(messages=True)
    outcome = simulate(cluster, algorithm, task, stop=Stop(updates=4), record=record)
    assert outcome.message_log is not None
    sent = outcome.message_log["bytes"].sum() / P / 4
    text = "power_sgd, ring: bytes that a node sends a step, 2 ((P - 1) / P) s N"
    equal(text, 2 * (P - 1) / P * s * 4.0, sent, source=VOGELS)
    seconds = 1.0 + 6 * (P - 1) * 0.125 + 2 * (P - 1) / P * s * 0.5
    text = "power_sgd, ring: t_c + 6 (P - 1) alpha + 2 ((P - 1) / P) s N beta"
    equal(text, seconds, update_times(cluster, algorithm, 4, task), source="derived")
