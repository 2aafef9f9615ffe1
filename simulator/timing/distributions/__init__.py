"""Distributions of random durations, in seconds, with their means and standard deviations."""

from laggard.simulator.timing.distributions.distribution import (
    Distribution,
    Durations,
    Scaled,
    Seconds,
)
from laggard.simulator.timing.distributions.library import Scipy
from laggard.simulator.timing.distributions.per_machine import Trace, TwoLevelGamma
from laggard.simulator.timing.distributions.standard import (
    Constant,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    Pareto,
    ShiftedExponential,
    TwoPoint,
    Uniform,
)

DISTRIBUTIONS: dict[str, type] = {
    "constant": Constant,
    "uniform": Uniform,
    "normal": Normal,
    "exponential": Exponential,
    "shifted_exponential": ShiftedExponential,
    "gamma": Gamma,
    "two_level_gamma": TwoLevelGamma,
    "lognormal": LogNormal,
    "pareto": Pareto,
    "two_point": TwoPoint,
    "scipy": Scipy,
    "trace": Trace,
}

__all__ = [
    "DISTRIBUTIONS",
    "Constant",
    "Distribution",
    "Durations",
    "Exponential",
    "Gamma",
    "LogNormal",
    "Normal",
    "Pareto",
    "Scaled",
    "Scipy",
    "Seconds",
    "ShiftedExponential",
    "Trace",
    "TwoLevelGamma",
    "TwoPoint",
    "Uniform",
]  # fmt: skip
