"""Rules: what gradients do to weights. Pure functions of tensors `(ensemble, params)`; no clock."""

from simulator.rules.compensations import COMPENSATIONS, DCASGDa, DCASGDc, OneOverN, Staleness, Uncompensated
from simulator.rules.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, AdamW, Nesterov, RMSProp
from simulator.rules.rule import Rule, RuleState, mean, total
from simulator.rules.schedules import SCHEDULES, Constant, Cosine, Progress, Step, WarmUp

__all__ = [
    "COMPENSATIONS", "OPTIMIZERS", "SCHEDULES", "SGD", "Adagrad", "Adam", "AdamW", "Constant", "Cosine", "DCASGDa",
    "DCASGDc", "Nesterov", "OneOverN", "Progress", "RMSProp", "Rule", "RuleState", "Staleness", "Step", "Uncompensated",
    "WarmUp", "mean", "total",
]  # fmt: skip
