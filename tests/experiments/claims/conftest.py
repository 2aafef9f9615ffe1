"""A claim of one's own, as a module of its own."""

import pytest

CLAIM = """\
from laggard.experiments.claims.claim import Claim, Criterion, Paper, Study, Tuning
from laggard.experiments.claims.exhibits import Picture
from laggard.experiments.claims.statistics import at, final

QUADRATIC = {
    "cluster": {"workers": 2},
    "task": {"model": "quadratic", "dim": 4, "noise": 0.1, "jitter": 0.1},
    "stop": {"updates": 60},
}
PACES = {"slow": {"learning.momentum": 0.0}, "quick": {"learning.momentum": 0.5}}


def decide(results):
    loss = final(results["report"], "loss")
    return {"slow": at(loss, pace="slow"), "quick": at(loss, pace="quick"), "loss": loss}


Z1 = Claim(
    id="Z1",
    paper=Paper("dean2012", "Dean et al.", 2012, "Large scale distributed deep networks", "NeurIPS"),
    question="Is a step of half the curvature's inverse faster than one of a tenth?",
    says="nothing of the kind",
    basis="quadratic",
    did="a noisy quadratic, in short",
    mark="derived",
    setting="a noisy quadratic",
    studies={
        "tuning": Study(
            config={**QUADRATIC, "sweep": {"pace": PACES, "learning.lr": [0.0001, 0.1, 3.5], "seed": [7, 8]}},
            cpu={"stop.updates": 50},
        ),
        "report": Study(
            config={**QUADRATIC, "sweep": {"pace": PACES, "seeds": 3}},
            smoke={"sweep.seeds": 2},
            tuned=Tuning(on="tuning", by="loss"),
        ),
    },
    decide=decide,
    criteria=(
        Criterion("slow", "loss of the slow", at_most=1.5),
        Criterion("quick", "loss of the quick", at_most=1.0),
    ),
    beside={"slow": "loss of the slow"},
    figure=Picture(of="loss", x="pace", y="test loss", log_y=True),
)
CLAIMS = (Z1,)
"""


@pytest.fixture
def folder(tmp_path):
    """Claims of one's own: writes Z1, with its text changed."""
    own = tmp_path / "claims"
    own.mkdir()

    def write(*changes):
        text = CLAIM
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (own / "z1.py").write_text(text)
        return own

    return write
