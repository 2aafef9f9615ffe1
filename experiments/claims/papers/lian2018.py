"""What Lian, Zhang, Zhang, Liu (2018) claim."""

from typing import Any

import numpy as np
import xarray as xr

from laggard.experiments.claims.claim import (
    Claim,
    Criterion,
    NumberArrays,
    Paper,
    Study,
    StudyResults,
    Tuning,
    paragraph,
)
from laggard.experiments.claims.exhibits import ClaimTable, Picture
from laggard.experiments.claims.statistics import (
    at,
    curve,
    final,
    per_sample,
    relabel,
    stack_arrays,
)

PAPER = Paper(
    key="lian2018",
    authors="Lian, Zhang, Zhang, Liu",
    year=2018,
    title="Asynchronous decentralized parallel stochastic gradient descent",
    where="ICML 2018, arXiv 1710.06952",
)

METHODS: dict[str, dict[str, Any]] = {
    "adpsgd": {"algorithm.name": "adpsgd"},
    "all_reduce": {"algorithm.name": "all_reduce"},
}
OVERLAPPED: dict[str, dict[str, Any]] = {
    "adpsgd, overlapped": {"algorithm.name": "adpsgd_overlap"},
    "overlapped": {"algorithm.name": "all_reduce", "algorithm.bucket_bytes": 125000},
}

SHOWN = {
    "adpsgd": "AD-PSGD",
    "all_reduce": "all-reduce",
    "adpsgd, overlapped": "AD-PSGD, overlapped",
    "overlapped": "all-reduce, overlapped",
}
"""What figures and tables call methods."""


NODES = 16


def decide_d1(results: StudyResults) -> NumberArrays:
    speedup = 0.010 / per_sample(results["slow"])
    slowness = speedup["slowness"].copy(
        data=[float(factor) for factor in speedup["slowness"].values]
    )
    adpsgd, all_reduce = at(speedup, method="adpsgd"), at(speedup, method="all_reduce")
    return {
        "adpsgd_keeps": at(adpsgd, slowness="100") / at(adpsgd, slowness="1"),
        "all_reduce_keeps": at(all_reduce, slowness="100") / at(all_reduce, slowness="1"),
        "adpsgd_1": at(adpsgd, slowness="1"),
        "adpsgd_10": at(adpsgd, slowness="10"),
        "adpsgd_100": at(adpsgd, slowness="100"),
        "all_reduce_1": at(all_reduce, slowness="1"),
        "all_reduce_10": at(all_reduce, slowness="10"),
        "all_reduce_100": at(all_reduce, slowness="100"),
        "adpsgd_overlapped_1": at(speedup, method="adpsgd, overlapped", slowness="1"),
        "adpsgd_overlapped_100": at(speedup, method="adpsgd, overlapped", slowness="100"),
        "overlapped_1": at(speedup, method="overlapped", slowness="1"),
        "overlapped_100": at(speedup, method="overlapped", slowness="100"),
        "speedup": relabel(speedup, "method", SHOWN),
        "free": stack_arrays(
            **{"AD-PSGD": NODES - 1 + 1 / slowness, "all-reduce": NODES / slowness}
        ).rename(of="method"),
    }


