"""What Assran, Loizou, Ballas, Rabbat (2019) claim."""

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
    ratio_of_means,
)
from laggard.experiments.claims.exhibits import ClaimTable, Picture
from laggard.experiments.claims.statistics import (
    at,
    between,
    curve,
    final,
    last,
    mean,
    per_update,
    relabel,
    slope,
    stack_arrays,
)

PAPER = Paper(
    key="assran2019",
    authors="Assran, Loizou, Ballas, Rabbat",
    year=2019,
    title="Stochastic gradient push for distributed deep learning",
    where="ICML 2019, arXiv 1811.10792",
)

METHODS = {"sgp": {"algorithm.name": "sgp"}, "all_reduce": {"algorithm.name": "all_reduce"}}
TIMED = {
    "sgp": {"algorithm.name": "sgp"},
    "ring": {"algorithm.name": "all_reduce", "algorithm.collective": "ring"},
    "tree": {"algorithm.name": "all_reduce", "algorithm.collective": "tree"},
}
OVERLAPPED = "ring, overlapped"
SHOWN = {"sgp": "SGP", "dpsgd": "D-PSGD"}
"""What the figure and the table of times call methods."""
TIMING = {
    "task": {"model": "timing"},
    "stop": {"updates": 200},
    "sweep": {
        "cluster.workers": [4, 8, 16, 32],
        "method": {**TIMED, OVERLAPPED: {**TIMED["ring"], "algorithm.bucket_bytes": 50000}},
    },
}
FEW = {"stop.updates": 5, "sweep.cluster.workers": [4, 16, 32]}


def network(
    compute: float, bandwidth: float, latency: float, message_bytes: int
) -> dict[str, object]:
    """A cluster of constant times in which every node has a card of its own."""
    return {
        "workers": 16,
        "compute": {"law": "constant", "mean": compute},
        "network": {"bandwidth": bandwidth, "latency": latency, "message_bytes": message_bytes},
    }


def decide_c1(results: StudyResults) -> NumberArrays:
    slow, fast, reported = (per_update(results[name]) for name in ("slow", "fast", "resnet"))

    def over_sgp(seconds: xr.DataArray, method: str, workers: int) -> xr.DataArray:
        return at(seconds, method=method, workers=workers) / at(
            seconds, method="sgp", workers=workers
        )

    def growth(method: str) -> xr.DataArray:
        return at(slow, method=method, workers=32) / at(slow, method=method, workers=4)

    return {
        "slow_ring": over_sgp(slow, "ring", 16),
        "slow_tree": over_sgp(slow, "tree", 16),
        "fast_ring": over_sgp(fast, "ring", 16),
        "fast_tree": over_sgp(fast, "tree", 16),
        "slow_overlapped": over_sgp(slow, OVERLAPPED, 16),
        "resnet_overlapped": over_sgp(reported, OVERLAPPED, 32),
        "growth_sgp": growth("sgp"),
        "growth_ring": growth("ring"),
        "growth_tree": growth("tree"),
        "resnet_tree": over_sgp(reported, "tree", 32),
        "resnet_ring": over_sgp(reported, "ring", 32),
        "resnet_dpsgd": over_sgp(reported, "dpsgd", 32),
        "seconds_sgp": at(reported, method="sgp", workers=32),
        "seconds_tree": at(reported, method="tree", workers=32),
        "iteration": relabel(reported, "method", SHOWN),
    }


