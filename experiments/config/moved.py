"""Keys of version 0.1 that have moved: what is said of them, and how old results are read."""

from collections.abc import Mapping
from typing import Any

DOWNPOUR = {"n_push": 1, "n_fetch": 1, "local_rule": "sgd", "warm_start": 0, "sync_every": None}
SYNCHRONOUS = {
    "wait_for": None,
    "cancel": False,
    "average": "gradients",
    "local_steps": 1,
    "reset": False,
}
"""The keys that `async_ps` and `sync_ps` had in version 0.1, with their defaults."""

LAW_KEYS = {"pareto": {"least": "scale", "tail": "alpha"}, "shifted_exponential": {"tail": "scale"}}

MOVED: Mapping[str, Mapping[str, str]] = {
    "async_ps": {key: f"{{name: downpour, {key}: ...}}" for key in DOWNPOUR},
    "sync_ps": {
        "wait_for": "{name: k_sync, wait_for: ...}",
        "cancel": "{name: k_sync, cancel: ...}",
        "average": "{name: local_sgd, average: ...}",
        "reset": "{name: local_sgd, reset: ...}",
        "local_steps": "{name: sync_ps, accumulate: ...}, or {name: local_sgd, local_steps: ...} to average models",
    },
    **{
        law: {old: f"{{law: {law}, {new}: ...}}" for old, new in keys.items()}
        for law, keys in LAW_KEYS.items()
    },
}
"""Method or law -> key that it had -> how that is written now."""


def upgrade(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config of version 0.1 with the current keys of its `algorithm` and of `cluster.compute`.

    Any other config comes back as it is, also one whose combination of old keys no method has now.
    """
    cluster = document.get("cluster")
    law = cluster.get("compute") if isinstance(cluster, Mapping) else None
    if isinstance(cluster, Mapping) and isinstance(law, Mapping) and law.get("law") in LAW_KEYS:
        keys = LAW_KEYS[law["law"]]
        compute = {keys.get(key, key): value for key, value in law.items()}
        document = {**document, "cluster": {**cluster, "compute": compute}}
    algorithm = document.get("algorithm")
    if not isinstance(algorithm, Mapping) or not set(
        MOVED.get(algorithm.get("name", ""), ())
    ) & set(algorithm):
        return document
    now = (
        _upgrade_async_ps(algorithm)
        if algorithm["name"] == "async_ps"
        else _upgrade_sync_ps(algorithm)
    )
    return document if now is None else {**document, "algorithm": now}


def _upgrade_async_ps(old: Mapping[str, Any]) -> dict[str, Any] | None:
    own, rest = _split(old, DOWNPOUR)
    # where every step fetches, the local rule has no effect
    if {**own, "local_rule": "sgd"} == DOWNPOUR:
        return rest
    return {**rest, **own, "name": "downpour"} if rest.pop("accumulate", 1) == 1 else None


def _upgrade_sync_ps(old: Mapping[str, Any]) -> dict[str, Any] | None:
    own, rest = _split(old, SYNCHRONOUS)
    if own["average"] != "gradients":
        return None if own.pop("cancel") else {**rest, **own, "name": "local_sgd"}
    if own["wait_for"] is None and not own["cancel"]:
        return {**rest, "accumulate": own["local_steps"]}
    wait_for, cancel = own["wait_for"], own["cancel"]
    return (
        {**rest, "name": "k_sync", "wait_for": wait_for, "cancel": cancel}
        if own["local_steps"] == 1
        else None
    )


def _split(
    old: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the keys that have moved, and everything else."""
    own = {key: old.get(key, default) for key, default in defaults.items()}
    return own, {key: value for key, value in old.items() if key not in defaults}
