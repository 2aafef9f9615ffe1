"""Rules: what gradients do to weights. Pure functions of tensors `(ensemble, params)`; no clock."""

from simulator.rules.compensations import COMPENSATIONS, DCASGDa, DCASGDc, GapAware
from simulator.rules.damping import DelayAdaptive, OneOverN, Staleness
from simulator.rules.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, AdamW, Nesterov, RMSProp
from simulator.rules.rule import Rule, RuleState, mean, total
from simulator.rules.schedules import SCHEDULES, Constant, Cosine, Progress, Step, WarmUp
from simulator.rules.uncompensated import Uncompensated

__all__ = [
    "COMPENSATIONS", "OPTIMIZERS", "SCHEDULES", "SGD", "Adagrad", "Adam", "AdamW", "Constant", "Cosine", "DCASGDa",
    "DCASGDc", "DelayAdaptive", "GapAware", "Nesterov", "OneOverN", "Progress", "RMSProp", "Rule", "RuleState",
    "Staleness", "Step", "Uncompensated", "WarmUp", "mean", "total",
]  # fmt: skip
