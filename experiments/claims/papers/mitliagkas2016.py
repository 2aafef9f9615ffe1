"""What Mitliagkas, Zhang, Hadjis, Re (2016) claim."""

import xarray as xr

from laggard.experiments.claims.arrays import probed
from laggard.experiments.claims.claim import (
    Claim,
    Criterion,
    Joint,
    NumberArrays,
    Paper,
    Study,
    StudyResults,
    paragraph,
)
from laggard.experiments.claims.exhibits import Picture
from laggard.experiments.claims.optima import inside
from laggard.experiments.claims.statistics import at, final, log, mean, rises, stack_arrays

PAPER = Paper(
    key="mitliagkas2016",
    authors="Mitliagkas, Zhang, Hadjis, Re",
    year=2016,
    title="Asynchrony begets momentum, with an application to deep learning",
    where="arXiv 1605.09774",
)


RATES = {2: [0.25, 0.433, 0.75], 4: [0.125, 0.2165, 0.375], 8: [0.0625, 0.10825, 0.1875]}
"""Learning rates a factor of the root of 3 apart, by the number of workers: 0.5 / P to 1.5 / P."""


def fits_by_rate(results: StudyResults) -> xr.DataArray:
    """The fitted momenta, `(P, rate, law, seed)`, the rates in units of 1 / P."""
    fits = probed(results["fits"])
    own = [
        at(fits, P=str(workers), lr=rates).assign_coords(lr=[0.5, 0.866, 1.5])
        for workers, rates in RATES.items()
    ]
    return xr.concat(own, xr.Variable("P", list(RATES))).rename(lr="rate")


def decide_i2(results: StudyResults) -> NumberArrays:
    fits = fits_by_rate(results)
    exponential, constant = at(fits, law="exponential"), at(fits, law="constant")
    theory = 1 - 1 / fits["P"].astype(float)
    of_two = at(constant, P=2) - constant["rate"] / 2
    change = at(fits, rate=1.5) - at(fits, rate=0.5)
    each = {
        f"{law}, P = {workers}": at(fits, law=law, P=workers)
        for law in fits["law"].values
        for workers in RATES
    }
    return {
        "exponential": abs(exponential - theory).max(["P", "rate"]),
        "still": abs(at(change, law="exponential")).max("P"),
        "moves": at(change, law="constant").min("P"),
        "of_two": abs(of_two).max("rate"),
        **{f"exponential_{workers}": at(exponential, P=workers).mean("rate") for workers in RATES},
        **{f"constant_{workers}": at(change, law="constant", P=workers) for workers in RATES},
        "momentum": stack_arrays(**each),
        "expected": stack_arrays(
            **{f"exponential, P = {workers}": at(theory, P=workers) for workers in RATES}
        ),
    }


I2 = Claim(
    id="I2",
    paper=PAPER,
    question="Do exponential computing times act like a momentum of 1 - 1 / P at any learning rate?",
    says=paragraph("""
        asynchronous SGD whose staleness is geometric, as exponential times make it, behaves on a quadratic like SGD
        with a momentum of 1 - 1 / P.
    """),
    basis="quadratic",
    mark="notes",
    setting=paragraph("""
        a quadratic of curvature 1 in 64 coordinates with gradient noise 1, an asynchronous server without explicit
        momentum, P = 2, 4, 8 workers, learning rates of 0.5, 0.866 and 1.5 over P, 8,000 updates, 5 seeds. A momentum
        mu and a rate a are fitted to the autocovariances of the trajectory, w(t+1) - w(t) = mu (w(t) - w(t-1)) - a
        w(t), over 2 P lags. With exponential times mu is 1 - 1 / P at every rate. A constant delay of P - 1 is fitted
        by a momentum that grows with the rate: exactly lr h for P = 2, and between the least and the greatest rate by
        0.5, 0.242 and 0.119 for P = 2, 4, 8 (exact covariances of the recursion) [derived].
    """),
    studies={
        "fits": Study(
            config={
                "cluster": {"workers": 2},
                "algorithm": {"name": "async_ps"},
                "task": {"model": "quadratic", "dim": 64, "initial": 0.0, "noise": 1.0},
                "stop": {"updates": 8000},
                "evaluate": {"every_updates": 8000},
                "sweep": {
                    "P": {
                        str(workers): {"cluster.workers": workers, "sweep": {"learning.lr": rates}}
                        for workers, rates in RATES.items()
                    },
                    "law": {
                        "exponential": {"cluster.compute": {"law": "exponential", "mean": 0.01}},
                        "constant": {"cluster.compute": {"law": "constant", "mean": 0.01}},
                    },
                    "seeds": 5,
                },
            },
            smoke={"stop.updates": 200, "sweep.seeds": 2},
            probe="momentum",
        )
    },
    decide=decide_i2,
    criteria=(
        Criterion(
            "exponential",
            "exponential times: fitted momentum minus 1 - 1 / P, furthest from 0 over P and rates",
            at_most=0.02,
        ),
        Criterion(
            "still",
            "exponential times: change of the momentum from the least to the greatest rate, largest over P",
            at_most=0.02,
        ),
        Criterion(
            "moves", "constant times: the same change, least over P (theory 0.119)", at_least=0.06
        ),
        Criterion(
            "of_two",
            "constant times, P = 2: fitted momentum minus lr h, furthest from 0 over rates",
            at_most=0.02,
            control=True,
        ),
    ),
    beside={
        "exponential_2": "exponential times, P = 2: fitted momentum, mean over rates (theory 0.5)",
        "exponential_4": "the same, P = 4 (theory 0.75)",
        "exponential_8": "the same, P = 8 (theory 0.875)",
        "constant_2": "constant times, P = 2: change of the momentum from the least to the greatest rate (theory 0.5)",
        "constant_4": "the same, P = 4 (theory 0.242)",
        "constant_8": "the same, P = 8 (theory 0.119)",
    },
    figure=Picture(
        of="momentum",
        x="rate",
        y="fitted momentum",
        lines="of",
        xlabel="learning rate times P",
        theory="expected",
    ),
    notes=paragraph("""
        At a single rate a constant delay can pass for 1 - 1 / P; only exponential times keep it at all rates.
    """),
    headline="worst distance from 1 - 1/P",
    did=paragraph("""
        A quadratic, 2 to 8 asynchronous workers: the momentum that fits the trajectory, for exponential and constant
        times.
    """),
    changes=(
        "One learning rate was tried, 1.5 / P, at which a constant delay happens to be fitted by another momentum "
        "than 1 - 1 / P; at a rate between 0.6 / P and 1 / P it would have passed for it. There were 16 coordinates.",
    ),
)


