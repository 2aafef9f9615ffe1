"""Rules: what gradients do to weights. Pure functions of tensors `(ensemble, params)`."""

from laggard.simulator.learning.rules.compensations import COMPENSATIONS, DCASGDa, DCASGDc, GapAware
from laggard.simulator.learning.rules.damping import DelayAdaptive, OneOverN, Staleness, Uncompensated
from laggard.simulator.learning.rules.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, AdamW, Nesterov, RMSProp
from laggard.simulator.learning.rules.rule import Rule, RuleState, mean, total
from laggard.simulator.learning.rules.schedules import SCHEDULES, Constant, Cosine, Progress, Step, WarmUp

__all__ = [
    "COMPENSATIONS", "OPTIMIZERS", "SCHEDULES", "SGD", "Adagrad", "Adam", "AdamW", "Constant", "Cosine", "DCASGDa",
    "DCASGDc", "DelayAdaptive", "GapAware", "Nesterov", "OneOverN", "Progress", "RMSProp", "Rule", "RuleState",
    "Staleness", "Step", "Uncompensated", "WarmUp", "mean", "total",
]  # fmt: skip