C1 = Claim(
    id="C1",
    paper=PAPER,
    question=paragraph("""
        Does the time of an iteration of SGP stay the same as nodes are added to a slow network, while that of
        all-reduce grows?
    """),
    says=paragraph("""
        time per iteration of SGP does not grow with nodes on slow Ethernet, while that of AllReduce does; on a fast
        network the advantage vanishes (from notes). 32 nodes on 10 Gb/s: 1.6 hours against more than 5.
    """),
    basis="clock",
    mark="read",
    setting=paragraph("""
        clock alone, 4 to 32 nodes, constant compute times t_c, full-duplex cards, all-reduce by a ring and by a tree,
        sent when the whole gradient is there. N beta = 2 t_c on the slow network, 100 times the bandwidth on the fast
        one; at 16 nodes all-reduce then takes 1.583 times SGP's t_c + N beta by a ring, 5.67 times by a tree, and
        1.018 and 1.137 on the fast one [derived]. Beside, a ring that sends buckets during the backward pass, and the
        paper's own network: ResNet-50, 102 MB, 0.303 s a gradient, 10 Gb/s, latency 50 us.
    """),
    studies={
        "slow": Study(config={**TIMING, "cluster": network(0.01, 1.25e7, 0.0, 250000)}, smoke=FEW),
        "fast": Study(config={**TIMING, "cluster": network(0.01, 1.25e9, 0.0, 250000)}, smoke=FEW),
        "resnet": Study(
            config={
                **TIMING,
                "cluster": network(0.303, 1.25e9, 5e-5, 102228128),
                "sweep": {
                    "cluster.workers": [4, 8, 16, 32],
                    "method": {
                        **TIMED,
                        OVERLAPPED: {**TIMED["ring"], "algorithm.bucket_bytes": 26214400},
                        "1-OSGP": {"algorithm.name": "sgp", "algorithm.overlap": 1},
                        "dpsgd": {
                            "algorithm.name": "dpsgd",
                            "algorithm.order": "adapt_then_combine",
                        },
                    },
                },
            },
            smoke=FEW,
        ),
    },
    decide=decide_c1,
    criteria=(
        Criterion("slow_ring", "ring all-reduce over SGP, 16 nodes, slow network", at_least=1.5),
        Criterion("slow_tree", "tree all-reduce over SGP, 16 nodes, slow network", at_least=1.5),
        Criterion(
            "fast_ring", "ring all-reduce over SGP, 16 nodes, 100 times the bandwidth", at_most=1.1
        ),
        Criterion("growth_sgp", "SGP, 32 nodes over 4 nodes, slow network", at_most=1.02),
        Criterion(
            "growth_ring", "ring all-reduce, 32 nodes over 4 nodes, slow network", at_least=1.1
        ),
        Criterion(
            "growth_tree", "tree all-reduce, 32 nodes over 4 nodes, slow network", at_least=1.1
        ),
    ),
    beside={
        "fast_tree": "tree all-reduce over SGP, 16 nodes, 100 times the bandwidth (closed form 1.137)",
        "slow_overlapped": "ring in buckets that overlap with the backward pass, over SGP, 16 nodes, slow network",
        "resnet_tree": "ResNet-50 on 10 Gb/s, 32 nodes: tree all-reduce over SGP (paper: about 3)",
        "resnet_ring": "the same, ring all-reduce over SGP (paper: about 3)",
        "resnet_overlapped": "the same, ring in buckets of 25 MiB that overlap with the backward pass, over SGP",
        "resnet_dpsgd": "the same, D-PSGD over SGP",
        "seconds_sgp": "the same, seconds an iteration of SGP (paper: about 0.435, recalled)",
        "seconds_tree": "the same, seconds an iteration of tree all-reduce (paper: about 1.3, recalled)",
    },
    figure=Picture(
        of="iteration",
        x="workers",
        y="seconds an iteration, ResNet-50 on 10 Gb/s",
        lines="method",
        xlabel="nodes",
        log_x=True,
    ),
    table=ClaimTable(
        of="iteration",
        title="SGP: seconds an iteration, ResNet-50 on 10 Gb/s Ethernet",
        rows="method",
        columns="workers",
        paper={
            "SGP": {4: "0.377", 8: "0.377", 16: "0.409", 32: "0.435"},
            "tree": {4: "0.703", 8: "0.895", 16: "1.087", 32: "1.304"},
            "D-PSGD": {4: "0.63", 8: "0.62", 16: "0.64", 32: "0.67"},
        },
        source="8 GPUs a node, recalled; its AllReduce stands beside the tree, which it resembles",
    ),
    notes=paragraph("""
        On the paper's network a tree takes 2.9 times as long, a ring 1.2, overlapped 0.91. So the advantage depends on
        the collective, and an overlapped ring is quicker than SGP without overlap. On the fast network a tree still
        takes a seventh longer.
    """),
    headline="ring over SGP, slow network",
    did=paragraph("""
        Iterations of SGP and of ring and tree all-reduce, 4 to 32 nodes on a slow, a fast and the paper's network.
    """),
    changes=(
        "The claim was run once before its text was committed; two bars were added with it. Exact numbers, no seeds.",
        "The ring was the only collective; the tree, which fits the paper's own times, and the paper's network were "
        "added, with the same bars; 200 iterations instead of 50.",
        "The ring in buckets was added beside, once there was one.",
    ),
)


TRAINING = {
    "cluster": {"workers": 16, "compute": {"law": "gamma", "mean": 0.01, "cv": 0.1}},
    "task": {"model": "lenet5", "dataset": "mnist", "batch": 32},
    "learning": {"optimizer": "sgd"},
    "stop": {"epochs": 2},
    "evaluate": {"every_epochs": 2},
}
SMALL = {"task.model": "logistic", "task.dataset": "digits", "task.batch": 8, "stop.epochs": 0.3}


def decide_c2(results: StudyResults) -> NumberArrays:
    accuracy = final(results["reported"], "accuracy")
    return {
        "lost": at(accuracy, method="all_reduce") - at(accuracy, method="sgp"),
        "learns": at(accuracy, method="all_reduce"),
        "accuracy": relabel(accuracy, "method", {"sgp": "SGP", "all_reduce": "all-reduce"}),
    }