def best_momentum(losses: xr.DataArray) -> xr.DataArray:
    """The momentum of the least mean log loss over seeds, each at its own best rate; NaN at an end
    of either grid.
    """
    averaged = mean(losses)
    momentum = inside(averaged.min("lr").idxmin("momentum"), losses["momentum"])
    rate = averaged.idxmin("lr").sel(momentum=momentum.fillna(0.0)).drop_vars("momentum")
    return momentum.where(inside(rate, losses["lr"]).notnull())


def decide_i3(results: StudyResults) -> NumberArrays:
    losses = log(final(results["grid"], "loss"))
    lost = -losses.sel(lr=mean(losses).idxmin("lr")).drop_vars("lr") / UPDATES

    def rise(values: xr.DataArray) -> xr.DataArray:
        return rises(best_momentum(values), "workers")

    def fall(values: xr.DataArray) -> xr.DataArray:
        momenta = best_momentum(values)
        return at(momenta, workers=16) - at(momenta, workers=1)

    each = {
        f"best_{workers}": Joint(best_momentum, at(losses, workers=workers)) for workers in WORKERS
    }
    of_one = at(lost, workers=16, momentum=0.8) / at(lost, workers=16, momentum=0.0)
    return {
        "rise": Joint(rise, losses),
        "fall": Joint(fall, losses),
        **each,
        "of_one": of_one,
        "lost": lost / mean(lost).max("momentum"),
    }


WORKERS = [1, 2, 4, 8, 16]
UPDATES = 800
I3 = Claim(
    id="I3",
    paper=PAPER,
    question="Does the best explicit momentum fall as asynchronous workers are added?",
    says=paragraph("""
        asynchrony brings momentum of its own, so that the best explicit momentum falls as workers are added; with
        many of them it may be negative.
    """),
    basis="quadratic",
    mark="notes",
    setting=paragraph("""
        a quadratic of 20 coordinates, condition 100, without noise; an asynchronous server, 1 to 16 workers with
        exponential times; the log of the loss after 800 updates, averaged over 40 timelines, for momenta from -0.8 to
        0.9, each at its best of thirty learning rates from 0.025 to 3.8, a fourth root of 2 apart. One worker is
        gradient descent with momentum, for which the best is 0.67 [derived].
    """),
    studies={
        "grid": Study(
            config={
                "cluster": {"workers": 1, "compute": {"law": "exponential", "mean": 0.01}},
                "algorithm": {"name": "async_ps"},
                "task": {
                    "model": "quadratic",
                    "dim": 20,
                    "condition": 100,
                    "noise": 0.0,
                    "dtype": "float64",
                },
                "learning": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.0},
                "stop": {"updates": UPDATES},
                "evaluate": {"every_updates": UPDATES},
                "sweep": {
                    "cluster.workers": WORKERS,
                    "learning.lr": [float(f"{0.025 * 2 ** (step / 4):.3g}") for step in range(30)],
                    "learning.momentum": [-0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 0.9],
                    "seeds": 40,
                },
            },
            smoke={
                "stop.updates": 50,
                "evaluate.every_updates": 50,
                "sweep.learning.lr": [0.1, 0.2, 0.4],
                "sweep.learning.momentum": [-0.2, 0.0, 0.8],
                "sweep.seeds": 2,
            },
        )
    },
    decide=decide_i3,
    criteria=(
        Criterion(
            "rise",
            "greatest rise of the best momentum from one number of workers to the next",
            at_most=0.0,
        ),
        Criterion("fall", "best momentum at P = 16 minus that at P = 1", at_most=-0.2),
    ),
    beside={
        "best_1": "best momentum, P = 1",
        "best_2": "best momentum, P = 2",
        "best_4": "best momentum, P = 4",
        "best_8": "best momentum, P = 8",
        "best_16": "best momentum, P = 16",
        "of_one": "P = 16: decay of the log loss at momentum 0.8 over that at 0",
    },
    figure=Picture(
        of="lost",
        x="momentum",
        y="fall of the log loss an update (best: 1)",
        lines="workers",
        xlabel="explicit momentum",
    ),
    notes=paragraph("""
        With many workers momenta from -0.8 to 0.2 are nearly as good, so that the best of them is uncertain.
    """),
    headline="greatest rise of the best momentum",
    did=paragraph("""
        Decay of the loss of a quadratic without noise, 1 to 16 asynchronous workers with exponential times, momentum at
        its best rate.
    """),
    changes=(
        "The loss after 500 updates with noise 0.05 was looked at, which is the floor that noise leaves and not the "
        "rate of decay; momentum could not be negative; 6 timelines, learning rates a factor of 2 apart.",
        "20 timelines and rates a root of 2 apart left the rise open (0, from 0 to 0.2): between 8 and 16 workers, "
        "where momenta are nearly as good, the steps of the grid decided.",
    ),
)


CLAIMS = (I2, I3)
