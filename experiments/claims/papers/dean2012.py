"""What Dean et al. (2012) claim."""

import xarray as xr

from laggard.experiments.claims.claim import (
    Claim,
    Criterion,
    NumberArrays,
    Paper,
    Study,
    StudyResults,
    log_grid,
    paragraph,
)
from laggard.experiments.claims.exhibits import Picture
from laggard.experiments.claims.optima import best_setting
from laggard.experiments.claims.statistics import at, final, relabel

PAPER = Paper(
    key="dean2012",
    authors="Dean et al.",
    year=2012,
    title="Large scale distributed deep networks",
    where="NeurIPS 2012",
)

RATES_A_DECADE = 6
OPTIMISERS = {"sgd": {"learning.optimizer": "sgd"}, "adagrad": {"learning.optimizer": "adagrad"}}
SMALL = {
    "task.model": "logistic",
    "task.dataset": "digits",
    "task.batch": 8,
    "stop.epochs": 0.3,
    "sweep.learning.lr": [0.01, 0.1],
    "sweep.seeds": 2,
}
DOWNPOUR = {
    "cluster": {"workers": 16, "compute": {"law": "gamma", "mean": 0.01, "cv": 0.2}},
    "algorithm": {"name": "downpour", "n_push": 5, "n_fetch": 5},
    "task": {"model": "lenet5", "dataset": "mnist", "batch": 32},
    "learning": {"optimizer": "sgd"},
    "stop": {"epochs": 4},
    "evaluate": {"every_epochs": 4},
}


def decide_i1(results: StudyResults) -> NumberArrays:
    accuracy = final(results["grid"], "accuracy")
    sgd, adagrad = (at(accuracy, optimiser=name) for name in OPTIMISERS)
    adagrad = xr.concat([final(results["below"], "accuracy"), adagrad], "lr")
    best_sgd, best_adagrad = best_setting(sgd, "lr"), best_setting(adagrad, "lr")
    return {
        "gain": decades(adagrad >= 0.9) - decades(sgd >= 0.9),
        "sgd": decades(sgd >= 0.9),
        "adagrad": decades(adagrad >= 0.9),
        "near": decades(adagrad >= best_adagrad - 0.05) - decades(sgd >= best_sgd - 0.05),
        "best_sgd": best_sgd,
        "best_adagrad": best_adagrad,
        "accuracy": relabel(accuracy, "optimiser", {"sgd": "SGD", "adagrad": "Adagrad"}),
    }


def decades(works: xr.DataArray) -> xr.DataArray:
    """The decades of rates that work; NaN where one at an end of the grid does."""
    return (works.sum("lr") / RATES_A_DECADE).where(~works.isel(lr=[0, -1]).any("lr"))


I1 = Claim(
    id="I1",
    paper=PAPER,
    headline="decades of rates that work, Adagrad minus SGD",
    did="LeNet-5, MNIST, Downpour with 16 workers: the range of rates that reach 0.9, Adagrad against SGD; 10 seeds.",
    question=paragraph("""
        Does Adagrad widen the range of learning rates at which Downpour SGD works, by half a decade or more?
    """),
    says=paragraph("""
        Adagrad made Downpour SGD robust, and allowed more replicas; the criterion asks for half a decade more of
        working learning rates.
    """),
    basis="network",
    mark="notes",
    setting=paragraph("""
        LeNet-5, MNIST, Downpour with 16 workers that push and fetch every 5 mini-batches, gamma times (cv 0.2),
        batch 32, 4 epochs, 10 seeds; learning rates a sixth of a decade apart, so that six of them count a decade.
        A rate works where the accuracy is at least 0.9.
    """),
    studies={
        "grid": Study(
            config={
                **DOWNPOUR,
                "name": "claims-downpour",
                "sweep": {
                    "optimiser": OPTIMISERS,
                    "learning.lr": log_grid(0.000464, 0.0464, RATES_A_DECADE),
                    "seeds": 10,
                },
            },
            smoke=SMALL,
            paper={"stop.epochs": 30},
        ),
        "below": Study(
            config={
                **DOWNPOUR,
                "name": "claims-downpour-below",
                "learning": {"optimizer": "adagrad"},
                "sweep": {"learning.lr": [0.000215, 0.000316], "seeds": 10},
            },
            smoke={**SMALL, "sweep.learning.lr": [0.001, 0.003]},
            paper={"stop.epochs": 30},
        ),
    },
    decide=decide_i1,
    criteria=(
        Criterion("gain", "decades of working learning rates, Adagrad minus SGD", at_least=0.5),
    ),
    beside={
        "sgd": "decades of SGD",
        "adagrad": "decades of Adagrad",
        "near": "decades within five points of each one's own best, Adagrad minus SGD",
        "best_sgd": "best accuracy of SGD",
        "best_adagrad": "best accuracy of Adagrad",
    },
    figure=Picture(
        of="accuracy",
        x="lr",
        y="test accuracy after 4 epochs",
        lines="optimiser",
        xlabel="learning rate",
        log_x=True,
    ),
    changes=(
        "One epoch was run at first, in which no rate of either optimiser reached 0.9.",
        "Rates were a third of a decade apart, with 3 seeds: Adagrad worked over a decade in each of them, SGD over "
        "none, a third and two thirds, which left the interval across the bar.",
        "In one of ten seeds Adagrad worked at the least rate of the grid; two lower ones were added for it.",
    ),
    notes=paragraph("""
        Four of ten seeds of SGD reach 0.9 at no rate, so that the threshold lies at SGD's best, 0.906 on average; at
        thresholds of 0.91 to 0.93 the gain is 0.87 to 0.75. Within five points of each one's own best Adagrad gains
        0.55 decades (0.40 to 0.70), which would leave the bar of half a decade open.
    """),
)


CLAIMS = (I1,)