C2 = Claim(
    id="C2",
    paper=PAPER,
    headline="accuracy, all-reduce minus SGP",
    did="LeNet-5, MNIST, 16 nodes, 4 epochs, each at its own best rate, chosen on 2 seeds; 5 others report.",
    question="Is the accuracy of SGP at 16 nodes within half a point of all-reduce's?",
    says=paragraph("""
        SGP's accuracy is within 1.2 points of AllReduce's at 32 nodes (ResNet-50, ImageNet); the criterion asks
        half a point at 16 nodes.
    """),
    basis="network",
    mark="read",
    setting=paragraph("""
        LeNet-5, MNIST, 16 nodes, batch 32 each, 4 epochs, each method at its own best learning rate of one grid,
        chosen on 2 seeds, 5 others report.
    """),
    studies={
        "tuning": Study(
            config={
                **TRAINING,
                "name": "claims-sgp-tuning",
                "sweep": {
                    "method": METHODS,
                    "learning.lr": [0.05, 0.1, 0.2, 0.4, 0.8],
                    "seed": [100, 101],
                },
            },
            smoke={**SMALL, "sweep.learning.lr": [0.1, 0.4]},
            paper={"stop.epochs": 15},
        ),
        "reported": Study(
            config={
                **TRAINING,
                "name": "claims-sgp",
                "stop": {"epochs": 4},
                "sweep": {"method": METHODS, "seeds": 5},
            },
            smoke={**SMALL, "sweep.seeds": 2},
            paper={"stop.epochs": 30},
            tuned=Tuning(on="tuning", by="accuracy"),
        ),
    },
    decide=decide_c2,
    criteria=(
        Criterion("lost", "accuracy of all-reduce minus that of SGP", at_most=0.005),
        Criterion(
            "learns", "accuracy of all-reduce, which has to learn", at_least=0.95, control=True
        ),
    ),
    figure=Picture(of="accuracy", x="method", y="final test accuracy", bar=("all-reduce", -0.005)),
    changes=("That all-reduce learns was added as a control.",),
)


HELD = {
    "cluster": {"workers": 16, "compute": {"law": "constant", "mean": 0.01}},
    "algorithm": {"name": "sgp"},
    "task": {"model": "quadratic", "dim": 20, "condition": 20, "noise": 1.0},
    "stop": {"time": 5.9},
    "evaluate": {"every_seconds": 0.1},
}


def decide_c3(results: StudyResults) -> NumberArrays:
    spread = last(curve(results["held"], "consensus"), "time", 0.4)
    falling = curve(results["stepped"], "consensus")
    before = mean(between(falling, "time", 1.5, 2.9), "time")
    after = mean(between(falling, "time", 4.5, 5.9), "time")
    return {
        "slope": slope(spread, "lr"),
        "fall": before / after,
        "spread_at_0.1": at(spread, lr=0.1),
        "spread_at_0.01": at(spread, lr=0.01),
        "spread": spread,
    }


C3 = Claim(
    id="C3",
    paper=PAPER,
    headline="slope of log spread against log rate",
    did="A quadratic, 16 nodes, one peer, rates from 0.003 to 0.1, 5 seeds.",
    question="Is the spread of the nodes' models under push-sum proportional to the learning rate?",
    says=paragraph("""
        the spread of the nodes' models is proportional to the learning rate, and falls about ten times when that is
        divided by ten.
    """),
    basis="quadratic",
    mark="notes",
    setting=paragraph("""
        SGP on 16 nodes, constant times of 10 ms, free network, one peer; a quadratic of 20 coordinates, condition
        20, noise 1; spread is the root mean square distance of nodes from their mean, averaged over the last 40 %
        of 590 steps. Learning rates 0.003 to 0.1 held constant, and one of 0.1 that is divided by ten after 300
        steps. 5 seeds.
    """),
    studies={
        "held": Study(
            config={**HELD, "sweep": {"learning.lr": [0.003, 0.01, 0.03, 0.1], "seeds": 5}},
            smoke={
                "cluster.workers": 4,
                "cluster.compute.mean": 0.05,
                "sweep.learning.lr": [0.01, 0.1],
                "sweep.seeds": 2,
            },
        ),
        "stepped": Study(
            config={
                **HELD,
                "learning": {
                    "lr": 0.1,
                    "schedule": {"name": "step", "every": 300, "factor": 0.1, "unit": "updates"},
                },
                "sweep": {"seeds": 5},
            },
            smoke={
                "cluster.workers": 4,
                "cluster.compute.mean": 0.05,
                "learning.schedule.every": 60,
                "sweep.seeds": 2,
            },
        ),
    },
    decide=decide_c3,
    criteria=(
        Criterion("slope", "slope of log spread against log lr", at_least=0.9, at_most=1.1),
        Criterion(
            "fall",
            "spread before the learning rate is divided by ten over spread after",
            at_least=7.0,
            at_most=14.0,
        ),
    ),
    beside={"spread_at_0.1": "spread at lr 0.1", "spread_at_0.01": "spread at lr 0.01"},
    figure=Picture(
        of="spread",
        x="lr",
        y="root mean square distance from the mean model",
        xlabel="learning rate",
        log_x=True,
        log_y=True,
    ),
)


