"""What is said of distributed SGD in many places, and belongs to no single paper."""

import numpy as np
import xarray as xr

from laggard.experiments.claims.claim import (
    Claim,
    Criterion,
    NumberArrays,
    Paper,
    Study,
    StudyResults,
    paragraph,
)
from laggard.experiments.claims.exhibits import Picture
from laggard.experiments.claims.statistics import (
    at,
    final,
    per_sample,
    per_update,
    relabel,
    stack_arrays,
    staleness,
    staleness_by,
)

PAPER = Paper(
    key="notes",
    authors="Common statements",
    year=2026,
    title="Statements about distributed SGD that belong to no single paper",
    where="Collected in 2026",
)

SHOWN = {
    "recursive_doubling": "recursive doubling",
    "halving_doubling": "halving and doubling",
    "sync": "synchronous server",
    "overlapped": "synchronous server, overlapped",
    "async": "asynchronous server",
    "downpour": "Downpour",
    "sgp": "SGP",
    "adpsgd": "AD-PSGD",
    "all_reduce": "all-reduce",
    "sync_ps": "synchronous server",
    "k_sync": "K-sync",
    "async_ps": "asynchronous server",
}
"""What figures call methods."""


def decide_n1(results: StudyResults) -> NumberArrays:
    late = staleness(results["laws"], after=0.1)
    less = late["workers"] - late
    return {
        "normal": abs(at(less, law="normal") - 1).max("workers"),
        "exponential": abs(at(less, law="exponential") - 1).max("workers"),
        "normal_64": at(late, law="normal", workers=64),
        "staleness": late,
        "expected": late["workers"] - 1.0,
    }


N1 = Claim(
    id="N1",
    paper=PAPER,
    question="Is the mean staleness of N asynchronous workers N - 1?",
    says=paragraph("""
        with N asynchronous workers whose times are normal, a gradient is N - 1 updates late on average; N is said too.
    """),
    basis="clock",
    mark="notes",
    setting=paragraph("""
        clock alone, an asynchronous server, N = 4, 16, 64 workers, a free network; normal times of 10 ms with a
        deviation of 2 ms, and exponential ones; 20,000 gradients a run of which the first tenth is left out, 5 seeds.
        By Little's law the mean is N - 1, not N, whatever the law: N gradients are under way, of which one is applied.
    """),
    studies={
        "laws": Study(
            config={
                "cluster": {"workers": 4},
                "algorithm": {"name": "async_ps"},
                "task": {"model": "timing", "batch": 1},
                "stop": {"gradients": 20000},
                "sweep": {
                    "cluster.workers": [4, 16, 64],
                    "law": {
                        "normal": {
                            "cluster.compute": {"law": "normal", "location": 0.01, "scale": 0.002}
                        },
                        "exponential": {"cluster.compute": {"law": "exponential", "mean": 0.01}},
                    },
                    "seeds": 5,
                },
            },
            smoke={"stop.gradients": 2000, "sweep.seeds": 2},
        )
    },
    decide=decide_n1,
    criteria=(
        Criterion(
            "normal",
            "normal times: N minus the mean staleness, furthest from 1 over N",
            at_most=0.1,
        ),
        Criterion("exponential", "exponential times: the same", at_most=0.1),
    ),
    beside={"normal_64": "mean staleness of 64 workers with normal times"},
    figure=Picture(
        of="staleness",
        x="workers",
        y="mean staleness",
        lines="law",
        xlabel="workers N",
        log_x=True,
        log_y=True,
        theory="expected",
    ),
    headline="N minus the mean staleness, from 1",
    did=paragraph("""
        Staleness of 20,000 gradients by 4, 16 and 64 asynchronous workers with normal and with exponential times.
    """),
)


LATENCY, COMPUTE, BYTES = 0.0001, 0.01, 250000
SIZES = {"small": 0.01, "middle": 1.0, "large": 100.0}
"""N beta over alpha: seconds of a whole message over the latency."""
EXCHANGES = {
    "server": {"algorithm.name": "sync_ps"},
    **{
        name: {"algorithm.name": "all_reduce", "algorithm.collective": name}
        for name in ("mesh", "ring", "tree", "recursive_doubling", "halving_doubling")
    },
}


