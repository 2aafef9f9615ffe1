"""All tensors that a simulation can still use, found in an order that is the same in every run of
its events.
"""

import gc
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from hashlib import sha256
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
from torch import Tensor

from laggard.simulator.engine.machine import Machine
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.learning.pool import GradientPool
from laggard.simulator.recording.counters import Counters
from laggard.simulator.recording.metrics import Learning

OPAQUE = (
    type,
    ModuleType,
    CodeType,
    FrameType,
    TracebackType,
    WrapperDescriptorType,
    BaseException,
    _lru_cache_wrapper,
)
"""Code, errors, and caches of functions, which depend on earlier runs of the process."""
LEAVES = (int, float, complex, str, bytes, bytearray, np.generic, type(None))
UNREACHED: dict[type, set[str]] = {
    Simulation: {"_task", "_watch", "_stop", "_criteria", "_time_limit", "snapshots"},
    Counters: {"_task", "most_computed"},
    GradientPool: {"task", "_most"},
    Learning: {"task"},
    Machine: {"_batches"},
}
"""Attributes without state that a later part of the run could need: tasks, limits, free memory,
streams of batches.
"""


class Reached:
    """What a simulation refers to: its events, the frames of its roles, and on to all that they
    hold.

    Attributes:
        tensors: each memory once, in the order in which it is found.
        fingerprint: SHA-256 of the types found, of their references, and of all numbers that are no
            tensor's: the clock, the trace, counters, variables of the roles. Two runs with one
            fingerprint have the same events up to now, and differ in the values of `tensors` alone.

    Raises:
        TypeError: objects lie in a set, which has no order.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._digest = simulation, sha256()
        self._memories: dict[Any, int] = {}
        self.tensors: list[Tensor] = []
        pending: list[Any] = [simulation]
        numbers = {id(simulation): 0}  # by identity, which holds as long as `pending` does
        for found in pending:
            for part in self._parts(found):
                if isinstance(part, LEAVES):
                    self._digest.update(
                        part if isinstance(part, bytearray) else repr(part).encode()
                    )
                    continue
                number = numbers.setdefault(id(part), len(numbers))
                self._digest.update(f"{type(part).__qualname__} {number};".encode())
                if number == len(pending):
                    pending.append(part)
        self.fingerprint = self._digest.hexdigest()

    def _parts(self, found: Any) -> Iterator[Any]:
        """What `found` refers to, in an order that follows from the events of the run."""
        if isinstance(found, OPAQUE):
            return
        if isinstance(found, FunctionType):  # not the names of its module
            yield from (found.__closure__, found.__defaults__, found.__kwdefaults__)
        elif isinstance(found, np.ndarray):
            yield from (found.dtype.str, found.shape, found.tobytes())
        elif isinstance(found, np.random.Generator):
            yield repr(found.bit_generator.state)
        elif isinstance(found, set | frozenset):
            if not all(isinstance(each, int) for each in found):
                raise TypeError(f"a set of {', '.join({type(each).__name__ for each in found})}")
            yield from sorted(found)
        elif found is self._simulation.env._queue:
            yield from (
                entry for entry in sorted(found) if entry[-1] is not self._simulation._time_limit
            )
        else:
            if isinstance(found, Tensor):
                yield from self._describe(found)
            yield from self._references(found)

    def _references(self, found: Any) -> Iterator[Any]:
        """Attributes and items by name and in their order, which Python's collector does not keep;
        then all others.
        """
        named = getattr(found, "__dict__", {})
        left_out = next((names for kind, names in UNREACHED.items() if isinstance(found, kind)), ())
        for mapping in (named, found if isinstance(found, dict) else {}):
            for name, value in mapping.items():
                if name not in left_out:
                    yield from (name, value)
        seen = {id(value) for value in named.values()} | {id(named)}
        if isinstance(found, dict):
            others = []
        else:
            others = gc.get_referents(found)
        if isinstance(found, GeneratorType):
            # it has a frame object only once a debugger or a profiler has looked at it, and refers
            # to None as the error that it handles once an error was caught in it, as in a gradient,
            # which is not computed again
            others = [
                other for other in others if other is not None and not isinstance(other, FrameType)
            ]
        yield from (other for other in others if id(other) not in seen)

    def _describe(self, tensor: Tensor) -> Iterator[Any]:
        """Shape, type and memory of a tensor, which is one of `tensors` unless that memory is
        known.
        """
        layout = tuple(tensor.shape), tensor.stride(), str(tensor.dtype), str(tensor.device)
        memory = tensor.data_ptr(), *layout
        if memory not in self._memories:
            self._memories[memory] = len(self._memories)
            self.tensors.append(tensor)
        yield from (*layout, self._memories[memory])
