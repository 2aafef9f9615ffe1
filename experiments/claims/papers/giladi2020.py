"""What Giladi, Nacson, Hoffer, Soudry (2020) claim."""

import xarray as xr

from laggard.experiments.claims.claim import (
    Claim,
    Criterion,
    NumberArrays,
    Paper,
    Picture,
    Study,
    StudyResults,
    log_grid,
    paragraph,
)
from laggard.experiments.claims.statistics import at, final, largest, slope, stack_arrays

PAPER = Paper(
    key="giladi2020",
    authors="Giladi, Nacson, Hoffer, Soudry",
    year=2020,
    title=paragraph("""
        At stability's edge: how to adjust hyperparameters to preserve minima selection in asynchronous training of
        neural networks?
    """),
    where="ICLR 2020",
)

FEW = {"task.epoch": 2000, "sweep.algorithm.delay": [8, 16]}
PLAIN = {
    "cluster": {"workers": 1, "compute": {"law": "constant", "mean": 0.01}},
    "algorithm": {"name": "delayed"},
    "task": {"model": "lenet5", "dataset": "mnist", "batch": 32},
    "learning": {"optimizer": "sgd"},
    "stop": {"epochs": 2},
    "evaluate": {"every_epochs": 1},
}
QUADRATIC = {
    "cluster": {"workers": 1},
    "algorithm": {"name": "delayed"},
    "task": {"model": "quadratic", "epoch": 40000},
    "learning": {"optimizer": "sgd"},
    "stop": {"epochs": 1},
    "evaluate": {"every_epochs": 1},
}
SMALL = {"task.model": "logistic", "task.dataset": "digits", "task.batch": 16, "stop.epochs": 0.2}


def decide_i6(results: StudyResults) -> NumberArrays:
    def edge(study: str) -> xr.DataArray:
        """The largest rate that learns: by accuracy on MNIST, by loss on the quadratic."""
        if "quadratic" in study:
            return largest(final(results[study], "loss") < 0.05, "lr")
        return largest(final(results[study], "accuracy") >= 0.8, "lr")

    def power(lr_max: xr.DataArray) -> xr.DataArray:
        return slope(lr_max, "delay", scale=2, offset=1)

    plain, heavy = edge("plain_longer"), edge("heavy_longer")
    early, early_heavy = edge("plain"), edge("heavy")
    exact, exact_heavy = edge("plain_quadratic"), edge("heavy_quadratic")
    return {
        "slope": power(plain),
        "cost": (plain / heavy).min("delay"),
        "slope_quadratic": power(exact),
        "slope_quadratic_heavy": power(exact_heavy),
        "cost_quadratic": (exact / exact_heavy).min("delay"),
        "slope_early": power(early),
        "cost_early": (early / early_heavy).min("delay"),
        "lr_max_8": at(plain, delay=8),
        "lr_max_32": at(plain, delay=32),
        "lr_max_64": at(plain, delay=64),
        "lr_max": stack_arrays(plain=plain, momentum=heavy),
    }


