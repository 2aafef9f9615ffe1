"""Compressed messages: what is sent, what a node remembers, and where training ends."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from laggard.models import MLP, Quadratic, Supervised, synthetic
from laggard.simulator import (
    ALGORITHMS,
    Cluster,
    Network,
    Record,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.compressing import Compressing, CompressingServer
from laggard.simulator.algorithms.contrib.power_sgd import Factors
from laggard.simulator.learning.compression import (
    Compress,
    Encoder,
    quantize,
    top_k,
)
from laggard.simulator.learning.gradients import APPLIED, IN_FLIGHT
from laggard.simulator.learning.promises import Promise, known
from laggard.simulator.network.config import Card
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Crash, Factor
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
    weights_after,
)

STICH, KARIMIREDDY = "Stich et al. (2018)", "Karimireddy et al. (2019)"
VOGELS = "Vogels et al. (2019)"
TANG, GRUNTKOWSKA = "Tang et al. (2019)", "Gruntkowska et al. (2023)"
ALISTARH, RICHTARIK = "Alistarh et al. (2017)", "Richtarik et al. (2021)"


def name_of(label):
    """The name of the method in a label, which may add a setting."""
    return label.split(",")[0]


def compressing(local):
    """The methods with the key, which compress gradients or the change of local steps.

    Without a server they sum compressed messages by a mesh.
    """
    return {
        name: {"collective": "mesh"} if issubclass(kind, Reducing) else {}
        for name, kind in ALGORITHMS.items()
        if issubclass(kind, Compressing) and hasattr(kind, "local_steps") == local
    }


METHODS = {
    **compressing(local=False),
    "k_sync": {"wait_for": 3},
    "k_sync, cancel": {"wait_for": 3, "cancel": True},
    "async_ps": {"accumulate": 2},
    "downpour": {"n_push": 2, "n_fetch": 4},
    "k_async": {"wait_for": 2},
    "soft_sync": {"gradients": 3},
    "ssp": {"bound": 1},
    "k_batch_sync": {"gradients": 3},
    "malenia": {"gradients": 6},
    "ringmaster": {"threshold": 2},
    "ringmaster, cancel": {"threshold": 2, "cancel": True},
    "mindflayer": {"trials": 2},
    "sync_replicas": {"replicas_to_aggregate": 3},
}
"""Methods whose nodes can compress gradients."""
FRAGMENTS = {"local_steps": 4, "fragments": 2}
LOCAL = {
    **compressing(local=True),
    "local_sgd": {"average": "updates", "wait_for": 3},
    "diloco": {"average": "updates"},
    "streaming_diloco": {"collective": "mesh", "overlap": 1, **FRAGMENTS},
    "decoupled_diloco": {"quorum": 3, **FRAGMENTS},
    "fedavg": {"clients": 2, "select": 1.5},
    "fedprox": {"clients": 2},
    "fedasync": {"in_flight": 2},
    "fedbuff": {"in_flight": 3, "buffer": 2},
}
"""Methods whose nodes can compress the change of local steps."""
BOTH_WAYS = sorted(
    label
    for label in {**METHODS, **LOCAL}
    if issubclass(ALGORITHMS[name_of(label)], CompressingServer)
)
"""Methods whose server can compress its models."""
DROP = ("k_sync", "k_batch_sync", "malenia", "sync_replicas", "ringmaster", "local_sgd", "fedavg")
"""Methods that drop messages, which `ef` then feeds back, where a node without memory loses them."""
NO_MEMORY = ("decoupled_diloco",)
SIZES = {
    "top_k, 2 of 5": (Compress("top_k", keep=0.4), 4 / 5),
    "top_k, 4 of 5": (Compress("top_k", keep=0.8), 1.0),
    "random_k, 2 of 5": (Compress("random_k", keep=0.3), 2 / 5),
    "sign": (Compress("sign"), 1 / 32 + 1 / 5),
    "qsgd, s = 4": (Compress("qsgd", levels=4, feedback="none"), 4 / 32 + 1 / 5),
    "qsgd, s = 7": (Compress("qsgd", levels=7, feedback="none"), 4 / 32 + 1 / 5),
}
VECTORS = torch.randn(50, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("label", [*METHODS, *LOCAL])
def test_keeping_all_numbers_is_no_compression(label):
    """Whatever becomes of the rest, since there is none."""
    name = name_of(label)
    rule = RULES[-1]  # AdamW: two tensors of state, and a change that is not linear
    if name in ("dana", "dana_slim"):
        rule = LINEAR[1]
    settings = {**METHODS, **LOCAL}[label]

    def run(**more):
        return weights_after(UNEVEN, method(name, rule, **settings, **more), updates=6)

    plain = run()
    for feedback in ("none", "ef", "ef21"):
        if feedback == "ef" and name in DROP:
            continue
        if feedback != "none" and name in NO_MEMORY:
            continue
        compress = Compress("top_k", keep=1.0, feedback=feedback)
        kept = run(compress=compress)
        text = f"{label}, all numbers kept, {feedback}, = {label}"
        if feedback == "ef21" or name in LOCAL:  # sums and differences of other numbers
            close(text, kept, plain, source="derived")
        else:
            same(text, kept, plain, source="derived")


def sizes_of(algorithm):
    """The sizes (models) of what workers send, and of a server's answers; tokens are left out."""
    network = Network(bandwidth=8.0, latency=0.125, message_bytes=4.0)
    cluster = Cluster(4, Constant(1.0), network=network)
    record, stop = Record(messages=True), Stop(updates=6)
    log = simulate(cluster, algorithm, quadratic(), stop=stop, record=record).message_log
    assert log is not None
    has_bytes = log["bytes"] > 0
    from_worker = log["sender"] >= 0
    return log["bytes"][has_bytes & from_worker] / 4, log["bytes"][has_bytes & ~from_worker] / 4