D1 = Claim(
    id="D1",
    paper=PAPER,
    headline="AD-PSGD's throughput kept at 100 times",
    did="The clock alone, 16 nodes on a ring, one of them 1 to 100 times slower, 5 seeds.",
    question=paragraph("""
        Does AD-PSGD keep its throughput when one node of sixteen is a hundred times slower, while all-reduce loses
        all of it?
    """),
    says=paragraph("""
        with one slow worker of 16, AD-PSGD's speed-up over one worker stays at 14.8, 14.1, 13.6, 13.6 when it is
        1, 2, 10, 100 times slower; all-reduce's falls from 12.3 over 6.9 and 1.6 to 0.18.
    """),
    basis="clock",
    mark="recalled",
    setting=paragraph("""
        clock alone, 16 nodes on a ring, gamma times of 10 ms with a coefficient of variation of 0.1, 1 Gb/s cards
        and models of 250 kB (N beta = 0.2 t_c, latency 0.1 ms); node 0 slower by a constant factor; 10 virtual
        seconds, 5 seeds. On a free network asynchronous nodes have a speed-up of P - 1 + 1 / s over one worker,
        those that wait P / s. Overlapped is all-reduce in buckets during the backward pass, and AD-PSGD that averages
        while it computes, as its authors' code does.
    """),
    studies={
        "slow": Study(
            config={
                "cluster": {
                    "workers": 16,
                    "compute": {"law": "gamma", "mean": 0.01, "cv": 0.1},
                    "network": {"bandwidth": 1.25e8, "latency": 0.0001, "message_bytes": 250000},
                },
                "task": {"model": "timing", "batch": 1},
                "stop": {"time": 10.0},
                "sweep": {
                    "slowness": {
                        "1": {"cluster.slowdowns": []},
                        "2": {"cluster.slowdowns": [{"worker": 0, "factor": 2}]},
                        "10": {"cluster.slowdowns": [{"worker": 0, "factor": 10}]},
                        "100": {"cluster.slowdowns": [{"worker": 0, "factor": 100}]},
                    },
                    "method": {**METHODS, **OVERLAPPED},
                    "seeds": 5,
                },
            },
            smoke={
                "stop.time": 0.15,
                "sweep.slowness": {
                    "1": {"cluster.slowdowns": []},
                    "10": {"cluster.slowdowns": [{"worker": 0, "factor": 10}]},
                    "100": {"cluster.slowdowns": [{"worker": 0, "factor": 100}]},
                },
                "sweep.seeds": 2,
            },
        )
    },
    decide=decide_d1,
    criteria=(
        Criterion(
            "adpsgd_keeps",
            "AD-PSGD: throughput at 100 times slower over that without a slow node (free network: 0.938)",
            at_least=0.9,
        ),
        Criterion("all_reduce_keeps", "all-reduce: the same (free network: 0.01)", at_most=0.02),
    ),
    beside={
        "adpsgd_1": "AD-PSGD's speed-up without a slow node",
        "adpsgd_10": "AD-PSGD's speed-up at 10 times slower",
        "adpsgd_100": "AD-PSGD's speed-up at 100 times slower",
        "all_reduce_1": "all-reduce's speed-up without a slow node",
        "all_reduce_10": "all-reduce's speed-up at 10 times slower",
        "all_reduce_100": "all-reduce's speed-up at 100 times slower",
        "adpsgd_overlapped_1": "AD-PSGD that averages while it computes, without a slow node",
        "adpsgd_overlapped_100": "the same at 100 times slower",
        "overlapped_1": "all-reduce in buckets that overlap with the backward pass, without a slow node",
        "overlapped_100": "the same at 100 times slower",
    },
    figure=Picture(
        of="speedup",
        x="slowness",
        theory="free",
        y="speed-up over one worker",
        lines="method",
        xlabel="how many times slower one node of 16 is",
        log_x=True,
        log_y=True,
    ),
    table=ClaimTable(
        of="speedup",
        title="AD-PSGD: speed-up of 16 nodes over one, where one is slower",
        rows="method",
        columns="slowness",
        paper={
            SHOWN["adpsgd"]: {"1": "14.8", "2": "14.1", "10": "13.6", "100": "13.6"},
            SHOWN["adpsgd, overlapped"]: {"1": "14.8", "2": "14.1", "10": "13.6", "100": "13.6"},
            SHOWN["all_reduce"]: {"1": "12.3", "2": "6.9", "10": "1.6", "100": "0.18"},
        },
        source="16 GPUs, recalled; how long its messages take beside a gradient is not known, here 0.2",
    ),
    changes=(
        "All-reduce in buckets was added beside; with five buckets its latency cost more than overlap hides (speed-up "
        "7.4 without a slow node), and after that had been seen there were two.",
        "AD-PSGD that averages while it computes was added beside, once there was such a method.",
    ),
    notes=paragraph("""
        Messages take a fifth of a gradient here, so ours are lower. Without a slow node AD-PSGD
        has 13.5 against 14.8, and all-reduce, which waits for the slowest of 16 too, 8.6 against 12.3. AD-PSGD that
        averages while it computes has 16.0.
    """),
)