def exchange_seconds(method: str, workers: xr.DataArray, transfer: xr.DataArray) -> xr.DataArray:
    """Seconds from the gradients to the next weights, every node with one card, P a power of two.

    Args:
        workers: P.
        transfer: N beta, the seconds of a whole message.

    Source: Thakur, Rabenseifner, Gropp (2005), International Journal of High Performance Computing
    Applications 19.
    """
    steps = xr.apply_ufunc(np.log2, workers)
    halves = 2 * (workers - 1) / workers * transfer
    seconds: dict[str, xr.DataArray] = {
        "server": 2 * LATENCY + 2 * workers * transfer,
        "mesh": LATENCY + (workers - 1) * transfer,
        "ring": 2 * (workers - 1) * LATENCY + halves,
        "tree": 2 * steps * (LATENCY + transfer),
        "recursive_doubling": steps * (LATENCY + transfer),
        "halving_doubling": 2 * steps * LATENCY + halves,
    }
    return seconds[method]


def decide_n2(results: StudyResults) -> NumberArrays:
    seconds = per_update(results["rounds"]) - COMPUTE
    transfer = LATENCY * xr.DataArray(
        list(SIZES.values()), coords={"size": list(SIZES)}, dims="size"
    )
    theory = [
        exchange_seconds(method, seconds["workers"].astype(float), transfer) for method in EXCHANGES
    ]
    expected = xr.concat(theory, xr.Variable("method", list(EXCHANGES)))

    def over(size: str, method: str, other: str) -> xr.DataArray:
        own = at(seconds, size=size, workers=16)
        return at(own, method=method) / at(own, method=other)

    def by_size(values: xr.DataArray) -> xr.DataArray:
        return at(values, workers=16).assign_coords(
            size=[SIZES[str(name)] for name in values["size"].values]
        )

    def growth(method: str) -> xr.DataArray:
        own = at(seconds, size="large", method=method)
        return at(own, workers=32) / at(own, workers=4)

    return {
        "theory": abs(seconds / expected - 1).max(),
        "large_server": over("large", "ring", "server"),
        "large_mesh": over("large", "ring", "mesh"),
        "small_ring": over("small", "mesh", "ring"),
        "small_server": over("small", "mesh", "server"),
        "growth_ring": growth("ring"),
        "growth_server": growth("server"),
        "middle_ring": over("middle", "ring", "recursive_doubling"),
        "middle_mesh": over("middle", "mesh", "recursive_doubling"),
        "large_halving": over("large", "halving_doubling", "ring"),
        "seconds": relabel(by_size(seconds), "method", SHOWN),
        "expected": relabel(by_size(expected), "method", SHOWN),
    }


N2 = Claim(
    id="N2",
    paper=PAPER,
    question="Which of a server, a parallel all-reduce and a ring is the quickest, and when?",
    says=paragraph("""
        a server is the slowest way to sum gradients; a ring wins where messages are large, since its time hardly grows
        with the nodes, and a parallel all-reduce, in which all send to all, where they are small.
    """),
    basis="clock",
    mark="notes",
    setting=paragraph("""
        clock alone, 4 to 32 nodes, each with one full-duplex card, latency alpha of 0.1 ms, constant compute times of
        10 ms; messages of N beta = 0.01, 1 and 100 alpha; seconds of an update less those of the gradient, 100 updates.
        Six ways to sum, each with its closed form: a server 2 alpha + 2 P N beta, all to all alpha + (P - 1) N beta,
        a ring 2 (P - 1) alpha + 2 (P - 1) / P N beta, a tree, recursive doubling, halving and doubling.
    """),
    studies={
        "rounds": Study(
            config={
                "cluster": {
                    "workers": 4,
                    "compute": {"law": "constant", "mean": COMPUTE},
                    "network": {"latency": LATENCY, "message_bytes": BYTES},
                },
                "task": {"model": "timing"},
                "stop": {"updates": 100},
                "sweep": {
                    "cluster.workers": [4, 8, 16, 32],
                    "size": {
                        name: {"cluster.network.bandwidth": BYTES / (LATENCY * ratio)}
                        for name, ratio in SIZES.items()
                    },
                    "method": EXCHANGES,
                },
            },
            smoke={"stop.updates": 3, "sweep.cluster.workers": [4, 16, 32]},
        )
    },
    decide=decide_n2,
    criteria=(
        Criterion("theory", "seconds over the closed form, furthest from 1 over all", at_most=0.01),
        Criterion(
            "large_server", "large messages, 16 nodes: ring over server (theory 0.068)", at_most=0.5
        ),
        Criterion(
            "large_mesh",
            "large messages, 16 nodes: ring over all to all (theory 0.145)",
            at_most=0.5,
        ),
        Criterion(
            "small_ring",
            "small messages, 16 nodes: all to all over ring (theory 0.038)",
            at_most=0.5,
        ),
        Criterion(
            "small_server",
            "small messages, 16 nodes: all to all over server (theory 0.496)",
            at_most=0.5,
        ),
        Criterion(
            "growth_ring", "large messages: ring, 32 nodes over 4 (theory 1.64)", at_most=2.0
        ),
        Criterion(
            "growth_server", "large messages: server, 32 nodes over 4 (theory 8)", at_least=4.0
        ),
    ),
    beside={
        "middle_ring": "messages of N beta = alpha, 16 nodes: ring over recursive doubling",
        "middle_mesh": "the same, all to all over recursive doubling",
        "large_halving": "large messages, 16 nodes: halving and doubling over ring",
    },
    figure=Picture(
        of="seconds",
        x="size",
        y="seconds of an exchange, 16 nodes",
        lines="method",
        xlabel="seconds of a whole message over the latency, N beta / alpha",
        log_x=True,
        log_y=True,
        theory="expected",
    ),
    notes=paragraph("""
        In the closed forms halving and doubling is never slower than the ring.
    """),
    headline="seconds over closed form, from 1",
    did=paragraph("""
        Six ways to sum gradients, 4 to 32 nodes with a card each, messages far below, at and far above the latency.
    """),
)