def decide_c4(results: StudyResults) -> NumberArrays:
    iteration = per_update(results["overlap"])
    transfer = 0.0001 + 250000 / iteration["bandwidth"]
    bound = (transfer + 0.010 + abs(transfer - 0.010)) / 2
    plain, overlapped = at(iteration, overlap=0), at(iteration, overlap=1)
    return {
        "overlapped": abs(overlapped / bound - 1).max("bandwidth"),
        "gain": at(plain, bandwidth=2.5e7) / at(overlapped, bandwidth=2.5e7),
        "plain": abs(plain / (0.010 + transfer) - 1).max("bandwidth"),
        "iteration": stack_arrays(SGP=plain, OSGP=overlapped),
        "bound": stack_arrays(OSGP=bound),
    }


C4 = Claim(
    id="C4",
    paper=PAPER,
    headline="1-OSGP's iteration, off its bound",
    did="The clock alone, 16 nodes, messages of 0.1 to 4 gradients' time; with and without overlap.",
    question=paragraph("""
        Does overlapping push-sum with the next gradient hide the network until a message takes longer than a
        gradient?
    """),
    says="overlap hides communication behind computation.",
    basis="clock",
    mark="notes",
    setting=paragraph("""
        clock alone, 16 nodes, constant compute times t_c of 10 ms, models of 250 kB, latency 0.1 ms, one peer;
        messages of N beta = 0.1 to 4 t_c. With one exchange outstanding an iteration takes max(t_c, alpha + N
        beta), and without overlap t_c + alpha + N beta. 400 iterations, so that the first, which has nothing to
        wait for, counts a 400th. Nothing is random: one run a setting.
    """),
    studies={
        "overlap": Study(
            config={
                "cluster": {
                    "workers": 16,
                    "compute": {"law": "constant", "mean": 0.01},
                    "network": {"latency": 0.0001, "message_bytes": 250000},
                },
                "algorithm": {"name": "sgp"},
                "task": {"model": "timing"},
                "stop": {"updates": 400},
                "sweep": {
                    "cluster.network.bandwidth": [2.5e8, 5e7, 2.5e7, 1.25e7, 6.25e6],
                    "algorithm.overlap": [0, 1],
                },
            },
            smoke={"stop.updates": 20, "sweep.cluster.network.bandwidth": [2.5e8, 2.5e7]},
        )
    },
    decide=decide_c4,
    criteria=(
        Criterion(
            "overlapped",
            "iteration of 1-OSGP over max(t_c, alpha + N beta), furthest from 1",
            at_most=0.02,
        ),
        Criterion("gain", "SGP over 1-OSGP at N beta = t_c (theory 1.99)", at_least=1.8),
    ),
    beside={"plain": "iteration of SGP over t_c + alpha + N beta, furthest from 1"},
    figure=Picture(
        of="iteration",
        x="bandwidth",
        y="virtual time per iteration (s)",
        lines="of",
        theory="bound",
        xlabel="bandwidth (bytes/s)",
        log_x=True,
        log_y=True,
    ),
)


VARIANTS = {
    "4": {"cluster.workers": 4},
    "16": {"cluster.workers": 16},
    "64": {"cluster.workers": 64},
    "64 dense": {"cluster.workers": 64, "cluster.network.topology": "complete"},
    **{
        f"{nodes} all-reduce": {"cluster.workers": nodes, "algorithm.name": "all_reduce"}
        for nodes in (4, 16, 64)
    },
}


def decide_c5(results: StudyResults) -> NumberArrays:
    accuracy = final(results["reported"], "accuracy")
    sparse = at(accuracy, variant="64")
    lost = at(accuracy, variant="4") - sparse
    lost_exactly = at(accuracy, variant="4 all-reduce") - at(accuracy, variant="64 all-reduce")
    return {
        "to_graph": lost - lost_exactly,
        "repaired": at(accuracy, variant="64 dense") - sparse,
        "learns": at(accuracy, variant="64"),
        "lost": lost,
        "lost_exactly": lost_exactly,
        "all_reduce": at(accuracy, variant="64 all-reduce") - sparse,
        "all_reduce_16": at(accuracy, variant="16 all-reduce") - at(accuracy, variant="16"),
        "accuracy": accuracy,
    }