def closed_network(workers: int, compute: float, transfer: float) -> float:
    """Speed-up over one worker of `workers` that compute, send a gradient and receive weights, by
    mean value analysis.

    A message spends R = s (1 + q) in the card, of which it alone takes s, where q others are on
    average with one worker less; X = n / (t_c + 2 R) and q = X R. Exact for links that are shared
    fairly, whatever the distributions.

    Args:
        compute: seconds of a gradient.
        transfer: seconds of a message that is alone on its way.

    Source: Reiser & Lavenberg (1980), Journal of the ACM 27; Baskett, Chandy, Muntz, Palacios
    (1975) on which networks.
    """
    others = rate = 0.0
    for count in range(1, workers + 1):
        response = transfer * (1 + others)
        rate = count / (compute + 2 * response)
        others = rate * response
    return rate * compute


def decide_d2(results: StudyResults) -> NumberArrays:
    speedup = 0.010 / per_sample(results["many"])
    served, gossip = at(speedup, method="async_ps"), at(speedup, method="adpsgd")
    workers = served["workers"]
    theory = xr.DataArray(
        [closed_network(int(count), 0.010, 0.0003) for count in workers],
        coords={"workers": workers},
    )
    return {
        "served": at(served, workers=64) * 0.03,
        "queue": abs(served / theory - 1).max("workers"),
        "gossip": (gossip / workers).min("workers"),
        "growth": at(served, workers=64) / at(served, workers=32),
        "served_32": at(served, workers=32),
        "served_64": at(served, workers=64),
        "gossip_64": at(gossip, workers=64),
        "speedup": stack_arrays(server=served, **{"AD-PSGD": gossip}),
        "closed": stack_arrays(server=theory),
    }


D2 = Claim(
    id="D2",
    paper=PAPER,
    question="Does a server's card saturate near 33 workers where AD-PSGD is still linear at 64?",
    says=paragraph("""
        a parameter server becomes the bottleneck as workers are added, where a decentralised method's speed-up
        stays linear.
    """),
    basis="clock",
    mark="notes",
    setting=paragraph("""
        clock alone, gamma times t_c of 10 ms with a coefficient of variation of 0.1, N beta = 0.03 t_c (models of
        250 kB, 833 MB/s), no latency; 4 to 64 workers, AD-PSGD on a ring; 10 virtual seconds, 10 seeds. The server's
        card carries at most 1 / (N beta) = 33.3 gradients per t_c. Below that messages queue for it: the closed
        network of P workers and two fairly shared links has a speed-up of 26.2 at 32 workers and 32.3 at 64
        [derived].
    """),
    studies={
        "many": Study(
            config={
                "cluster": {
                    "workers": 16,
                    "compute": {"law": "gamma", "mean": 0.01, "cv": 0.1},
                    "network": {"bandwidth": 833333330.0, "latency": 0.0, "message_bytes": 250000},
                },
                "task": {"model": "timing", "batch": 1},
                "stop": {"time": 10.0},
                "sweep": {
                    "cluster.workers": [4, 8, 16, 32, 64],
                    "method": {
                        "async_ps": {"algorithm.name": "async_ps"},
                        "adpsgd": {"algorithm.name": "adpsgd"},
                    },
                    "seed": list(range(5, 15)),
                },
            },
            smoke={"stop.time": 0.15, "sweep.cluster.workers": [32, 64], "sweep.seed": [5, 6]},
        )
    },
    decide=decide_d2,
    criteria=(
        Criterion(
            "served",
            "asynchronous server at 64 workers: gradients per second over those that its card can carry",
            at_least=0.9,
            at_most=1.02,
        ),
        Criterion(
            "queue",
            "asynchronous server: speed-up over that of the closed network, furthest from 1 from 4 to 64 workers",
            at_most=0.03,
        ),
        Criterion("gossip", "AD-PSGD: speed-up per worker, least from 4 to 64", at_least=0.9),
    ),
    beside={
        "growth": "asynchronous server: speed-up at 64 workers over that at 32 (closed network: 1.231)",
        "served_32": "asynchronous server: speed-up at 32 workers (closed network: 26.2)",
        "served_64": "asynchronous server: speed-up at 64 workers (closed network: 32.3)",
        "gossip_64": "AD-PSGD: speed-up at 64 workers",
    },
    figure=Picture(
        of="speedup",
        x="workers",
        y="speed-up over one worker",
        lines="of",
        theory="closed",
        log_x=True,
        log_y=True,
    ),
    headline="share of the card's limit",
    did=paragraph("""
        An asynchronous server and AD-PSGD with 4 to 64 workers on the clock, a message taking 3 % of a gradient,
        against the theory of closed queueing networks.
    """),
    changes=(
        "That the server gains at most 1.2 from 32 to 64 workers was asked for, from bounds that know no queue; 1.223 "
        "was found, and the closed network says 1.231. It is shown beside now.",
        "The criteria that took its place were held against the same 5 seeds; 10 that had not been seen decide now.",
    ),
)


