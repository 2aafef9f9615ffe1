"""What Dutta, Joshi, Ghosh, Dube, Nagpurkar (2018) claim."""

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
    curve,
    harmonic,
    last,
    per_update,
    stack_arrays,
)

PAPER = Paper(
    key="dutta2018",
    authors="Dutta, Joshi, Ghosh, Dube, Nagpurkar",
    year=2018,
    title="Slow and stale gradients can win the race: error-runtime trade-offs in distributed SGD",
    where="AISTATS 2018, arXiv 1803.01113",
)

WAITED = {"algorithm.wait_for": [1, 2, 4, 8], "seeds": 5}
GRADIENTS = {"algorithm.gradients": [1, 2, 4, 8], "seeds": 5}
FEW_WAITED = {"stop.updates": 100, "sweep.algorithm.wait_for": [1, 8], "sweep.seeds": 2}
FEW_GRADIENTS = {"stop.updates": 100, "sweep.algorithm.gradients": [1, 8], "sweep.seeds": 2}
TIMING = {
    "cluster": {"workers": 8, "compute": {"law": "exponential", "mean": 0.01}},
    "task": {"model": "timing"},
    "stop": {"updates": 6000},
}


def decide_h1(results: StudyResults) -> NumberArrays:
    sync, k_async = per_update(results["sync"]), per_update(results["asynchronous"])
    batch_sync, batch_async = per_update(results["batch_sync"]), per_update(results["batch_async"])
    shifted = per_update(results["shifted"])
    order = 0.010 * (harmonic(8) - harmonic(8 - sync["wait_for"]))
    little = 0.010 * batch_sync["gradients"] / 8
    shifted_order = 0.010 + 0.010 * (harmonic(8) - harmonic(8 - shifted["wait_for"]))
    return {
        "sync": abs(sync / order - 1).max("wait_for"),
        "async": abs(k_async / order - 1).max("wait_for"),
        "batch_sync": abs(batch_sync / little - 1).max("gradients"),
        "batch_async": abs(batch_async / little - 1).max("gradients"),
        "shifted_sync": abs(at(shifted, method="sync") / shifted_order - 1).max("wait_for"),
        "shifted_async": (at(shifted, method="async") / at(shifted, method="sync")).max("wait_for"),
        "seconds": stack_arrays(**{"K-sync": sync, "K-async": k_async}),
        "order": order,
    }


H1 = Claim(
    id="H1",
    paper=PAPER,
    headline="K-sync, off its order statistic",
    did="The clock alone, 8 workers with exponential times, K from 1 to 8, 5 seeds.",
    question=paragraph("""
        Are the seconds per update of K-sync, K-async and their batch variants those of the order statistics?
    """),
    says=paragraph("""
        with exponential times of rate mu an update of K-sync and of K-async takes (H_P - H_(P-K)) / mu seconds, of
        K-batch-sync K / (P mu), and of K-batch-async K E[X] / P under any law; for times that are new longer than
        used K-async is no slower than K-sync.
    """),
    basis="clock",
    mark="notes",
    setting=paragraph("""
        clock alone, P = 8 workers, K = 1, 2, 4, 8, a free network, exponential times of 10 ms; for the last
        statement times shifted by 10 ms. Late workers are cancelled, as the paper has it. 6,000 updates a run, so
        that the mean of a run is known within about 1.3 %, 5 seeds.
    """),
    studies={
        "sync": Study(
            config={**TIMING, "algorithm": {"name": "k_sync", "cancel": True}, "sweep": WAITED},
            smoke=FEW_WAITED,
        ),
        "asynchronous": Study(
            config={**TIMING, "algorithm": {"name": "k_async"}, "sweep": WAITED}, smoke=FEW_WAITED
        ),
        "batch_sync": Study(
            config={**TIMING, "algorithm": {"name": "k_batch_sync"}, "sweep": GRADIENTS},
            smoke=FEW_GRADIENTS,
        ),
        "batch_async": Study(
            config={**TIMING, "algorithm": {"name": "soft_sync"}, "sweep": GRADIENTS},
            smoke=FEW_GRADIENTS,
        ),
        "shifted": Study(
            config={
                **TIMING,
                "cluster": {
                    "workers": 8,
                    "compute": {"law": "shifted_exponential", "shift": 0.01, "scale": 0.01},
                },
                "sweep": {
                    "method": {
                        "sync": {"algorithm.name": "k_sync", "algorithm.cancel": True},
                        "async": {"algorithm.name": "k_async"},
                    },
                    "algorithm.wait_for": [1, 2, 4],
                    "seeds": 5,
                },
            },
            smoke={"stop.updates": 100, "sweep.algorithm.wait_for": [1, 4], "sweep.seeds": 2},
        ),
    },
    decide=decide_h1,
    criteria=(
        Criterion("sync", "K-sync over (H_P - H_(P-K)) / mu, furthest from 1 over K", at_most=0.03),
        Criterion("async", "K-async over the same", at_most=0.03),
        Criterion("batch_sync", "K-batch-sync over K / (P mu)", at_most=0.03),
        Criterion("batch_async", "K-batch-async over K E[X] / P", at_most=0.03),
        Criterion(
            "shifted_sync", "shifted times: K-sync over Delta + (H_P - H_(P-K)) / mu", at_most=0.03
        ),
        Criterion(
            "shifted_async", "shifted times: K-async over K-sync, greatest over K", at_most=1.0
        ),
    ),
    figure=Picture(
        of="seconds",
        x="wait_for",
        y="virtual time per update (s)",
        lines="of",
        theory="order",
        xlabel="K, of P = 8",
        log_x=True,
        log_y=True,
    ),
)


