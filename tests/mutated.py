"""Configs at random: built from what the schema knows, then mutated in a value, a key or a
character.
"""

import random
from copy import deepcopy
from typing import Any

from laggard.experiments.config.cluster import NETWORK
from laggard.experiments.config.document import text_of
from laggard.experiments.config.parts import ALGORITHM, COMPENSATION, LEARNING

LAWS = [
    {"law": "constant", "mean": 0.01}, {"law": "gamma", "mean": 0.01, "cv": 0.3}, {"law": "exponential", "mean": 0.01},
    {"law": "uniform", "low": 0.005, "high": 0.02}, {"law": "pareto", "scale": 0.01, "alpha": 2.5},
    {"law": "lognormal", "mean": 0.01, "cv": 1.0}, {"law": "two_point", "usual": 0.01, "factor": 5, "probability": 0.1},
]  # fmt: skip
COSTS = [
    0.0,
    0.001,
    0.01,
    {"law": "gamma", "mean": 0.005, "cv": 0.5},
    {"law": "exponential", "mean": 0.001},
]
"""Seconds that are a number or a law."""
STOPS = [
    {"updates": 20},
    {"gradients": 50},
    {"time": 0.2},
    {"epochs": 1},
    {"accuracy": 0.9, "updates": 20},
]
TASKS = [
    {"model": "quadratic", "dim": 8, "noise": 0.1, "epoch": 20}, {"model": "timing", "batch": 32, "epoch": 320},
    {"model": "tridiagonal", "dim": 8, "noise": 0.1, "epoch": 20},
    {"model": "logistic", "dataset": {"name": "synthetic", "samples": 40, "features": 4}, "batch": 4},
    {"model": "mlp", "hidden": [5, 4], "dataset": {"name": "synthetic", "samples": 40}, "batch": 4,
     "partition": "disjoint", "loss": {"smoothing": 0.1, "regularizer": 0.01}},
]  # fmt: skip
SLOWDOWNS = [
    {"worker": 0, "factor": 5}, {"worker": 0, "factor": 2, "start": 0.1, "end": 0.2}, {"worker": 0, "at": 0.1},
    {"kind": "markov", "worker": 0, "factor": 3, "slow_for": 0.1, "fast_for": 0.1},
]  # fmt: skip
VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 17, 1e-17, 5e-324, 1e308, -1e308, 0.5, float("inf"), float("nan"), 2**31, 2**63,
    2**64, -(2**63), 10**9, 10**12, 10**300, "", "x", "1e-3", "sync_ps", "ring", "../up", "$x_$", "<b>", "x" * 5000,
    "\x1b[31m", "a:b", "a.b", [], [1], [[]], ["x", None], {}, {"name": "x"}, {"sweep": {"seed": [1, 2]}},
]  # fmt: skip
FAILURES = [
    {},
    {"server_crashes": [{"at": 0.02, "restore_seconds": 0.01}], "checkpoint": {"every_updates": 3}},
    {
        "server_crashes": [{"uptime": {"law": "exponential", "mean": 0.05}}],
        "checkpoint": {"every_seconds": 0.01},
    },
]
RECIPES = [
    {"weight_decay": 0.01, "clip": {"norm": 0.5}}, {"clip": {"value": 0.1}},
    {"schedule": [{"name": "warmup", "length": 0.5}, {"name": "step", "at": [0.5, 1]}]},
]  # fmt: skip
KEYS = [
    "sweep",
    "name",
    "seed",
    "seeds",
    "zip",
    "most",
    "workers",
    "",
    ".",
    "..",
    "learning..lr",
    "a" * 1000,
    "lr",
    "0",
]
CHARACTERS = "[]{}:,&*!|>'\"%@`#\n\t -0a\x00\u0085\ud800"


