"""Laws of random durations, in seconds; each knows its mean and standard deviation."""

from simulator.laws.heavy import LogNormal, Pareto
from simulator.laws.law import BLOCK, Durations, Law, Machines, Scaled, Seconds, on_a_machine
from simulator.laws.light import Constant, Exponential, Gamma, Normal, ShiftedExponential, TwoPoint, Uniform
from simulator.laws.machines import Trace, TwoLevelGamma

LAWS: dict[str, type] = {
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
    "trace": Trace,
}

__all__ = [
    "BLOCK", "LAWS", "Constant", "Durations", "Exponential", "Gamma", "Law", "LogNormal", "Machines", "Normal",
    "Pareto", "Scaled", "Seconds", "ShiftedExponential", "Trace", "TwoLevelGamma", "TwoPoint", "Uniform",
    "on_a_machine",
]  # fmt: skip