@pytest.mark.parametrize("name", SIZES)
def test_message_has_size_of_formula(name):
    """32 bits a number, an index, a norm; servers answer with whole models."""
    compress, size = SIZES[name]
    sent, answers = sizes_of(method("async_ps", compress=compress))
    equal(f"{name}: models of an answer", 1.0, answers, source="derived", rtol=1e-12)
    equal(f"{name}: models of a message", size, sent, source="derived", rtol=1e-12)


@pytest.mark.parametrize("label", [*METHODS, *LOCAL])
def test_messages_of_every_method_have_size_of_formula(label):
    """Fragments of 2 and 3 numbers are vectors of their own: 1 of 2, and 2 of 3."""
    name, settings = name_of(label), {**METHODS, **LOCAL}[label]
    compress = Compress("random_k", keep=0.4, feedback="none")
    sent, answers = sizes_of(method(name, compress=compress, **settings))
    sizes = [2 / 5]
    if "fragments" in settings:
        sizes = [1 / 2 / 2, 2 / 3 / 2]
        answers = np.unique(answers)[1:]  # without merged fragments
    off = np.abs(sent[:, None] - sizes)
    equal(f"{label}: models of a message", 0.0, off.min(1), source="derived", rtol=1e-12)
    equal(f"{label}: messages of every size", 0.0, off.min(0), source="derived", rtol=1e-12)
    if len(answers):
        equal(f"{label}: models of an answer", 1.0, answers, source="derived", rtol=1e-12)


def test_one_fragment_is_compressed_as_a_model():
    compress = Compress("top_k", keep=0.4)
    run = partial(every, UNEVEN, rules=RULES[:1], collective="mesh", compress=compress)
    one = run("streaming_diloco", local_steps=4, fragments=1)
    two = run("diloco_all_reduce", local_steps=4, weighting="equal")
    text = "streaming_diloco, 1 fragment, top 2 of 5 = diloco_all_reduce, top 2 of 5"
    close(text, one, two, source="derived")