C5 = Claim(
    id="C5",
    paper=PAPER,
    headline="accuracy lost from 4 to 64 nodes, more than all-reduce loses",
    did="LeNet-5, MNIST, 4 to 64 nodes, batch 32 each, 4 epochs, each variant at its own best rate; 10 seeds.",
    question=paragraph("""
        Does SGP lose accuracy as nodes are added to the 1-peer graph, and does a denser graph repair part of it?
    """),
    says=paragraph("""
        accuracy falls as nodes are added at equal epochs on the sparse 1-peer graph; a denser graph at the
        beginning or throughout repairs part of the loss.
    """),
    basis="network",
    mark="notes",
    setting=paragraph("""
        LeNet-5, MNIST, 4, 16 and 64 nodes, batch 32 each, 4 epochs (so that 64 nodes make 117 steps each), every
        variant at its own best learning rate of one grid, chosen on 5 seeds, 10 others report. Fewer steps of a larger
        total batch cost accuracy on any graph; what all-reduce loses with as many nodes is subtracted.
    """),
    studies={
        "tuning": Study(
            config={
                **TRAINING,
                "name": "claims-nodes-tuning",
                "algorithm": {"name": "sgp"},
                "stop": {"epochs": 4},
                "sweep": {
                    "variant": VARIANTS,
                    "learning.lr": [0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8],
                    "seed": [200, 201, 202, 203, 204],
                },
            },
            smoke={
                "task.model": "logistic",
                "task.dataset": "digits",
                "task.batch": 4,
                "stop.epochs": 0.2,
                "sweep.learning.lr": [0.1, 0.4],
                "sweep.seed": [200, 201],
            },
            paper={"stop.epochs": 15},
        ),
        "reported": Study(
            config={
                **TRAINING,
                "name": "claims-nodes",
                "algorithm": {"name": "sgp"},
                "stop": {"epochs": 4},
                "sweep": {"variant": VARIANTS, "seed": list(range(10, 20))},
            },
            smoke={
                "task.model": "logistic",
                "task.dataset": "digits",
                "task.batch": 4,
                "stop.epochs": 0.2,
                "sweep.seed": [10, 11],
            },
            paper={"stop.epochs": 30},
            tuned=Tuning(on="tuning", by="accuracy"),
        ),
    },
    decide=decide_c5,
    criteria=(
        Criterion(
            "to_graph",
            "accuracy of 4 nodes minus that of 64, 1 peer, minus the same of all-reduce",
            at_least=0.003,
        ),
        Criterion("repaired", "accuracy of 64 nodes, complete graph minus 1 peer", at_least=0.003),
        Criterion(
            "learns", "accuracy of 64 nodes, 1 peer, which has to learn", at_least=0.8, control=True
        ),
    ),
    beside={
        "lost": "accuracy of 4 nodes minus that of 64, 1 peer",
        "lost_exactly": "the same, all-reduce",
        "all_reduce": "accuracy of 64 nodes, all-reduce minus 1 peer",
        "all_reduce_16": "the same, 16 nodes",
    },
    figure=Picture(
        of="accuracy",
        x="variant",
        y="final test accuracy",
        xlabel="nodes, and the graph of averages",
    ),
    notes=paragraph("""
        From 4 to 64 nodes SGP loses 2.2 points, all-reduce 5.7. So the graph is not what costs accuracy. With 64 nodes
        exact averages take a rate of 0.1 and end at 0.93; models that differ a little from node to node and are
        averaged take 0.4 and get to 0.967 in as many steps. That is the accuracy of the mean of the nodes' models,
        which the average at the end may itself raise.
    """),
    changes=(
        "The grid began at 0.05, which was best for both exact averages; two lower rates, and 10 seeds instead of 5.",
        "What 4 nodes have more than 64 (0.0226, 0.0211 to 0.0242, bar 0.003) is lost by 16 times fewer steps too, on "
        "any graph; all-reduce is subtracted now. The complete graph was to be no worse than 1 peer (-0.14, -0.17 to "
        "-0.10, failed); it is to be 0.003 better, which what repairs nothing is not. 2 seeds chose rates in 2 "
        "epochs; 5 in 4 do now, and other seeds report.",
    ),
)


NODES = (4, 8, 16, 32)
LEARNT: dict[str, dict[str, object]] = {
    "all-reduce": {"algorithm.name": "all_reduce"},
    "D-PSGD": {"algorithm.name": "dpsgd", "algorithm.order": "adapt_then_combine"},
    "SGP": {"algorithm.name": "sgp"},
    "1-OSGP": {"algorithm.name": "sgp", "algorithm.overlap": 1},
}
"""What is learnt differs among these; a ring and a tree, overlapped or not, give all-reduce the
same weights.
"""
ALL_REDUCED = {
    "tree": {"algorithm.name": "all_reduce", "algorithm.collective": "tree"},
    "ring": {"algorithm.name": "all_reduce", "algorithm.collective": "ring"},
    OVERLAPPED: {
        "algorithm.name": "all_reduce",
        "algorithm.collective": "ring",
        "algorithm.bucket_bytes": 26214400,
    },
}
BANDWIDTHS = {"10 Gb/s": 1.25e9, "1 Gb/s": 1.25e8}
RESNET = network(0.303, 1.25e9, 5e-5, 102228128)
SCALED: dict[str, object] = {
    "cluster": RESNET,
    "task": {"model": "lenet5", "dataset": "mnist", "batch": 32},
    "learning": {
        "optimizer": "nesterov",
        "momentum": 0.9,
        "schedule": {"name": "warmup", "length": 0.5},
    },
    "stop": {"epochs": 6},
}