def decide_n3(results: StudyResults) -> NumberArrays:
    idle = 1 - COMPUTE / (8 * per_sample(results["idle"]))
    return {
        "downpour": at(idle, method="downpour") / at(idle, method="async"),
        "async": at(idle, method="async") / at(idle, method="overlapped"),
        "async_over_sync": at(idle, method="async") / at(idle, method="sync"),
        "idle_sync": at(idle, method="sync"),
        "idle_overlapped": at(idle, method="overlapped"),
        "idle_async": at(idle, method="async"),
        "idle_downpour": at(idle, method="downpour"),
        "idle": relabel(idle, "method", SHOWN),
    }


N3 = Claim(
    id="N3",
    paper=PAPER,
    question="Does Downpour cut the time in which workers are idle?",
    says="asynchronous workers are idle less than synchronous ones, and those that push and fetch seldom less still.",
    basis="clock",
    mark="notes",
    setting=paragraph("""
        clock alone, 8 workers, gamma times t_c of 10 ms with a coefficient of variation of 0.3, N beta = 0.05 t_c, no
        latency; a synchronous server, the same with gradients sent in ten buckets during the backward pass, an
        asynchronous one, and Downpour with a push and a fetch every 5 mini-batches; 20 virtual seconds, 5 seeds. Idle
        is the share of the workers' time that is not spent on gradients that are applied. A fifth of the messages makes
        about a fifth of the idle time, or less since fewer of them queue.
    """),
    studies={
        "idle": Study(
            config={
                "cluster": {
                    "workers": 8,
                    "compute": {"law": "gamma", "mean": COMPUTE, "cv": 0.3},
                    "network": {"bandwidth": 5e8, "latency": 0.0, "message_bytes": BYTES},
                },
                "task": {"model": "timing", "batch": 1},
                "stop": {"time": 20.0},
                "sweep": {
                    "method": {
                        "sync": {"algorithm.name": "sync_ps"},
                        "overlapped": {
                            "algorithm.name": "sync_ps",
                            "algorithm.bucket_bytes": BYTES // 10,
                        },
                        "async": {"algorithm.name": "async_ps"},
                        "downpour": {
                            "algorithm.name": "downpour",
                            "algorithm.n_push": 5,
                            "algorithm.n_fetch": 5,
                        },
                    },
                    "seeds": 5,
                },
            },
            smoke={"stop.time": 1.0, "sweep.seeds": 2},
        )
    },
    decide=decide_n3,
    criteria=(
        Criterion(
            "async",
            "idle share of the asynchronous server over that of the synchronous one, overlapped",
            at_most=0.5,
        ),
        Criterion(
            "downpour", "idle share of Downpour over that of the asynchronous server", at_most=0.4
        ),
    ),
    beside={
        "async_over_sync": "idle share of the asynchronous server over that of the synchronous one, not overlapped",
        "idle_sync": "idle share, synchronous server",
        "idle_overlapped": "idle share, synchronous server, overlapped",
        "idle_async": "idle share, asynchronous server",
        "idle_downpour": "idle share, Downpour",
    },
    figure=Picture(of="idle", x="method", y="share of the workers' time that is idle"),
    headline="asynchronous over synchronous idle time",
    changes=("The synchronous server waited for whole gradients (0.26, held); it overlaps now.",),
    did=paragraph("""
        Idle time of eight workers under a synchronous server, an asynchronous one, and Downpour that talks every
        fifth mini-batch.
    """),
)