@pytest.mark.parametrize("name", ["streaming_diloco", "decoupled_diloco"])
def test_messages_of_fragments_have_different_draws(name, monkeypatch):
    """Two fragments of a node at the same draws would round, or leave out, the same numbers."""
    draws, apply = [], Compress.apply

    def watch(compress, values, rank, call):
        draws.append((rank, call))
        return apply(compress, values, rank, call)

    monkeypatch.setattr(Compress, "apply", watch)
    compress = Compress("random_k", keep=0.4, feedback="none")
    algorithm = method(name, Rule(lr=0.1), local_steps=4, fragments=2, compress=compress)
    simulate(UNEVEN, algorithm, quadratic(), stop=Stop(updates=8))
    repeated = len(draws) - len(set(draws))
    equal(f"{name}: messages with the draws of another", 0, repeated, source="derived")
    assert len(draws) >= 2 * UNEVEN.workers


ALONE = {
    "sync_ps": {},
    "k_sync, cancel": {"cancel": True},
    "downpour": {},
    "k_batch_sync": {},
    "ringmaster": {},
    "ringmaster, cancel": {"cancel": True},
    "ringleader": {},
    "mindflayer": {},
    "sync_replicas": {"num_tokens": 0},
    "dana": {},
    "dana_slim": {},
    "async_diloco": {"local_steps": 1},
    "fedavg": {"local_steps": 1},
}
"""Methods whose only worker waits for an answer to each mini-batch, or is interrupted by it."""


def test_step_time_includes_coding_and_message_bytes():
    """t_c + codec_seconds + alpha + s N beta, and the answer's alpha + N beta."""
    network = Network(bandwidth=8.0, latency=0.125, message_bytes=4.0)
    compress = Compress("random_k", keep=0.4, codec_seconds=0.0625)
    coded, s, N_beta = 1.0 + 0.0625, 0.4, 0.5
    one = Cluster(1, Constant(1.0), network=network)
    for label, settings in ALONE.items():
        algorithm = method(name_of(label), compress=compress, **settings)
        times = update_times(one, algorithm, 5, quadratic())
        text = f"{label}, P = 1: t_c + codec_seconds + 2 alpha + (s + 1) N beta"
        equal(text, coded + 0.25 + (s + 1) * N_beta, times[1:], source="derived")
        if label in BOTH_WAYS:
            down = replace(algorithm, compress_down=Compress("random_k", keep=0.6))
            times = update_times(one, down, 5, quadratic())
            text = f"{label}, P = 1: t_c + codec_seconds + 2 alpha + (s + s') N beta, s' down"
            equal(text, coded + 0.25 + (s + 0.6) * N_beta, times[1:], source="derived")
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


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("k_batch_sync", {}),
        ("ringmaster", {"threshold": 1, "cancel": True}),
        ("k_sync", {"wait_for": 1, "cancel": True}),
    ],
)
def test_new_weights_interrupt_coding(name, settings):
    """So that what is coded when they come is never sent, and leaves no memory."""
    cluster = Cluster(2, Constant(1.0), slowdowns=[Factor(1, factor=1.1)])
    compress = Compress("top_k", keep=0.2, codec_seconds=0.5)
    algorithm = method(name, compress=compress, **settings)
    outcome = simulate(cluster, algorithm, quadratic(), stop=Stop(updates=6))
    text = f"{name}: late gradients while coding takes from 1.1 to 1.6 s, an update 1.5 s"
    equal(text, 0, outcome.gradients["dropped"], source="derived")
    assert outcome.gradients["cancelled"] >= 5


class Coded(NamedTuple):
    """The encoder of a node, and what it was given and sent."""

    encoder: Encoder
    given: list[Promise]
    sent: list[Promise]


