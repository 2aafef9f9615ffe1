"""The origin of a result: versions, checkout, machine, and the arithmetic of its gradients.

Where these differ, results with one id may differ in their last digits; a remark says so.
"""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from subprocess import CalledProcessError, run
from typing import Any

import laggard
from laggard.experiments.results.result import Result
from laggard.models.backends import COMPILED, UNCOMPILED
from laggard.simulator import Task

LIBRARIES = ("numpy", "pyarrow", "safetensors", "simpy", "torch")
AUTOGRAD = "autograd"
"""The arithmetic of a task that does not tell its own."""
COMMIT_DIGITS = 12


def machine_and_versions(task: Task) -> dict[str, Any]:
    """The machine, versions and arithmetic on which the last bits of a result may depend."""
    import torch

    from laggard.models.backends.batched import describe

    device = getattr(task, "device", torch.device("cpu"))
    return {
        "arithmetic": getattr(task, "arithmetic", AUTOGRAD),
        "device": describe(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {"python": platform.python_version(), **versions()},
        "commit": commit(),
    }


@cache
def versions() -> Mapping[str, str]:
    """The versions of laggard and of its dependencies, by name.

    Reading them takes 3 ms, a sixth of the shortest run.
    """
    libraries = {library: metadata.version(library) for library in LIBRARIES}
    return {"laggard": laggard.__version__, **libraries}


@cache
def commit() -> str:
    """The commit of the checkout that this process runs, with a hash of its changes since.

    Empty where laggard is installed without a checkout, or where git cannot tell.
    """
    root = Path(laggard.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    git = ["git", "-C", str(root)]
    try:
        head = run([*git, "rev-parse", "HEAD"], capture_output=True, check=True).stdout
        changes = run([*git, "diff", "HEAD", "--", "*.py"], capture_output=True, check=True).stdout
    except (OSError, CalledProcessError):
        return ""
    text = head.decode().strip()[:COMMIT_DIGITS]
    if changes:
        text += f"+{sha256(changes).hexdigest()[:COMMIT_DIGITS]}"
    return text


def describe_origins(results: Sequence[Result]) -> str:
    """The remarks that a reader needs on how results were made; empty if there are none.

    They name versions and checkouts other than this process's, arithmetic other than the config
    asks for or laggard prefers, and mixtures of these.
    """
    facts = [*_other_versions(results), *_other_arithmetic(results), *_mixtures(results)]
    if not facts:
        return ""
    return f"of {len(results)} runs {'; '.join(facts)}"


def _other_versions(results: Sequence[Result]) -> list[str]:
    current = laggard.__version__
    makers = Counter[str]()
    for result in results:
        checkout = result.manifest.get("commit", "")
        if result.version != current:
            makers[result.version] += 1
        elif checkout not in ("", commit()):
            makers[f"{current} at {checkout}"] += 1
    if not makers:
        return []
    listed = ", ".join(f"{number} by laggard {maker}" for maker, number in makers.items())
    if commit():
        current = f"{current} at {commit()}"
    return [f"{listed}; this is laggard {current}"]


def _other_arithmetic(results: Sequence[Result]) -> list[str]:
    counts = Counter[str]()
    for result in results:
        backend = result.manifest.get("backend")
        asked = result.setting("backend")
        if backend and asked not in ("auto", backend):
            counts[f"by the backend {backend}, not {asked}"] += 1
        if result.manifest.get("arithmetic") == UNCOMPILED:
            counts[f"by {UNCOMPILED}, so that last digits differ"] += 1
    return [f"{number} {text}" for text, number in counts.items()]


def _mixtures(results: Sequence[Result]) -> list[str]:
    """Remarks on origins in which the results differ although no config decides them."""
    circumstances = {"torch": Counter[str](), "cpu": Counter[str](), "compiler": Counter[str]()}
    for result in results:
        manifest = result.manifest
        circumstances["torch"][f"with torch {manifest['versions']['torch']}"] += 1
        circumstances["cpu"][f"on {manifest['cpu_capability']}"] += 1
        arithmetic = manifest.get("arithmetic", "")
        if arithmetic.startswith(COMPILED):
            circumstances["compiler"][arithmetic] += 1
    mixtures = [counts for counts in circumstances.values() if len(counts) > 1]
    return [", ".join(f"{count} {text}" for text, count in counts.items()) for counts in mixtures]