STAGES = 4


def decide_n4(results: StudyResults) -> NumberArrays:
    flushed = per_update(results["flushed"])
    batches = flushed["micro_batches"].astype(float)
    bubble = 1 - batches * COMPUTE / STAGES / flushed
    theory = (STAGES - 1) / (batches + STAGES - 1)
    alone = 1 - COMPUTE / STAGES / per_update(results["single"])
    return {
        "flushed": abs(bubble - theory).max(["method", "micro_batches"]),
        "naive": abs(at(alone, method="naive") - (1 - 1 / STAGES)),
        "streamed": at(alone, method="pipedream"),
        "bubble_4": at(bubble, method="gpipe", micro_batches=4),
        "bubble_16": at(bubble, method="gpipe", micro_batches=16),
        "bubble": stack_arrays(
            **{"GPipe": at(bubble, method="gpipe"), "1F1B": at(bubble, method="1f1b")}
        ),
        "expected": theory,
    }


N4 = Claim(
    id="N4",
    paper=PAPER,
    question="How long are the stages of a model that is cut into a pipeline idle?",
    says=paragraph("""
        of S stages that take turns each is idle for (S - 1) / S of the time; M micro-batches that follow each other
        leave a bubble of (S - 1) / (M + S - 1), and a pipeline that is never flushed none.
    """),
    basis="clock",
    mark="derived",
    setting=paragraph("""
        clock alone, S = 4 equal stages, constant times, a free network; GPipe and 1F1B with 1, 4 and 16 micro-batches,
        100 updates; stages in turn and PipeDream, 1,000 updates, of which PipeDream's first three fill the pipeline.
        Idle is 1 less the work of a stage over the seconds of an update.
    """),
    studies={
        "flushed": Study(
            config={
                "cluster": {"workers": STAGES, "compute": {"law": "constant", "mean": COMPUTE}},
                "task": {"model": "timing"},
                "stop": {"updates": 100},
                "sweep": {
                    "method": {
                        "gpipe": {"algorithm.name": "gpipe"},
                        "1f1b": {"algorithm.name": "1f1b"},
                    },
                    "algorithm.micro_batches": [1, 4, 16],
                },
            },
            smoke={"stop.updates": 10},
        ),
        "single": Study(
            config={
                "cluster": {"workers": STAGES, "compute": {"law": "constant", "mean": COMPUTE}},
                "task": {"model": "timing"},
                "stop": {"updates": 1000},
                "sweep": {
                    "method": {
                        "naive": {"algorithm.name": "naive"},
                        "pipedream": {"algorithm.name": "pipedream"},
                    }
                },
            },
            smoke={"stop.updates": 40},
        ),
    },
    decide=decide_n4,
    criteria=(
        Criterion(
            "naive", "stages in turn: idle share minus (S - 1) / S, either way", at_most=0.01
        ),
        Criterion(
            "flushed",
            "GPipe, 1F1B: idle share minus (S - 1) / (M + S - 1), furthest from 0",
            at_most=0.01,
        ),
        Criterion("streamed", "PipeDream: idle share", at_most=0.01),
    ),
    beside={
        "bubble_4": "GPipe, 4 micro-batches: idle share (theory 0.429)",
        "bubble_16": "GPipe, 16 micro-batches: idle share (theory 0.158)",
    },
    figure=Picture(
        of="bubble",
        x="micro_batches",
        y="share of time a stage is idle",
        lines="of",
        theory="expected",
        xlabel="micro-batches",
        log_x=True,
    ),
    headline="naive idle share, from 3/4",
    did=paragraph("""
        Idle time of four equal stages: in turn, GPipe and 1F1B with 1 to 16 micro-batches, PipeDream.
    """),
)