def with_encoders(name):
    """A method's class, and the encoders of its nodes as they are made."""
    coded = []
    right = ALGORITHMS[name]

    class Watched(right):
        def encoder(self, node):
            encoder = right.encoder(self, node)
            encode = encoder.encode
            one = Coded(encoder, [], [])

            def note(value, gradient):
                one.given.append(value)
                one.sent.append(encode(value, gradient))
                return one.sent[-1]

            encoder.encode = note
            coded.append(one)
            return encoder

    return Watched, coded


def rest_of(encoder):
    """What a node has been given, and nobody has applied by the time of its next message."""
    encoder._take_back()
    rest = encoder._memory
    assert rest is not None
    for gradient, message in encoder._sent:
        if gradient.status == IN_FLIGHT:
            rest = rest + message
    return rest.value


def total_of(promises):
    """The sum of values `(ensemble, params)`."""
    return torch.stack([promise.value for promise in promises]).sum(0)


SUMS = {
    "sync_ps": ({}, 4 / LR),
    "k_sync": ({"wait_for": 3}, 3 / LR),
    "k_sync, cancel": ({"wait_for": 3, "cancel": True}, 3 / LR),
    "async_ps": ({}, 1 / LR),
    "downpour": ({"n_push": 2, "n_fetch": 4}, 1 / LR),
    "k_batch_sync": ({"gradients": 3}, 3 / LR),
    "ringmaster": ({"threshold": 2}, 1 / LR),
    "ringmaster, cancel": ({"threshold": 2, "cancel": True}, 1 / LR),
    "mindflayer": ({"trials": 2}, 8 / LR),
    "sync_replicas": ({"replicas_to_aggregate": 3}, 3 / LR),
    "dana": ({}, 1 / LR),
    "dana_slim": ({}, 1 / LR),
    "all_reduce": ({"collective": "mesh"}, 4 / LR),
    "local_sgd": ({"average": "updates", "wait_for": 3}, -3),
    "async_diloco": ({"outer_lr": 1, "outer_momentum": 0, "momentum_every": 1}, 1),
    "fedavg": ({"clients": 2, "select": 1.5}, -2),
    "fedbuff": ({"in_flight": 3, "buffer": 2, "power": 0}, -2),
}
"""Methods whose model moves by a mean of messages, their settings, and -1 over the factor of one."""
AFAR = replace(UNEVEN, network=Network(latency=0.2))
"""So that messages are under way when an update is made."""


@pytest.mark.parametrize(
    ("label", "compressor"), [*((label, "top_k") for label in SUMS), ("k_sync", "sign")]
)
def test_applied_and_remembered_values_sum_to_all(label, compressor):
    """w_0 - w_t + lr mean e = lr times the mean of the same gradients, some of them dropped."""
    name, (settings, scale) = name_of(label), SUMS[label]
    kind, coded = with_encoders(name)
    keep = None if compressor == "sign" else 0.2
    compress = Compress(compressor, keep=keep)
    algorithm = kind(Rule(lr=LR), compress=compress, **settings)
    outcome = simulate(AFAR, algorithm, slope(), stop=Stop(updates=60))
    moved = (first_weights(slope()) - outcome.weights) * scale
    given = total_of(value for one in coded for value in one.given)
    rest = torch.stack([rest_of(one.encoder) for one in coded]).sum(0)
    assert (outcome.gradients["dropped"] > 5) == (name in DROP)
    text = f"{label}, {compressor}: sum of what is applied + e = sum of values"
    close(text, moved + rest, given, source=KARIMIREDDY, rtol=1e-11)