def scaled_settings() -> dict[str, dict[str, object]]:
    """Each method with each number of nodes, and SGP with exchanges of two and four gradients on 16
    with slow cards.
    """
    settings = {
        f"{name}, {nodes} nodes": {"cluster.workers": nodes, **keys}
        for name, keys in LEARNT.items()
        for nodes in NODES
    }
    for overlap in (2, 4):
        settings[f"{overlap}-OSGP, 16 nodes"] = {
            **LEARNT["SGP"],
            "cluster.workers": 16,
            "cluster.network.bandwidth": BANDWIDTHS["1 Gb/s"],
            "algorithm.overlap": overlap,
        }
    return settings


SCALED_STUDIES = {
    "tuning": Study(
        config={
            **SCALED,
            "name": "claims-scaling-tuning",
            "evaluate": {"every_epochs": 6},
            "sweep": {
                "setting": scaled_settings(),
                "learning.lr": [0.01, 0.02, 0.04, 0.08, 0.16, 0.32],
                "seed": [200, 201, 202, 203, 204],
            },
        },
        smoke={**SMALL, "sweep.learning.lr": [0.01, 0.04], "sweep.seed": [200, 201]},
        paper={"stop.epochs": 30, "evaluate.every_epochs": 30},
    ),
    "reported": Study(
        config={
            **SCALED,
            "name": "claims-scaling",
            "evaluate": {"every_epochs": 0.25, "target_accuracy": 0.98},
            "sweep": {"setting": scaled_settings(), "seeds": 5},
        },
        smoke={
            **SMALL,
            "evaluate.every_epochs": 0.1,
            "evaluate.target_accuracy": 0.15,
            "sweep.seeds": 2,
        },
        paper={"stop.epochs": 30},
        tuned=Tuning(on="tuning", by="accuracy"),
    ),
}


FEWEST_AND_MOST = ("SGP, 4 nodes", "SGP, 32 nodes")
FINER = Study(
    config={
        **SCALED,
        "name": "claims-scaling-finer",
        "evaluate": {"every_epochs": 0.1, "target_accuracy": 0.98},
        "sweep": {
            "setting": {name: scaled_settings()[name] for name in FEWEST_AND_MOST},
            "seed": list(range(96, 141)),
        },
    },
    smoke={
        **SMALL,
        "evaluate.every_epochs": 0.05,
        "evaluate.target_accuracy": 0.15,
        "sweep.seed": [96, 97],
    },
    paper={"stop.epochs": 30},
    tuned=Tuning(on="tuning", by="accuracy"),
)
"""SGP with the fewest and the most nodes, evaluated more often, in seeds of their own."""


def by_nodes(values: xr.DataArray) -> xr.DataArray:
    """Values of `scaled_settings` by method and number of nodes."""
    nodes = xr.Variable("nodes", list(NODES))
    rows = [
        xr.concat([at(values, setting=f"{name}, {count} nodes") for count in NODES], nodes)
        for name in LEARNT
    ]
    return xr.concat(rows, xr.Variable("method", list(LEARNT)))


def decide_c6(results: StudyResults) -> NumberArrays:
    steps = by_nodes(final(results["reported"], "samples_to")) / (
        32 * xr.DataArray(list(NODES), dims="nodes")
    )
    known = steps.where(np.isfinite(steps))
    iteration = per_update(results["timed"]).rename(workers="nodes")
    names = {
        **{name: name for name in LEARNT if name != "all-reduce"},
        **dict.fromkeys(ALL_REDUCED, "all-reduce"),
    }
    seconds = xr.concat(
        [at(iteration, method=name) * at(steps, method=learnt) for name, learnt in names.items()],
        xr.Variable("method", list(names)),
    )

    def over(method: str, other: str, link: str = "10 Gb/s") -> xr.DataArray:
        own = at(seconds, nodes=32, link=link)
        return at(own, method=method) / at(own, method=other)

    few, many = (
        at(final(results["finer"], "samples_to"), setting=name) for name in FEWEST_AND_MOST
    )
    sgp = at(iteration, method="SGP", link="10 Gb/s")
    few, many = few / 4 * at(sgp, nodes=4), many / 32 * at(sgp, nodes=32)

    return {
        "tree": over("tree", "SGP"),
        "overlapped": over(OVERLAPPED, "SGP"),
        "osgp": over(OVERLAPPED, "1-OSGP"),
        "faster": ratio_of_means(few, many),
        "ring": over("ring", "SGP"),
        "dpsgd": over("D-PSGD", "SGP"),
        "tree_slow": over("tree", "SGP", "1 Gb/s"),
        "overlapped_slow": over(OVERLAPPED, "SGP", "1 Gb/s"),
        "osgp_slow": over(OVERLAPPED, "1-OSGP", "1 Gb/s"),
        "steps": at(known, nodes=32, method="SGP") / at(known, nodes=32, method="all-reduce"),
        "seconds": xr.concat([at(seconds, link=link) for link in BANDWIDTHS], "line")
        .stack(row=("line", "method"))
        .drop_vars(["row", "line", "method"])
        .assign_coords(row=[f"{name}, {link}" for link in BANDWIDTHS for name in names])
        .rename(row="method and network"),
        "fast": at(seconds, link="10 Gb/s"),
    }


