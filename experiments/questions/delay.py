"""Constant delays: which rate they force, how many workers pay, and what they cost."""

import pandas as pd

from laggard.experiments.questions.numbers import (
    at_best,
    by_seed,
    choose,
    paired,
    reporting,
    select,
)
from laggard.experiments.questions.question import Answer, Question, Study
from laggard.experiments.questions.words import Estimate, ratio

NAMES = {"momentum": "SGD with momentum", "adam": "Adam"}
WORKERS = {"cluster.workers": "a constant delay stands for the workers"}
TARGET = "epochs_to_"


def targets_of(table: pd.DataFrame) -> list[float]:
    """The targets of a table's epochs to a target, the highest first."""
    measures = table.loc[table["measure"].str.startswith(TARGET), "measure"].unique()
    return sorted((float(measure.removeprefix(TARGET)) for measure in measures), reverse=True)


def epochs_at_best(table: pd.DataFrame, target: float) -> pd.DataFrame:
    """Epochs to a target, of each optimiser and delay at the rate that is best for that time."""
    measure = f"{TARGET}{target:g}"
    chosen = choose(table, measure, "updates", settings=["optimiser", "delay"])
    rows, _ = reporting(select(table, measure=measure))
    return at_best(rows, chosen)


def speed_up(epochs: pd.DataFrame, optimiser: str, delay: float, measure: str) -> Estimate:
    """How much sooner D + 1 equal workers get there than one: (D + 1) e(0) / e(D).

    e(D) are the epochs to the target at a delay of D updates; D + 1 workers take D + 1 times as
    many gradients a second.
    """
    alone = by_seed(epochs, measure, optimiser=optimiser, delay=0)
    together = by_seed(epochs, measure, optimiser=optimiser, delay=delay)
    one, many = paired(alone, together)
    return ratio((delay + 1) * one, many)


def decide_speedup(table: pd.DataFrame) -> list[Answer]:
    """By optimiser, the greatest speed-up to the highest target."""
    _, seen = reporting(table)
    target = targets_of(table)[0]
    measure = f"{TARGET}{target:g}"
    epochs = epochs_at_best(table, target)
    answers = []
    for optimiser, bar in (("adam", 256), ("momentum", 32)):
        own = select(epochs, optimiser=optimiser)
        found = {
            delay: speed_up(epochs, optimiser, delay, measure)
            for delay in sorted(own["delay"].unique())
            if delay > 0
        }
        within = {delay: number for delay, number in found.items() if not number.missing}
        if not within:
            continue
        top = max(within, key=lambda delay: within[delay].mean.value)
        never = [delay for delay in found if delay not in within]
        says = f"{NAMES[optimiser]}: up to {top + 1:g}"
        if never:
            says += f"; with {min(never) + 1:g} not all seeds get there within the budget"
        answers.append(
            Answer(
                asks="How many workers pay?",
                says=says,
                number=within[top],
                unit=f"times sooner at {target:.0%}",
                paper=f"{NAMES[optimiser]} bears delays up to {bar}",
                mark="notes",
                seen=seen,
                wants=within[top].mean.value * 0.2,
                beside={f"with {delay + 1:g} workers": number for delay, number in found.items()},
            )
        )
    return answers


SPEEDUP = Question(
    name="delay-speedup",
    asks="How many workers pay?",
    topic="delay",
    setting="LeNet-5, MNIST, batch 32, constant delays, at most 30 epochs",
    papers=("srinivasan2018",),
    studies={"targets": Study("delay-speedup", ("epochs_to",))},
    decide=decide_speedup,
    fixed=WORKERS,
)
QUESTIONS = (SPEEDUP,)