@pytest.mark.parametrize("label", ["async_ps", "k_batch_sync", "fedbuff"])
def test_memory_is_lost_in_a_crash(label):
    """A worker that is back sends C(v), not C(v + e)."""
    settings, _ = SUMS[label]
    kind, coded = with_encoders(label)
    algorithm = kind(Rule(lr=LR), compress=Compress("top_k", keep=0.2), **settings)
    crash = Crash(1, at=20.0, back=21.0)
    simulate(replace(AFAR, slowdowns=[crash]), algorithm, slope(), stop=Stop(updates=60))
    *first, returned = coded
    assert len(first) == 4
    text = f"{label}, top 1 of 5: first message after a crash = C(v)"
    values = top_k(returned.given[0].value, 1)
    same(text, returned.sent[0].value, values, source="derived")


def test_change_of_local_steps_is_remembered():
    """As gradients are: where H = 1, `local_sgd` is `sync_ps`, in what it leaves out too."""
    compress = Compress("top_k", keep=0.2)
    for name, other in (("local_sgd", "sync_ps"), ("local_all_reduce", "all_reduce")):
        settings = {"collective": "mesh"}
        more = {}
        if name == "local_sgd":
            settings, more = {}, {"average": "updates"}
        rules = LINEAR[:1]
        one = every(UNEVEN, name, rules=rules, local_steps=1, compress=compress, **settings, **more)
        two = every(UNEVEN, other, rules=rules, compress=compress, **settings)
        text = f"{name}, H = 1, sgd, top 1 of 5 = {other}, top 1 of 5"
        close(text, one, two, source="derived")


def test_compressors_are_contractions():
    """|v - C(v)|^2 <= (1 - delta) |v|^2."""
    whole = VECTORS.square().sum(1)
    for k in (1, 3, 7):
        left = (VECTORS - top_k(VECTORS, k)).square().sum(1)
        text = f"top_k, {k} of 8: |v - C(v)|^2 / |v|^2 <= 1 - k / d"
        at_most(text, 1 - k / 8, (left / whole).numpy(), source=STICH)
    left = (VECTORS - Compress("sign").apply(VECTORS, rank=0, call=1)).square().sum(1)
    expected = whole - VECTORS.abs().sum(1).square() / 8
    close("sign: |v - C(v)|^2 = |v|^2 - |v|_1^2 / d", left, expected, source=KARIMIREDDY)


def test_random_indices_leave_their_share():
    """Each number is kept with probability k / d, so that of |v|^2 as much is sent on average."""
    compress, v = Compress("random_k", keep=3 / 8, feedback="none"), VECTORS[:1]
    left = []
    for call in range(2000):
        left.append(float((v - compress.apply(v, rank=0, call=call)).square().sum()))
    text = "random_k, 3 of 8: E |v - C(v)|^2 / |v|^2 = 1 - k / d"
    mean_is(text, 1 - 3 / 8, np.array(left) / float(v.square().sum()), source=STICH)


def test_estimate_tends_to_constant_value():
    """EF21's error shrinks by the compressor's factor with every message, or faster."""
    value = VECTORS[:1]
    encoder = Encoder(Compress("top_k", keep=0.25, feedback="ef21"), 0, 8)
    applied = SimpleNamespace(status=APPLIED)
    shrunk, bounds = [], []
    for t in range(1, 5):
        left = (value - encoder.encode(known(value), applied).value).square().sum()
        shrunk.append(float(left / value.square().sum()))
        bounds.append((1 - 2 / 8) ** t)
    text = "ef21, top 2 of 8, constant v: |v - h|^2 / ((1 - k/d)^t |v|^2) <= 1"
    at_most(text, 1.0, np.array(shrunk) / bounds, source=RICHTARIK)
    equal("and h = v after d / k messages", 0.0, shrunk[-1], source="derived", rtol=1e-12)