CARDS = {"bandwidth": 1.25e8, "latency": 0.0001, "message_bytes": 250000}
SLOW_NODE: dict[str, Any] = {
    "cluster": {
        "workers": 16,
        "compute": {"law": "gamma", "mean": 0.01, "cv": 0.1},
        "slowdowns": [{"worker": 0, "factor": 10}],
    },
    "task": {"model": "lenet5", "dataset": "mnist", "batch": 32},
    "learning": {"optimizer": "sgd"},
    "stop": {"epochs": 6},
    "evaluate": {"every_epochs": 6},
}
SMALL = {"task.model": "logistic", "task.dataset": "digits", "task.batch": 8, "stop.epochs": 0.3}


def decide_d3(results: StudyResults) -> NumberArrays:
    accuracy = final(results["reported"], "accuracy")
    time = final(results["reported"], "time_to")
    return {
        "lost": at(accuracy, method="all_reduce") - at(accuracy, method="adpsgd"),
        "time_ratio": at(time, method="adpsgd") / at(time, method="all_reduce"),
        "seconds": at(time, method="adpsgd"),
        "time": relabel(time, "method", SHOWN),
    }


D3 = Claim(
    id="D3",
    paper=PAPER,
    headline="accuracy, all-reduce minus AD-PSGD",
    did="LeNet-5, MNIST, 16 nodes, one of them ten times slower: accuracy at equal epochs, and time to 98 %; 5 seeds.",
    question=paragraph("""
        With one node ten times slower, does AD-PSGD reach 98 % in a third of all-reduce's time, and lose nothing at
        equal epochs?
    """),
    says=paragraph("""
        AD-PSGD is as accurate as AllReduce at equal epochs, and much quicker in time where one worker is slow.
    """),
    basis="network",
    mark="notes",
    setting=paragraph("""
        LeNet-5, MNIST, 16 nodes, one of them 10 times slower, free network, batch 32 each, 6 epochs, each method at
        its own best learning rate of one grid, chosen on 5 seeds in as many epochs; 5 others report.
    """),
    studies={
        "tuning": Study(
            config={
                **SLOW_NODE,
                "name": "claims-adpsgd-tuning",
                "sweep": {
                    "method": METHODS,
                    "learning.lr": [0.1, 0.2, 0.4, 0.8],
                    "seed": [100, 101, 102, 103, 104],
                },
            },
            smoke={**SMALL, "sweep.learning.lr": [0.1, 0.4], "sweep.seed": [100, 101]},
            paper={"stop.epochs": 30},
        ),
        "reported": Study(
            config={
                **SLOW_NODE,
                "name": "claims-adpsgd",
                "evaluate": {"every_epochs": 0.5, "target_accuracy": 0.98},
                "sweep": {"method": METHODS, "seeds": 5},
            },
            smoke={
                **SMALL,
                "evaluate.every_epochs": 0.1,
                "evaluate.target_accuracy": 0.3,
                "sweep.seeds": 2,
            },
            paper={"stop.epochs": 30},
            tuned=Tuning(on="tuning", by="accuracy"),
        ),
    },
    decide=decide_d3,
    criteria=(
        Criterion("lost", "accuracy of all-reduce minus that of AD-PSGD", at_most=0.005),
        Criterion("time_ratio", "time to 98 %, AD-PSGD over all-reduce", at_most=0.333),
    ),
    beside={"seconds": "seconds of AD-PSGD to 98 %"},
    figure=Picture(of="time", x="method", y="virtual time to 98 % (s)"),
    changes=(
        "2 seeds chose the rates in 3 epochs: at first 0.2 for both, and the claim held; when it was run again, 0.4 "
        "for AD-PSGD by 0.1 points over 0.2, at which 2 of 5 seeds diverged. 5 seeds choose now, in as many epochs.",
    ),
)