def decide_h2(results: StudyResults) -> NumberArrays:
    loss = curve(results["race"], "test_loss")
    early = at(loss, time=0.1)
    middle = at(loss, time=1.0)
    late = last(loss, "time", 0.25)
    return {
        "early_8": at(early, wait_for=8) / at(early, wait_for=1),
        "early_4": at(early, wait_for=4) / at(early, wait_for=1),
        "middle_1": at(middle, wait_for=1) / at(middle, wait_for=4),
        "middle_8": at(middle, wait_for=8) / at(middle, wait_for=4),
        "floor_2": at(late, wait_for=1) / at(late, wait_for=2),
        "floor_8": at(late, wait_for=1) / at(late, wait_for=8),
        "loss": loss,
    }


H2 = Claim(
    id="H2",
    paper=PAPER,
    headline="early: synchronous loss over asynchronous",
    did="A quadratic, K-async on 8 workers with exponential times: losses after 0.1 s, after 1 s and at the end.",
    question=paragraph("""
        Against virtual time, is asynchronous SGD ahead early and worst in the end, with a middle K best in between?
    """),
    says=paragraph("""
        in wall-clock time asynchronous SGD has the lowest error early and the highest error floor; between
        synchronous and asynchronous, K-async with a middle K is best in between.
    """),
    basis="quadratic",
    mark="notes",
    setting=paragraph("""
        a quadratic of curvature 1 in 50 coordinates, noise 0.8, learning rate 0.03 for all (as in the paper's
        comparison), K-async on 8 workers with exponential times of 10 ms: K = 1 is asynchronous, K = 8 synchronous.
        The loss falls like exp(-2 lr t / T_K) with T_K = (H_8 - H_(8-K)) 10 ms, to a floor of lr noise^2 50 / (4
        K); from this, before any run, early is 0.1 s, in between is 1 s, and late is the mean over the last quarter
        of 8 s. 5 seeds.
    """),
    studies={
        "race": Study(
            config={
                "cluster": {"workers": 8, "compute": {"law": "exponential", "mean": 0.01}},
                "algorithm": {"name": "k_async"},
                "task": {"model": "quadratic", "dim": 50, "noise": 0.8},
                "learning": {"lr": 0.03},
                "stop": {"time": 8.0},
                "evaluate": {"every_seconds": 0.1},
                "sweep": WAITED,
            },
            smoke={"stop.time": 1.0, "sweep.seeds": 2},
        )
    },
    decide=decide_h2,
    criteria=(
        Criterion("early_8", "early: loss of synchronous over asynchronous", at_least=1.3),
        Criterion("early_4", "early: loss of K = 4 over asynchronous", at_least=1.3),
        Criterion("middle_1", "in between: loss of asynchronous over K = 4", at_least=1.3),
        Criterion("middle_8", "in between: loss of synchronous over K = 4", at_least=1.3),
        Criterion("floor_2", "late: floor of asynchronous over K = 2 (about 2)", at_least=1.3),
        Criterion(
            "floor_8", "late: floor of asynchronous over synchronous (about 8)", at_least=1.3
        ),
    ),
    figure=Picture(
        of="loss",
        x="time",
        y="loss",
        lines="wait_for",
        label="K = {}",
        xlabel="virtual time (s)",
        log_y=True,
    ),
    notes=paragraph("""
        Asynchronous SGD ends at 2.2 times the loss of K = 2, and at 10.6 times that of synchronous SGD. Closed forms,
        which leave staleness out, say 2 and 8.
    """),
)


CLAIMS = (H1, H2)