C6 = Claim(
    id="C6",
    paper=PAPER,
    headline="overlapped all-reduce over SGP, time to 98 %",
    did=paragraph("""
        LeNet-5, MNIST, times and messages of ResNet-50, 4 to 32 nodes, each at its best rate; 5 to 45 seeds.
    """),
    question="On 10 Gb/s, does SGP reach an accuracy sooner than all-reduce, and the sooner the more nodes it has?",
    says=paragraph("""
        on 10 Gb/s Ethernet 32 nodes end 90 epochs of ResNet-50 after 1.6 hours with SGP, and after more than 5 with
        AllReduce; accuracy is within 1.2 points.
    """),
    basis="network",
    mark="read",
    setting=paragraph("""
        LeNet-5, MNIST, batch 32 on each of 4 to 32 nodes, 6 epochs, Nesterov momentum 0.9 and a linear warm-up, as in
        the paper, here of half an epoch. Gradients take as long, and messages are as large, as those of ResNet-50 there
        (0.303 s, 102 MB); latency 50 us, cards of 10 and of 1 Gb/s. Each method and number of nodes at its own best
        learning rate, chosen on 5 seeds in as many epochs; 5 others report, evaluated every quarter of an epoch. SGP
        on 4 nodes over SGP on 32 is decided by 45 further seeds, evaluated every tenth. Compute times are constant, so
        that time is iterations until 98 % times seconds an iteration, and all-reduce has the same weights by a tree, a
        ring, and a ring in buckets during the backward pass.
    """),
    studies={
        **SCALED_STUDIES,
        "finer": FINER,
        "timed": Study(
            config={
                "cluster": RESNET,
                "task": {"model": "timing"},
                "stop": {"updates": 200},
                "sweep": {
                    "cluster.workers": list(NODES),
                    "method": {
                        **{name: keys for name, keys in LEARNT.items() if name != "all-reduce"},
                        **ALL_REDUCED,
                    },
                    "link": {
                        name: {"cluster.network.bandwidth": rate}
                        for name, rate in BANDWIDTHS.items()
                    },
                },
            },
            smoke={"stop.updates": 5},
        ),
    },
    decide=decide_c6,
    criteria=(
        Criterion(
            "overlapped",
            "time to 98 %, 10 Gb/s, 32 nodes, overlapped ring all-reduce over SGP",
            at_least=1.1,
        ),
        Criterion("tree", "the same, tree all-reduce over SGP (paper: about 3)", at_least=2.0),
        Criterion(
            "osgp", "the same, all-reduce by a ring in overlapped buckets over 1-OSGP", at_least=1.1
        ),
        Criterion("faster", "mean time to 98 % on 10 Gb/s of SGP, 4 nodes over 32", at_least=4.0),
    ),
    beside={
        "ring": "time to 98 % on 10 Gb/s, 32 nodes, ring all-reduce over SGP",
        "dpsgd": "the same, D-PSGD over SGP",
        "tree_slow": "time to 98 % on 1 Gb/s, 32 nodes, tree all-reduce over SGP",
        "overlapped_slow": "the same, ring all-reduce in overlapped buckets over SGP",
        "osgp_slow": "the same, ring all-reduce in overlapped buckets over 1-OSGP",
        "steps": "iterations to 98 %, 32 nodes, SGP over all-reduce",
    },
    figure=Picture(
        of="fast",
        x="nodes",
        y="time to 98 % on 10 Gb/s (s)",
        lines="method",
        log_x=True,
        log_y=True,
    ),
    table=ClaimTable(
        of="seconds",
        title="SGP: seconds to a test accuracy of 98 %",
        rows="method and network",
        columns="nodes",
        paper={"SGP, 10 Gb/s": {32: "1.6 h"}, "tree, 10 Gb/s": {32: "5 h"}},
        source=paragraph("""
            90 epochs of ResNet-50 on ImageNet, 8 GPUs a node, AllReduce beside the tree; ours are evaluated every
            quarter of an epoch, so that times are multiples of it
        """),
    ),
    notes=paragraph("""
        SGP needs half of all-reduce's iterations, since it tolerates twice the rate. At 32 nodes these are 0.08 and
        0.04. By an iteration's seconds alone overlapped buckets take 0.91 times as long as SGP, and 1.16 times as long
        as 1-OSGP. All seeds get to 98 %. Of the tree's ratio the network makes 2.9. Eight times the nodes make SGP 3.4
        times as fast, less than half of eight, the bar.
    """),
    changes=(
        "5 seeds reported, and left the third criterion open: 5.02 (3.64 to 6.40). Ten more of SGP on 4 and 32 nodes "
        "were added, which left it open, too: 4.59 (3.85 to 5.34), and then 20 more; bars and rates are as they were.",
        "35 seeds left it open again: 4.26 (3.85 to 4.66). Evaluations were half an epoch apart, so that a time was up "
        "to that late, which is more of the few epochs that 4 nodes take. They are a tenth apart now, and the "
        "ratio is that of mean times: the mean of ratios is larger the more the time of 32 nodes varies. 60 seeds that "
        "had not been seen decide alone; bar and rates are as they were.",
        "They left it open (3.94, 3.69 to 4.18). Learning rates were chosen on 2 seeds in 2 epochs, without the "
        "paper's warm-up; at them all-reduce never reached 98 % in 2 of 5 seeds at 32 nodes and 3 of 5 at 16, and took "
        "1.5 to 3 times SGP's iterations. Its ratios to SGP held by that: 7.25 by a tree and 2.27 in overlapped "
        "buckets, bar 1. All methods warm up now, 5 seeds choose in 6 epochs, and other seeds decide the third "
        "criterion. Overlapped buckets are held against 1-OSGP, too; their bar is 1.1, since 1 is where nothing "
        "differs. 10 seeds were to report and 60 to decide the last; before they ran it was made 5 and 45, for time.",
    ),
)


