"""Rules: what gradients do to weights. Pure functions of tensors `(ensemble, params)`."""

from laggard.simulator.learning.rules.clipping import CLIPS, ClipNorm, ClipValue, Unclipped
from laggard.simulator.learning.rules.compensations import DCASGDa, DCASGDc, GapAware
from laggard.simulator.learning.rules.contrib.lion import Lion
from laggard.simulator.learning.rules.contrib.muon import Muon
from laggard.simulator.learning.rules.contrib.rescaled import Rescaled
from laggard.simulator.learning.rules.damping import (
    DelayAdaptive,
    OneOverN,
    Staleness,
    Uncompensated,
)
from laggard.simulator.learning.rules.optimizers import (
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

OPTIMIZERS: dict[str, type] = {
    "sgd": SGD,
    "nesterov": Nesterov,
    "adagrad": Adagrad,
    "rmsprop": RMSProp,
    "adam": Adam,
    "adamw": AdamW,
    "lion": Lion,
    "muon": Muon,
}
COMPENSATIONS: dict[str, type] = {
    "none": Uncompensated,
    "staleness": Staleness,
    "one_over_n": OneOverN,
    "delay_adaptive": DelayAdaptive,
    "dc_asgd_c": DCASGDc,
    "dc_asgd_a": DCASGDa,
    "gap_aware": GapAware,
    "rescaled": Rescaled,
}

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
    "Lion",
    "Muon",
    "Nesterov",
    "OneOverN",
    "Progress",
    "RMSProp",
    "Rescaled",
    "Rule",
    "RuleState",
    "Staleness",
    "Step",
    "Unclipped",
    "Uncompensated",
    "WarmUp",
]