def standing_still(name, feedback, lr, updates, **settings):
    """Where uneven workers with optima and curvatures of their own end, and the true optimum."""
    h, shift = [1.0, 0.25, 2.0], [[0.0, 1.0], [5.0, -2.0], [1.0, 4.0]]
    task = Quadratic(curvature=[1.0, 0.5], scale=h, shift=shift, initial=3.0, dtype=torch.float64)
    compress = Compress("top_k", keep=0.5, feedback=feedback)
    algorithm = method(name, Rule(lr=lr), compress=compress, **settings)
    cluster = Cluster(3, Constant(1.0), slowdowns=[Factor(1, factor=2.3)])
    weights = simulate(cluster, algorithm, task, stop=Stop(updates=updates)).weights
    scales = torch.tensor(h, dtype=torch.float64)
    optima = torch.tensor(shift, dtype=torch.float64)
    return weights, (scales @ optima / scales.sum())[None]


@pytest.mark.parametrize(
    ("name", "lr", "updates", "both_ways"),
    [
        ("all_reduce", 0.2, 250, False),
        ("sync_ps", 0.2, 300, True),
        # servers that remember as `sync_ps` does
        pytest.param("sync_ps", 0.2, 250, False, marks=pytest.mark.slow),
        pytest.param("malenia", 0.2, 250, False, marks=pytest.mark.slow),
        pytest.param("ringleader", 0.1, 500, False, marks=pytest.mark.slow),
        pytest.param("ringleader", 0.08, 700, True, marks=pytest.mark.slow),
    ],
)
def test_ef21_reaches_minimum_of_mean_loss(name, lr, updates, both_ways):
    """Where gradients of workers do not vanish, error feedback circles, at a constant rate."""
    settings, words, source = METHODS[name], "top 1 of 2", RICHTARIK
    if both_ways:
        down = Compress("top_k", keep=0.5)
        settings, words, source = {"compress_down": down}, "top 1 of 2 both ways", GRUNTKOWSKA
    weights, optimum = standing_still(name, "ef21", lr, updates, **settings)
    close(f"{name}, ef21, {words}: sum h_i a_i / sum h_i", weights, optimum, source=source)
    if not both_ways:
        weights, optimum = standing_still(name, "ef", lr, updates, **settings)
        differ(f"{name}, ef, {words}, is not there", weights, optimum, source=source, least=1e-3)


def test_random_rounding_is_unbiased():
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


def test_nodes_draw_the_same_indices():
    """So that a sum of messages has k numbers, and any collective can add them up."""
    compress = Compress("random_k", keep=0.4, feedback="none")
    run = partial(every, UNEVEN, "all_reduce", rules=RULES[:1], compress=compress)
    ring, mesh = (run(updates=9, collective=name) for name in ("ring", "mesh"))
    close("all_reduce, random 2 of 5: ring = mesh", ring, mesh, source=STICH)
    before = run(updates=8, collective="mesh")
    moved = int((before[0] != mesh[0]).sum())
    equal("all_reduce, random 2 of 5: numbers that an update moves", 2, moved, source=STICH)


class Reply(NamedTuple):
    """A model on its way to a worker: what that held before, the server's, and what it holds then."""

    worker: int
    held: Tensor | None
    weights: Tensor
    next_held: Tensor


def with_replies(name):
    """A method's class, and the models that its server sends, as workers compute at them."""
    replies = []
    right = ALGORITHMS[name]

    class Watched(right):
        def answers(self, node):
            found = right.answers(self, node)
            send, last = found.send, dict[int, Tensor]()

            def note(worker, weights, size=1.0):
                message = send(worker, weights, size=size)
                replies.append(Reply(worker, last.get(worker), weights, message.content))
                last[worker] = message.content
                return message

            def forget(worker):
                right_forget(worker)
                last.pop(worker, None)

            right_forget = found.forget
            found.send, found.forget = note, forget
            return found

    return Watched, replies


@pytest.mark.parametrize("label", BOTH_WAYS)
def test_sending_all_numbers_down_is_no_compression(label):
    """But for rounding, since v + (w - v) is not w."""
    name, settings = name_of(label), {**METHODS, **LOCAL}[label]
    run = partial(every, UNEVEN, name, rules=[RULES[0], RULES[-1]], updates=6, **settings)
    compress = Compress("top_k", keep=1.0)
    text = f"{label}, all numbers kept of the server's, = {label}"
    close(text, run(compress_down=compress), run(), source="derived")


