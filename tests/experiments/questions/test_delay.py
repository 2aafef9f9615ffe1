"""What decides the questions about constant delays, on made-up numbers."""

import numpy as np
import pytest

from laggard.experiments.questions.delay import decide_speedup
from tests.experiments.questions.made_up import rows, spread, table


def epochs(optimiser: str, delay: int, alone: float, seeds: int, role: str, lr: float):
    return rows(
        "epochs_to_0.98",
        spread(alone, alone / 50, seeds),
        role,
        "targets",
        optimiser=optimiser,
        delay=delay,
        lr=lr,
    )


def speedups(late: float, never: bool = False):
    """Adam and SGD without delay and with 9 workers, which take `late` epochs at the best rate."""
    parts = []
    for optimiser in ("adam", "momentum"):
        for delay, best in ((0, 1.0), (8, late)):
            for lr, factor in ((0.1, 2.0), (0.2, 1.0), (0.4, 3.0)):
                parts.append(epochs(optimiser, delay, best * factor, 3, "tune", lr))
            parts.append(epochs(optimiser, delay, best, 8, "report", 0.2))
        parts.append(epochs(optimiser, 32, 5.0, 3, "tune", 0.2))
        last = epochs(optimiser, 32, 5.0, 8, "report", 0.2)
        if never:
            last["value"] = np.inf
        parts.append(last)
    return table(*parts)


def test_speed_up_is_that_of_the_rates_that_were_chosen():
    """(D + 1) e(0) / e(D) at the chosen rates: 9 * 1 / 3 and 33 * 1 / 5, the greater one first."""
    answers = decide_speedup(speedups(late=3.0))
    assert [answer.number.mean.value for answer in answers] == pytest.approx([6.6, 6.6], rel=1e-9)
    assert answers[0].beside["with 9 workers"].mean.value == pytest.approx(3.0, rel=1e-9)
    assert answers[0].number.seeds == 8
    assert not answers[0].seen


def test_a_target_that_seeds_miss_has_no_speed_up():
    answers = decide_speedup(speedups(late=3.0, never=True))
    assert answers[0].number.mean.value == pytest.approx(3.0, rel=1e-9)
    assert "with 33 not all seeds" in answers[0].says
    assert answers[0].beside["with 33 workers"].missing == 8
