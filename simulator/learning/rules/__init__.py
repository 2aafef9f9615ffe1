"""Rules: what gradients do to weights. Pure functions of tensors `(ensemble, params)`."""

from laggard.simulator.learning.rules.clipping import CLIPS, ClipNorm, ClipValue, Unclipped
from laggard.simulator.learning.rules.compensations import COMPENSATIONS, DCASGDa, DCASGDc, GapAware
from laggard.simulator.learning.rules.damping import (
    DelayAdaptive,
    OneOverN,
    Staleness,
    Uncompensated,
)
from laggard.simulator.learning.rules.optimizers import (
    OPTIMIZERS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Nesterov,
    RMSProp,
)
from laggard.simulator.learning.rules.rule import Rule, RuleState
from laggard.simulator.learning.rules.schedules import (
    SCHEDULES,
    Chained,
    Constant,
    Cosine,
    Progress,
    Step,
    WarmUp,
)

__all__ = [
    "CLIPS",
    "COMPENSATIONS",
    "OPTIMIZERS",
    "SCHEDULES",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Chained",
    "ClipNorm",
    "ClipValue",
    "Constant",
    "Cosine",
    "DCASGDa",
    "DCASGDc",
    "DelayAdaptive",
    "GapAware",
    "Nesterov",
    "OneOverN",
    "Progress",
    "RMSProp",
    "Rule",
    "RuleState",
    "Staleness",
    "Step",
    "Unclipped",
    "Uncompensated",
    "WarmUp",
]