FOUR_BUCKETS = {"overlapped": {"algorithm": {"name": "all_reduce", "bucket_bytes": 62500}}}


def decide_d4(results: StudyResults) -> NumberArrays:
    samples = final(results["learnt"], "samples_to", 0.16)
    time = final(results["learnt"], "time_to", 0.16)
    return {
        "samples": at(samples, method="adpsgd") / at(samples, method="all_reduce"),
        "time": at(time, method="all_reduce") / at(time, method="adpsgd"),
        "overlapped": at(time, method="overlapped") / at(time, method="adpsgd"),
        "loss": relabel(
            at(curve(results["learnt"], "test_loss", "updates"), method=list(METHODS)),
            "method",
            SHOWN,
        ),
    }


D4 = Claim(
    id="D4",
    paper=PAPER,
    headline="samples to a loss, AD-PSGD over all-reduce",
    did="A quadratic, 16 nodes: samples to the same loss, 5 seeds.",
    question="Does AD-PSGD learn as much from a sample as all-reduce does?",
    says=paragraph("""
        AD-PSGD converges at the rate of parallel SGD in iterations, so that what it gains in time is no loss in
        samples.
    """),
    basis="quadratic",
    mark="notes",
    setting=paragraph("""
        a quadratic of 20 coordinates, condition 20, noise 0.5, learning rate 0.05 for both; 16 nodes, gamma times
        t_c of 10 ms with a coefficient of variation of 0.1, N beta = t_c, AD-PSGD on a ring, all-reduce whole or in
        four buckets; samples until the mean model has a loss of 0.16, a twentieth of that at the start. An average
        conserves the sum of the models and a step moves it by lr g, so that the mean model moves as all-reduce's does.
        5 seeds.
    """),
    studies={
        "learnt": Study(
            config={
                "cluster": {
                    "workers": 16,
                    "compute": {"law": "gamma", "mean": 0.01, "cv": 0.1},
                    "network": {"bandwidth": 2.5e7, "latency": 0.0, "message_bytes": 250000},
                },
                "task": {"model": "quadratic", "dim": 20, "condition": 20, "noise": 0.5},
                "learning": {"lr": 0.05},
                "stop": {"updates": 500},
                "evaluate": {"every_updates": 5},
                "sweep": {"method": {**METHODS, **FOUR_BUCKETS}, "seeds": 5},
            },
            smoke={"cluster.workers": 4, "sweep.seeds": 2},
        )
    },
    decide=decide_d4,
    criteria=(
        Criterion(
            "samples", "samples to the loss, AD-PSGD over all-reduce", at_least=0.9, at_most=1.1
        ),
    ),
    beside={
        "time": "virtual time to the loss, all-reduce over AD-PSGD",
        "overlapped": "the same, all-reduce in four buckets that overlap with the gradient",
    },
    figure=Picture(
        of="loss",
        x="updates",
        y="loss of the mean model",
        lines="method",
        xlabel="updates (16 samples each)",
        log_y=True,
    ),
    notes=paragraph("""
        In time all-reduce takes 2.0 times as long to the loss, and 1.6 times in four buckets that overlap with the
        gradient.
    """),
)


SLOWNESS = {
    str(factor): {"cluster.slowdowns": [{"worker": 0, "factor": factor}]}
    for factor in (1, 2, 10, 100)
}
TRAINED = {**METHODS, **OVERLAPPED}
REPORTED_SLOWNESS: dict[str, Any] = {
    **SLOW_NODE,
    "cluster": {**SLOW_NODE["cluster"], "network": CARDS},
    "evaluate": {"every_epochs": 0.25, "target_accuracy": 0.98},
}


