"""What a worker process of a sweep does: it simulates one run after the other, and never outlives its sweep."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

WATCHED = 0.5  # seconds between two looks at the process that the worker works for


class Errand(NamedTuple):
    """A run to be simulated elsewhere, as plain data.

    Attributes:
        number: of the run in its sweep.
        document: the run's config.
        folders: where modules are looked for.
        out: the absolute path of the folder of results.
        force: whether to simulate again what is there already.
    """

    number: int
    document: Mapping[str, Any]
    folders: tuple[str, ...]
    out: str
    force: bool


class Done(NamedTuple):
    """How an errand went: the seconds of wall time that it took, and what went wrong, if anything did."""

    number: int
    seconds: float
    failure: str = ""


def carry_out(errand: Errand) -> Done:
    """Simulate a run and keep its result; what goes wrong is told, not raised."""
    from experiments import plugins
    from experiments.config import parse
    from experiments.runs import simulated
    from experiments.underway import noting

    start = perf_counter()
    try:
        for folder in errand.folders:
            plugins.look_in(Path(folder))
        simulated(parse(errand.document), {}, errand.out, errand.force, partial(noting, out=errand.out))
    except Exception as error:  # whatever it is, it must not cost the night's other runs
        return Done(errand.number, perf_counter() - start, line(error))
    return Done(errand.number, perf_counter() - start)


def line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def begin(parent: int) -> None:
    """Have this process leave Ctrl-C to `parent`, and end as soon as that has ended, however that came about."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCHED)
    os._exit(1)