LOST_AFTER = 0.2
"""The share of the run after which a node is lost."""


def decide_n5(results: StudyResults) -> NumberArrays:
    samples = final(results["lost"], "samples")
    share = at(samples, crash="worker 3") / at(samples, crash="none")
    after = (share - LOST_AFTER) / (1 - LOST_AFTER)
    names = ("sgp", "adpsgd", "all_reduce", "sync_ps", "k_sync", "async_ps")
    served = ("sync_ps", "k_sync", "async_ps")
    without = at(samples, crash="none", method=list(served))
    left = (final(results["server lost"], "samples") / without - LOST_AFTER).clip(min=0) / (
        1 - LOST_AFTER
    )
    return {
        **{name: at(after, method=name) for name in names},
        "server": left.max("method"),
        "after": relabel(
            stack_arrays(
                **{
                    "a worker": after,
                    "the server": left.reindex({"method": after["method"].values}),
                }
            ),
            "method",
            SHOWN,
        ),
    }


N5 = Claim(
    id="N5",
    paper=PAPER,
    question="Do methods without a server go on learning when a node is lost?",
    says="stochastic gradient push and AD-PSGD need no single server, whose failure would end the training.",
    basis="clock",
    mark="notes",
    setting=paragraph("""
        clock alone, 8 nodes, gamma times of 10 ms with a coefficient of variation of 0.1, a free network; one node is
        lost for good after 1 of 5 virtual seconds, 5 seeds. The number is the mini-batches after the loss over those of
        the same run without it: 7 / 8 where the others go on. A worker is lost, or the server,
        where there is one.
    """),
    studies={
        "lost": Study(
            config={
                "cluster": {"workers": 8, "compute": {"law": "gamma", "mean": COMPUTE, "cv": 0.1}},
                "task": {"model": "timing", "batch": 1},
                "stop": {"time": 5.0},
                "sweep": {
                    "crash": {
                        "none": {"cluster.slowdowns": []},
                        "worker 3": {
                            "cluster.slowdowns": [{"kind": "crash", "worker": 3, "at": 1.0}]
                        },
                    },
                    "method": {
                        "sgp": {"algorithm.name": "sgp"},
                        "adpsgd": {"algorithm.name": "adpsgd"},
                        "all_reduce": {"algorithm.name": "all_reduce"},
                        "sync_ps": {"algorithm.name": "sync_ps"},
                        "k_sync": {"algorithm.name": "k_sync", "algorithm.wait_for": 7},
                        "async_ps": {"algorithm.name": "async_ps"},
                    },
                    "seeds": 5,
                },
            },
            smoke={"cluster.compute.mean": 0.05, "sweep.seeds": 2},
        ),
        "server lost": Study(
            config={
                "cluster": {
                    "workers": 8,
                    "compute": {"law": "gamma", "mean": COMPUTE, "cv": 0.1},
                    "server_crashes": [{"at": 1.0, "restore_seconds": 100.0}],
                },
                "task": {"model": "timing", "batch": 1},
                "stop": {"time": 5.0},
                "sweep": {
                    "method": {
                        "sync_ps": {"algorithm.name": "sync_ps"},
                        "k_sync": {"algorithm.name": "k_sync", "algorithm.wait_for": 7},
                        "async_ps": {"algorithm.name": "async_ps"},
                    },
                    "seeds": 5,
                },
            },
            smoke={"cluster.compute.mean": 0.05, "sweep.seeds": 2},
        ),
    },
    decide=decide_n5,
    criteria=(
        Criterion(
            "adpsgd", "AD-PSGD: mini-batches after the loss over those without", at_least=0.8
        ),
        Criterion("sgp", "SGP: the same", at_least=0.8),
        Criterion(
            "server",
            "methods whose server is lost: the same, largest of three",
            at_most=0.05,
            control=True,
        ),
    ),
    beside={
        "all_reduce": "all-reduce: the same",
        "sync_ps": "synchronous server: the same",
        "k_sync": "synchronous server that waits for 7 of 8: the same",
        "async_ps": "asynchronous server: the same",
    },
    figure=Picture(
        of="after",
        x="method",
        y="mini-batches, of those without a loss",
        lines="of",
        label="lost: {}",
        bar=0.8,
    ),
    notes=paragraph("""
        In SGP every node waits for the messages of its neighbours, so that without a change of the graph the loss of
        one stops all, as in all-reduce. Having no server is not enough: no node may be waited for.
    """),
    headline="AD-PSGD's mini-batches after the loss, of those without",
    changes=(
        "That a lost server ends all was said without a run; a control shows it now. The verdict is the same.",
    ),
    did=paragraph("""
        One node of eight lost for good after a fifth of the run, under six methods.
    """),
)