def decide_d5(results: StudyResults) -> NumberArrays:
    accuracy, time = final(results["reported"], "accuracy"), final(results["reported"], "time_to")
    known, steps = time.where(np.isfinite(time)), final(results["reported"], "updates_to")

    def slower(times: xr.DataArray, method: str) -> xr.DataArray:
        own = at(times, method=method)
        return at(own, slowness="100") / at(own, slowness="1")

    further, further_time = (final(results["further"], value) for value in ("accuracy", "time_to"))
    return {
        "keeps": slower(further_time.where(np.isfinite(further_time)), "adpsgd") <= 1.25,
        "all_reduce": slower(known, "all_reduce"),
        "keeps_first": slower(known, "adpsgd"),
        "ratio_10": at(known, method="overlapped", slowness="10")
        / at(known, method="adpsgd", slowness="10"),
        "lost": at(further, method="all_reduce", slowness="100")
        - at(further, method="adpsgd", slowness="100"),
        "lost_first": at(accuracy, method="all_reduce", slowness="100")
        - at(accuracy, method="adpsgd", slowness="100"),
        "learns": at(accuracy, method="all_reduce", slowness="1"),
        "ratio_1": at(known, method="overlapped", slowness="1")
        / at(known, method="adpsgd", slowness="1"),
        "hidden": at(known, method="adpsgd, overlapped", slowness="1")
        / at(known, method="adpsgd", slowness="1"),
        "steps": at(steps, method="adpsgd", slowness="100")
        / at(steps, method="all_reduce", slowness="100"),
        "lost_overlapped": at(accuracy, method="all_reduce", slowness="1")
        - at(accuracy, method="adpsgd, overlapped", slowness="1"),
        "time": relabel(time, "method", SHOWN),
    }


