"""Processes of their own for what is measured in memory or in process time: forked from one that has imports only."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

from experiments.bench.alternation import Late

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
IMPORTED = ["simulator", "experiments.bench.timeline", "experiments.bench.traffic", "experiments.bench.recording"]


class Children:
    """Runs each function that it is given in a fresh process, one after the other."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, function: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs) -> Answer:
        """What `function` answers in a process of its own.

        Raises:
            Late: the process was killed, as one is that outgrows the machine's memory.
        """
        try:
            return self._pool.submit(function, *given, **named).result()
        except BrokenProcessPool:
            raise Late("its process was killed: out of memory?") from None


@contextmanager
def children() -> Iterator[Children]:
    """Fresh processes, as long as they are needed."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        yield Children(pool)