PIPELINES = (4, 6)
PIPELINED = {"pipedream": "PipeDream", "pipedream_2bw": "PipeDream-2BW", "1f1b": "1F1B"}


def decide_n13(results: StudyResults) -> NumberArrays:
    stale = staleness_by(results["pipelines"], "target", after=0.1)
    later = stale["workers"] - 1 - stale["node"]
    streamed, two = at(stale, method="pipedream"), at(stale, method="pipedream_2bw")
    flushed = at(stale, method="1f1b")
    stages = stale["workers"].astype(float)
    idle = 1 - MICRO_BATCHES * COMPUTE / stages / per_update(results["pipelines"])
    return {
        "streamed": abs(streamed - later).max(),
        "two": abs(two - 1).max(),
        "two_idle": at(idle, method="pipedream_2bw").max("workers"),
        "flushed": flushed.max(),
        "flushed_idle": at(idle, method="1f1b", workers=6),
        "first": at(streamed, workers=6, node=0),
        "expected": at(
            xr.concat(
                [later, 1 + 0 * later, 0 * later], xr.Variable("method", list(PIPELINED.values()))
            ),
            workers=6,
        ).assign_coords(node=stale["node"] + 1),
        "stale": relabel(at(stale, workers=6), "method", PIPELINED).assign_coords(
            node=stale["node"] + 1
        ),
    }


MICRO_BATCHES = 8
N13 = Claim(
    id="N13",
    paper=PAPER,
    question="How late are the gradients of each stage of a pipeline that is never flushed?",
    says=paragraph("""
        PipeDream's stage s of S is S - s updates late, the first the most; PipeDream-2BW is one update late on every
        stage, and has no bubble either; a pipeline that is flushed is never late.
    """),
    basis="clock",
    mark="derived",
    setting=paragraph("""
        clock alone, 4 and 6 equal stages, constant times, a free network; PipeDream, and PipeDream-2BW and 1F1B with 8
        micro-batches an update; 400 updates of which the first tenth is left out. Sources: Narayanan et al. (2019),
        arXiv 1806.03377, and (2021), arXiv 2006.09503.
    """),
    studies={
        "pipelines": Study(
            config={
                "cluster": {"workers": 4, "compute": {"law": "constant", "mean": COMPUTE}},
                "task": {"model": "timing"},
                "stop": {"updates": 400},
                "sweep": {
                    "cluster.workers": list(PIPELINES),
                    "method": {
                        "pipedream": {"algorithm.name": "pipedream"},
                        "pipedream_2bw": {
                            "algorithm.name": "pipedream_2bw", "algorithm.micro_batches": MICRO_BATCHES,
                        },
                        "1f1b": {"algorithm.name": "1f1b", "algorithm.micro_batches": MICRO_BATCHES},
                    },
                },
            },
            smoke={"stop.updates": 60},
        )
    },
    decide=decide_n13,
    criteria=(
        Criterion("streamed", "PipeDream: mean staleness minus S - s, furthest from 0 over stages", at_most=0.05),
        Criterion("two", "PipeDream-2BW: mean staleness minus 1, furthest from 0 over stages", at_most=0.05),
        Criterion("two_idle", "PipeDream-2BW: idle share, larger of 4 and 6 stages", at_most=0.01),
        Criterion("flushed", "1F1B: mean staleness, largest over stages", at_most=0.0),
    ),
    beside={
        "first": "PipeDream: mean staleness of the first of 6 stages",
        "flushed_idle": "1F1B, 6 stages: idle share (theory 5 / 13 = 0.385)",
    },
    figure=Picture(
        of="stale", theory="expected", x="node", y="mean staleness (updates), 6 stages", lines="method", xlabel="stage"
    ),
    headline="PipeDream's staleness minus S - s",
    did=paragraph("""
        Staleness by stage of 4 and 6 equal stages: PipeDream, PipeDream-2BW with 8 micro-batches, and 1F1B.
    """),
)  # fmt: skip


CLAIMS = (N1, N2, N3, N4, N5, N13)