I6 = Claim(
    id="I6",
    paper=PAPER,
    question=paragraph("""
        Does the largest stable learning rate fall as one over the delay, and does momentum cost most of it?
    """),
    says=paragraph("""
        the largest stable learning rate is inversely proportional to the delay, and momentum costs most of it under
        delay (for a quadratic of curvature a and without momentum, 2 sin(pi / (2 (2 D + 1))) / a).
    """),
    basis="network",
    mark="derived",
    setting=paragraph("""
        LeNet-5, MNIST, constant delay, batch 32; 4 epochs, learning rates a quarter of a decade apart, 3 seeds. The
        largest learning rate that will do is that at which the final accuracy is at least 0.8, which is the edge of
        stability as far as four epochs see it; delays go to 64, since beyond that the rates that are stable with
        momentum are too small to learn in so few. Two epochs beside, and the claim's own object, a quadratic
        (curvature 1, no noise, 40,000 updates, learning rates a tenth of a decade apart, delays 8 to 256; there a
        rate will do where the loss has fallen below a tenth of that at the start).
    """),
    studies={
        "plain": Study(
            config={
                **PLAIN,
                "name": "claims-delay-plain",
                "sweep": {
                    "algorithm.delay": [8, 32, 64],
                    "learning.lr": [0.00316, 0.00562, 0.01, 0.0178, 0.0316, 0.0562, 0.1, 0.178],
                    "seeds": 3,
                },
            },
            smoke={**SMALL, "sweep.algorithm.delay": [8, 64], "sweep.learning.lr": [0.01, 0.1], "sweep.seeds": 2},
        ),
        "heavy": Study(
            config={
                **PLAIN,
                "name": "claims-delay-heavy",
                "learning": {"optimizer": "sgd", "momentum": 0.9},
                "sweep": {
                    "algorithm.delay": [8, 32, 64],
                    "learning.lr": log_grid(0.0001, 0.01, 4),
                    "seeds": 3,
                },
            },
            smoke={**SMALL, "sweep.algorithm.delay": [8, 64], "sweep.learning.lr": [0.001, 0.01], "sweep.seeds": 2},
        ),
        "plain_longer": Study(
            config={
                **PLAIN,
                "name": "claims-delay-plain-longer",
                "stop": {"epochs": 4},
                "evaluate": {"every_epochs": 4},
                "sweep": {
                    "algorithm.delay": [8, 32, 64],
                    "learning.lr": log_grid(0.001, 0.1, 4),
                    "seeds": 3,
                },
            },
            smoke={**SMALL, "sweep.algorithm.delay": [8, 32, 64], "sweep.learning.lr": [0.01, 0.1], "sweep.seeds": 2},
            paper={
                "stop.epochs": 30,
                "evaluate.every_epochs": 30,
                "sweep.algorithm.delay": [8, 16, 32, 64, 128, 256],
                "sweep.learning.lr": log_grid(0.0001, 0.1, 4),
            },
        ),
        "heavy_longer": Study(
            config={
                "name": "claims-delay-heavy-longer",
                "cluster": {"workers": 1, "compute": {"law": "constant", "mean": 0.01}},
                "algorithm": {"name": "delayed"},
                "task": {"model": "lenet5", "dataset": "mnist", "batch": 32},
                "learning": {"optimizer": "sgd", "momentum": 0.9},
                "stop": {"epochs": 4},
                "evaluate": {"every_epochs": 4},
                "sweep": {
                    "algorithm.delay": [8, 32, 64],
                    "learning.lr": [
                        5.62e-05,
                        0.0001,
                        0.000178,
                        0.000316,
                        0.000562,
                        0.001,
                        0.00178,
                        0.00316,
                        0.00562,
                        0.01,
                    ],
                    "seeds": 3,
                },
            },
            smoke={**SMALL, "sweep.algorithm.delay": [8, 32, 64], "sweep.learning.lr": [0.001, 0.01], "sweep.seeds": 2},
            paper={
                "stop.epochs": 30,
                "evaluate.every_epochs": 30,
                "sweep.algorithm.delay": [8, 16, 32, 64, 128, 256],
                "sweep.learning.lr": log_grid(1e-05, 0.01, 4),
            },
        ),
        "plain_quadratic": Study(
            config={
                **QUADRATIC,
                "name": "claims-delay-plain-quadratic",
                "sweep": {
                    "algorithm.delay": [8, 16, 32, 64, 128, 256],
                    "learning.lr": log_grid(0.004, 0.318, 10),
                },
            },
            smoke=FEW,
        ),
        "heavy_quadratic": Study(
            config={
                **QUADRATIC,
                "name": "claims-delay-heavy-quadratic",
                "learning": {"optimizer": "sgd", "momentum": 0.9},
                "sweep": {
                    "algorithm.delay": [8, 16, 32, 64, 128, 256],
                    "learning.lr": log_grid(0.0004, 0.0318, 10),
                },
            },
            smoke=FEW,
        ),
    },
    decide=decide_i6,
    criteria=(
        Criterion("slope", "slope of log lr_max against log(2 D + 1), no momentum", at_least=-1.3, at_most=-0.7),
        Criterion("cost", "lr_max without momentum over that with 0.9, least over the delays", at_least=5.0),
    ),
    beside={
        "slope_quadratic": "quadratic: slope of log lr_max against log(2 D + 1), no momentum (theory -1)",
        "slope_quadratic_heavy": "quadratic: the same with momentum 0.9",
        "cost_quadratic": "quadratic: lr_max without momentum over that with 0.9, least over the delays (theory 10.3)",
        "slope_early": "after two epochs: slope, no momentum",
        "cost_early": "after two epochs: lr_max without momentum over that with 0.9, least over the delays",
        "lr_max_8": "lr_max at delay 8",
        "lr_max_32": "lr_max at delay 32",
        "lr_max_64": "lr_max at delay 64",
    },
    figure=Picture(of="lr_max", x="delay", y="largest learning rate that will do", lines="of", log_x=True, log_y=True),
    notes=paragraph("""
        Three seeds leave both open, about slopes and ratios that are near the bars; the edge of LeNet-5 on its way
        from a random start falls somewhat faster with the delay than that of the quadratic, on which theory is met.
        The claim was first decided after two epochs, and contradicted (a slope of -1.72, which fails; a ratio of
        12.6, open). But at a delay of 64 no rate of either grid reached 0.8 in two epochs (0.63 at most, 0.70 with
        momentum), so that half of the least rate stood for the edge there. The criteria were moved to four epochs
        and lower rates after that was seen, with the same bars, and the quadratic was added; two epochs go beside.
        Before any of this ran at this scale, but after A1 and B4 had shown where the cliff of delayed SGD lies on
        LeNet-5, its learning rates were laid anew, its delays changed from 8, 32, 128 to 8, 32, 64, and the
        accuracy that counts as learning from 0.9 to 0.8.
    """),
)


CLAIMS = (I6,)