@pytest.mark.parametrize("label", BOTH_WAYS)
def test_answers_have_size_of_formula(label):
    """But for the first to each worker, which is a whole model."""
    name, settings = name_of(label), {**METHODS, **LOCAL}[label]
    compress_down = Compress("random_k", keep=0.4)
    sent, answers = sizes_of(method(name, compress_down=compress_down, **settings))
    equal(f"{label}: models of a message", 1.0, sent, source="derived", rtol=1e-12)
    equal(f"{label}: models of a first answer", 1.0, answers[:4], source="derived", rtol=1e-12)
    text = f"{label}: models of later answers, random 2 of 5"
    equal(text, 2 / 5, answers[4:], source="derived", rtol=1e-12)
    assert len(answers) > 4


@pytest.mark.parametrize("label", BOTH_WAYS)
def test_workers_are_near_the_server(label):
    """They are sent k numbers, and what is left out is no more than 1 - k / d of the change."""
    name, settings = name_of(label), {**METHODS, **LOCAL}[label]
    kind, replies = with_replies(name)
    algorithm = kind(Rule(lr=LR), compress_down=Compress("top_k", keep=0.4), **settings)
    simulate(UNEVEN, algorithm, quadratic(), stop=Stop(updates=20))
    numbers, shares = [], []
    for reply in replies:
        if reply.held is not None:
            numbers.append(int((reply.next_held != reply.held).sum()))
            left, changed = reply.weights - reply.next_held, reply.weights - reply.held
            if changed.any():
                shares.append(float(left.square().sum() / changed.square().sum()))
    at_most(f"{label}, top 2 of 5: numbers that are sent", 2, numbers, source="derived")
    text = f"{label}, top 2 of 5: |w - v|^2 / |w - v of before|^2 <= 1 - k / d"
    at_most(text, 1 - 2 / 5, shares, source=GRUNTKOWSKA)


@pytest.mark.parametrize("rule", LINEAR[:2])
def test_compression_both_ways_is_its_loop(rule):
    """Error feedback at each worker, and at the server for the updates that it makes."""
    P, updates, task = 3, 12, quadratic()
    up, down = Compress("top_k", keep=0.4), Compress("top_k", keep=0.2)
    weights = first_weights(task)
    held, state = weights, rule.init(weights)
    rest = torch.zeros_like(weights)
    memories = [torch.zeros_like(weights) for _ in range(P)]
    batches = [batches_of(task, rank) for rank in range(P)]
    for _ in range(updates):
        messages = []
        for rank in range(P):
            whole = gradient_of(task, held, next(batches[rank])) + memories[rank]
            messages.append(top_k(whole, 2))
            memories[rank] = whole - messages[-1]
        mean = torch.stack(messages).mean(0)
        updated, state = rule.step(weights, mean, state, epochs=0.0)
        change = updated - weights + rest
        held = held + top_k(change, 1)
        rest = change - top_k(change, 1)
        weights = updated
    algorithm = method("sync_ps", rule, compress=up, compress_down=down)
    found = simulate(Cluster(P), algorithm, task, stop=Stop(updates=updates)).weights
    close("sync_ps, top 2 of 5 up, top 1 of 5 down = its loop", found, weights, source=TANG)


@pytest.mark.parametrize("label", BOTH_WAYS)
def test_returned_worker_is_sent_the_whole_model(label):
    name, settings = name_of(label), {**METHODS, **LOCAL}[label]
    kind, replies = with_replies(name)
    algorithm = kind(Rule(lr=LR), compress_down=Compress("top_k", keep=0.2), **settings)
    crash = Crash(1, at=5.5, back=6.25)
    cluster = replace(AFAR, slowdowns=[crash])
    simulate(cluster, algorithm, quadratic(), stop=Stop(updates=30))
    first, returned = (reply for reply in replies if reply.worker == 1 and reply.held is None)
    for reply in (first, returned):
        text = f"{label}: the first model after an announcement is the server's"
        same(text, reply.next_held, reply.weights, source="derived")