def decide_c7(results: StudyResults) -> NumberArrays:
    accuracy = final(results["reported"], "accuracy")
    table = by_nodes(accuracy)
    widest, sixteen = at(table, nodes=32), at(table, nodes=16)

    def lost(overlap: int) -> xr.DataArray:
        return at(sixteen, method="SGP") - at(accuracy, setting=f"{overlap}-OSGP, 16 nodes")

    return {
        "sgp": at(widest, method="all-reduce") - at(widest, method="SGP"),
        "osgp": at(widest, method="all-reduce") - at(widest, method="1-OSGP"),
        "learns": at(table, nodes=4, method="all-reduce"),
        "dpsgd": at(widest, method="all-reduce") - at(widest, method="D-PSGD"),
        "lost_1": lost(1),
        "lost_2": lost(2),
        "lost_4": lost(4),
        "accuracy": table,
        "error": 1 - table,
    }


C7 = Claim(
    id="C7",
    paper=PAPER,
    headline="accuracy at 32 nodes, all-reduce minus SGP",
    did="The trained runs of C6: accuracy after 6 epochs, 4 to 32 nodes, each at its own best rate; 5 seeds.",
    question="Is the accuracy of SGP within 1.2 points of all-reduce's at 32 nodes, also where messages overlap?",
    says=paragraph("""
        at up to 32 nodes SGP's accuracy is within 1.2 points of AllReduce's [read]; overlapping an exchange with one
        gradient keeps it, and more overlap costs more.
    """),
    basis="network",
    mark="notes",
    setting=paragraph("""
        the trained runs of C6: LeNet-5, MNIST, batch 32 on each node, 6 epochs, Nesterov momentum 0.9, a warm-up of
        half an epoch. Beside, SGP on 16 nodes whose exchanges may take up to 1, 2 and 4 gradients; 2 and 4 on cards of
        1 Gb/s, where a message takes as long as 2.7 gradients.
    """),
    studies=SCALED_STUDIES,
    decide=decide_c7,
    criteria=(
        Criterion("sgp", "accuracy at 32 nodes, all-reduce minus SGP", at_most=0.012),
        Criterion("osgp", "accuracy at 32 nodes, all-reduce minus 1-OSGP", at_most=0.012),
        Criterion(
            "learns",
            "accuracy of all-reduce at 4 nodes, which has to learn",
            at_least=0.98,
            control=True,
        ),
    ),
    beside={
        "dpsgd": "accuracy at 32 nodes, all-reduce minus D-PSGD",
        "lost_1": "accuracy at 16 nodes, SGP minus 1-OSGP",
        "lost_2": "accuracy at 16 nodes, SGP minus 2-OSGP, cards of 1 Gb/s",
        "lost_4": "accuracy at 16 nodes, SGP minus 4-OSGP, cards of 1 Gb/s",
    },
    figure=Picture(
        of="error", x="nodes", y="test error after 6 epochs", lines="method", log_x=True, log_y=True
    ),
    table=ClaimTable(
        of="accuracy",
        title="SGP: test accuracy (%) after 6 epochs",
        rows="method",
        columns="nodes",
        percent=True,
    ),
    notes=paragraph("""
        All-reduce loses most by more nodes. It ends at 98.1 % with 32 of them, SGP at 98.8, and on 4 nodes all are at
        99. With 16 nodes 1-, 2- and 4-OSGP lie within 0.2 points of SGP; that more overlap costs more is not seen.
    """),
    changes=(
        "5 seeds reported, at rates that 2 seeds had chosen in 2 epochs without a warm-up, and it held: all-reduce "
        "less SGP -0.0078 (-0.0114 to -0.0042), less 1-OSGP -0.0065, since all-reduce was the one that lost. 2- and "
        "4-OSGP were on cards of 10 Gb/s, where a message takes less time than a gradient, so that they were 1-OSGP.",
    ),
)


CLAIMS = (C1, C2, C3, C4, C5, C6, C7)