def plain_config(rng: random.Random) -> dict[str, Any]:
    """A config of which most can run: a method, topology, law, task, rule and limit at random."""
    name = rng.choice(list(ALGORITHM.parts))
    topology = rng.choice(
        ["auto", "auto", *(name for name in NETWORK.parts if name not in ("graph", "time_varying"))]
    )
    return {
        "cluster": {
            "workers": 1 if name.startswith("delayed") else rng.choice([1, 2, 3, 4]),
            "compute": rng.choice(LAWS),
            **{
                f"{key}_seconds": rng.choice(COSTS)
                for key in rng.sample(["apply", "receive", "reply"], rng.choice([0, 0, 1, 3]))
            },
            "slowdowns": rng.sample(SLOWDOWNS, rng.choice([0, 0, 1, 2])),
            **(rng.choice(FAILURES) if ALGORITHM.parts[name].recipe.recovers else {}),
            "network": {
                "topology": topology,
                **rng.choice(
                    [{}, {}, {"server_latency": rng.choice(COSTS)}, {"latency": rng.choice(COSTS)}]
                ),
                **rng.choice(
                    [
                        {},
                        {"latency": 0.001},
                        {"bandwidth": 1e6, "message_bytes": 1e3, "sharing": "fifo"},
                    ]
                ),
                **rng.choice([{}, {}, {"colocated": True}, {"wiring": "pairs"}]),
            },
        },
        "algorithm": {"name": name},
        "task": rng.choice(TASKS),
        "learning": {
            "optimizer": rng.choice(list(LEARNING.parts)),
            "lr": 0.01,
            **rng.choice([{}, {}, *RECIPES]),
        },
        "stop": rng.choice(STOPS),
        "evaluate": rng.choice([{}, {"every_updates": 5}, {"every_seconds": 0.05}]),
        "seed": rng.randrange(100),
    }


def defaults(choice: Any, rng: random.Random) -> dict[str, Any]:
    """One of a choice's parts, with the keys that have defaults."""
    name = rng.choice(list(choice.parts))
    fields = choice.parts[name].model_fields
    return {
        choice.tag: name,
        **{
            key: deepcopy(field.default) for key, field in fields.items() if not field.is_required()
        },
    }


def mutated_config(seed: int) -> str:
    """The text of a config with one to three mutations."""
    rng = random.Random(seed)
    document = plain_config(rng)
    document["learning"] |= rng.choice(
        [{}, {"compensation": rng.choice(list(COMPENSATION.parts))}, *RECIPES]
    )
    document = deepcopy(document)  # else mutations of one config would be in all that follow
    if rng.random() < 0.3:
        document["algorithm"] = defaults(ALGORITHM, rng)
    if rng.random() < 0.2:
        document["sweep"] = {"learning.lr": [0.01, 0.02], "seed": [1, 2]}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        mutate(document, rng)
    text = text_of(document)
    for _ in range(rng.choice([0, 0, 0, 0, 0, 1, 2])):
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice(CHARACTERS) + text[place + rng.choice([0, 1, 9]) :]
    return text


def mutate(part: Any, rng: random.Random) -> None:
    """Change a value, add a key, drop one or rename one, somewhere in `part`."""
    deeper = [
        value
        for value in (part.values() if isinstance(part, dict) else part)
        if isinstance(value, dict | list)
    ]
    if deeper and rng.random() < 0.9:
        mutate(rng.choice(deeper), rng)
    elif isinstance(part, list):
        part.insert(rng.randint(0, len(part)), rng.choice(VALUES))
    elif not part or rng.random() < 0.1:
        part[rng.choice(KEYS)] = rng.choice(VALUES)
    else:
        key = rng.choice(list(part))
        value = part.pop(key)
        if rng.random() < 0.9:
            part[key] = another(value, rng)
        elif rng.random() < 0.5:
            part[rng.choice(KEYS)] = value


def another(value: Any, rng: random.Random) -> Any:
    """Another value, mostly of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str) and rng.random() < 0.6:
        return value
    if not isinstance(value, int | float) or rng.random() < 0.2:
        return rng.choice(VALUES)
    if isinstance(value, int):
        return rng.choice(
            [value + 1, value - 1, 2 * value, 10 * value, 10**4 * value, 10**9 * value]
        )
    return value * 10 ** rng.choice([-300, -20, -9, -3, -1, 1, 2, 3, 9, 20, 300])