@pytest.mark.parametrize("label", ["k_batch_sync", "ringmaster, cancel", "k_sync, cancel"])
@pytest.mark.parametrize("crash", [False, True])
def test_changes_arrive_in_order_of_sending(label, crash):
    """A worker with a slow card gets changes after the whole model, by servers that do not wait."""
    settings = {**METHODS[label], **{"k_batch_sync": {"gradients": 1}}.get(label, {"threshold": 1})}
    if label == "k_sync, cancel":
        settings = {"wait_for": 1, "cancel": True}
    algorithm = method(name_of(label), compress_down=Compress("top_k", keep=0.2), **settings)
    shared = Network(
        bandwidth=8.0,
        server_bandwidth=80.0,
        message_bytes=4.0,
        latency=0.01,
        cards=[Card(1, bandwidth=0.8)],
    )
    slowdowns = [Crash(1, at=8.0, back=8.5)] if crash else []
    cluster = Cluster(2, Constant(0.5), network=shared, slowdowns=slowdowns)
    record, stop = Record(messages=True), Stop(updates=25)
    log = simulate(cluster, algorithm, quadratic(), stop=stop, record=record).message_log
    assert log is not None
    arrived = ~np.isnan(log["arrived"])
    down = (log["sender"] < 0) & (log["receiver"] == 1) & arrived
    order = np.argsort(log["sent"][down], kind="stable")
    arrivals = log["arrived"][down][order]
    assert len(arrivals) > 5
    at_most(f"{label}: order of arrivals", 0.0, -np.diff(arrivals), source="derived")
    whole = log["bytes"][down][order] == 4.0
    equal(f"{label}: whole models", 1 + crash, whole.sum(), source="derived")


def network(batch=8):
    """A network with matrices of 12 x 16, 7 x 12 and 3 x 7, and vectors."""
    data = synthetic(samples=120, features=16, classes=3)
    build = MLP(hidden=(12, 7)).build
    return Supervised(build, data, batch=batch, dtype=torch.float64, device="cpu", threads=1)


@pytest.mark.parametrize("collective", ["ring", "mesh"])
def test_full_rank_is_all_reduce(collective):
    run = partial(every, UNEVEN, task=network(), rules=LINEAR, updates=12, collective=collective)
    text = f"power_sgd, rank >= min(n, m) = all_reduce, {collective}"
    close(text, run("power_sgd", rank=12), run("all_reduce"), source=VOGELS)


def test_gradient_of_low_rank_is_exact():
    """That of two samples has rank 2 at most: a random Q has its row space, and nothing is left."""
    task, rests = network(batch=2), []
    draw, rest_of = task.batches, Factors.rest_of

    def alike(rank, rngs):
        return draw(0, [np.random.default_rng(11) for _ in rngs])

    def note(self, whole, mean):
        rest = rest_of(self, whole, mean)
        rests.append(float(rest.norm() / whole.norm()))
        return rest

    run = partial(every, Cluster(3), task=task, rules=LINEAR[:1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "batches", alike)
        patch.setattr(Factors, "rest_of", note)
        one, other = run("power_sgd", rank=2, updates=1), run("all_reduce", updates=1)
        run("power_sgd", rank=2, updates=2)  # the second step needs what the first one left
    text = "power_sgd, rank 2 = all_reduce, equal gradients of rank 2, first step"
    close(text, one, other, source=VOGELS)
    assert len(rests) == 3
    at_most("and |E| / |M|", 1e-12, rests, source=VOGELS, rtol=0.0)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_low_rank_is_its_loop(rank):
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


def test_thin_matrices_have_the_bytes_of_formula():
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