D5 = Claim(
    id="D5",
    paper=PAPER,
    headline="seeds in which AD-PSGD takes at most 1.25 times as long",
    did=paragraph("""
        LeNet-5, MNIST, 16 nodes, one 1 to 100 times slower, each at its best rate; 5 to 30 seeds.
    """),
    question="Is AD-PSGD's time to an accuracy nearly the same however slow one node of sixteen is?",
    says=paragraph("""
        one slow worker costs AD-PSGD little time to the same accuracy, however slow it is, and AllReduce all of it;
        AD-PSGD's accuracy is AllReduce's.
    """),
    basis="network",
    mark="notes",
    setting=paragraph("""
        LeNet-5, MNIST, batch 32 on each of 16 nodes of a ring, gamma times (cv 0.1) and the network of D1 (N beta = 0.2
        t_c), one node 1, 2, 10 and 100 times slower, 6 epochs, plain SGD. Each method at its own best learning rate,
        chosen on 5 seeds at 10 times slower in as many epochs; 5 others report, and 30 more of AD-PSGD at 1 and 100
        times and of all-reduce at 100, which decide the first criterion and that on accuracy: the first by a share of
        seeds, that is whether the median ratio is at most 1.25, since a time that is never reached has no mean.
        Overlapped are all-reduce in buckets during the backward pass, and AD-PSGD that averages while it computes.
    """),
    studies={
        "tuning": Study(
            config={
                **SLOW_NODE,
                "name": "claims-slowness-tuning",
                "cluster": {**SLOW_NODE["cluster"], "network": CARDS},
                "sweep": {
                    "method": TRAINED,
                    "learning.lr": [0.05, 0.1, 0.2, 0.4, 0.8],
                    "seed": [100, 101, 102, 103, 104],
                },
            },
            smoke={**SMALL, "sweep.learning.lr": [0.1, 0.4], "sweep.seed": [100, 101]},
            paper={"stop.epochs": 30},
        ),
        "reported": Study(
            config={
                **REPORTED_SLOWNESS,
                "name": "claims-slowness",
                "sweep": {
                    "method": {
                        name: {**keys, "sweep": {"slowness": SLOWNESS}}
                        for name, keys in TRAINED.items()
                    },
                    "seeds": 5,
                },
            },
            smoke={
                **SMALL,
                "evaluate.every_epochs": 0.1,
                "evaluate.target_accuracy": 0.3,
                "sweep.seeds": 2,
            },
            paper={"stop.epochs": 30},
            tuned=Tuning(on="tuning", by="accuracy"),
        ),
        "further": Study(
            config={
                **REPORTED_SLOWNESS,
                "name": "claims-slowness-further",
                "sweep": {
                    "method": {
                        name: {
                            **TRAINED[name],
                            "sweep": {"slowness": {factor: SLOWNESS[factor] for factor in factors}},
                        }
                        for name, factors in (("adpsgd", ("1", "100")), ("all_reduce", ("100",)))
                    },
                    "seed": list(range(35, 65)),
                },
            },
            smoke={
                **SMALL,
                "evaluate.every_epochs": 0.1,
                "evaluate.target_accuracy": 0.3,
                "sweep.seed": [35, 36],
            },
            paper={"stop.epochs": 30},
            tuned=Tuning(on="tuning", by="accuracy"),
        ),
    },
    decide=decide_d5,
    criteria=(
        Criterion(
            "keeps",
            "seeds in which AD-PSGD's time to 98 % at 100 times slower is at most 1.25 times that without a slow node",
            at_least=0.5,
        ),
        Criterion(
            "all_reduce",
            "all-reduce: time to 98 % at 100 times slower over that without a slow node",
            at_least=20.0,
        ),
        Criterion(
            "ratio_10",
            "time to 98 % at 10 times slower, all-reduce in overlapped buckets over AD-PSGD",
            at_least=3.0,
        ),
        Criterion("lost", "accuracy at 100 times slower, all-reduce minus AD-PSGD", at_most=0.005),
        Criterion(
            "learns", "accuracy of all-reduce, which has to learn", at_least=0.98, control=True
        ),
    ),
    beside={
        "keeps_first": "AD-PSGD: the ratio of times in the first 5 seeds",
        "lost_first": "accuracy at 100 times slower, all-reduce minus AD-PSGD, first 5 seeds",
        "ratio_1": "time to 98 % without a slow node, all-reduce in overlapped buckets over AD-PSGD",
        "hidden": "the same, AD-PSGD that averages while it computes over AD-PSGD",
        "steps": "updates to 98 % at 100 times slower, AD-PSGD over all-reduce",
        "lost_overlapped": "accuracy without a slow node, all-reduce minus AD-PSGD that averages while it computes",
    },
    figure=Picture(
        of="time",
        x="slowness",
        y="virtual time to 98 % (s)",
        lines="method",
        xlabel="how many times slower one node of 16 is",
        log_x=True,
        log_y=True,
    ),
    table=ClaimTable(
        of="time",
        title="AD-PSGD: seconds to a test accuracy of 98 %, where one node of 16 is slower",
        rows="method",
        columns="slowness",
    ),
    notes=paragraph("""
        AD-PSGD reaches 98 % in all of 60 further runs at the rate of 0.2 that five seeds choose. Where it averages
        while it computes they choose 0.4, and 5 of 20 runs diverge, four of them before they are at 98 %. Without a
        slow node all-reduce in overlapped buckets takes a sixth longer than AD-PSGD (1.17, 0.95 to 1.40).
    """),
    changes=(
        "A time that was never reached made a ratio of 0; it leaves the ratio without a value now.",
        "The first criterion asked that the mean ratio be at most 1.25; one seed of 5 never reached 98 % without a "
        "slow node, so that no number of seeds could have decided it. It asks for a share of seeds now, and 30 "
        "seeds that had not been seen decide it alone.",
        "Accuracy was compared in the first 5 seeds (-0.0013, -0.0048 to 0.0021, held), and not in the 30, in 5 of "
        "which AD-PSGD never gets to 98 % at 100 times slower. These decided it then, with all-reduce in the same "
        "seeds.",
        "By them accuracy failed (0.168, 0.029 to 0.307) and the rest held: two seeds had chosen a rate of 0.4 for "
        "AD-PSGD, at which it diverges in 12 of 60 runs, by 0.04 points over 0.2. 5 seeds choose now, as in D3, and "
        "30 that had not been seen decide both criteria.",
    ),
)


CLAIMS = (D1, D2, D3, D4, D5)
