"""All tensors that a simulation can still use, in an order that repeats.

Two runs with the same events reach the same objects in the same order, so that tensor n of one is
tensor n of the other.
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
"""Types whose objects are not entered: code, errors, and caches of functions, which depend on
earlier runs of the process.
"""
LEAVES = (int, float, complex, str, bytes, bytearray, np.generic, type(None))
UNREACHED: dict[type, set[str]] = {
    Simulation: {"_task", "_watch", "_stop", "_criteria", "_time_limit", "snapshots"},
    Counters: {"_task", "most_computed"},
    GradientPool: {"task", "_max_pending"},
    Learning: {"task"},
    Machine: {"_batches"},
}
"""Attributes that are not followed.

The process that resumes a run has its own task, limits and callbacks. The limits of pending
gradients depend on its free memory. It repeats the draws of the iterators of batches.
"""


class Reached:
    """All objects that a simulation refers to, from its events and the frames of its roles on.

    Attributes:
        tensors: each memory once, in the order in which it is reached.
        fingerprint: SHA-256 of the types reached, of their references, and of all numbers outside
            tensors: the clock, the trace, counters, variables of the roles. Two runs with the same
            fingerprint have the same events up to now, and differ only in the values of `tensors`.

    Raises:
        TypeError: objects lie in a set, which has no order.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._digest = sha256()
        self._memories: dict[Any, int] = {}
        self.tensors: list[Tensor] = []
        pending: list[Any] = [simulation]
        numbers = {id(simulation): 0}  # by identity, which holds as long as `pending` does
        for entered in pending:
            for part in self._parts(entered):
                if isinstance(part, LEAVES):
                    if not isinstance(part, bytearray):  # the trace, which may be large
                        part = repr(part).encode()
                    self._digest.update(part)
                    continue
                number = numbers.setdefault(id(part), len(numbers))
                self._digest.update(f"{type(part).__qualname__} {number};".encode())
                # A new object gets the next number, which is its place in `pending`.
                if number == len(pending):
                    pending.append(part)
        self.fingerprint = self._digest.hexdigest()

    def _parts(self, owner: Any) -> Iterator[Any]:
        """The objects that `owner` refers to, in an order that follows from the run's events."""
        if isinstance(owner, OPAQUE):
            return
        if isinstance(owner, FunctionType):  # without the names of its module
            yield from (owner.__closure__, owner.__defaults__, owner.__kwdefaults__)
        elif isinstance(owner, np.ndarray):
            yield from (owner.dtype.str, owner.shape, owner.tobytes())
        elif isinstance(owner, np.random.Generator):
            yield repr(owner.bit_generator.state)
        elif isinstance(owner, set | frozenset):
            types = {type(item).__name__ for item in owner if not isinstance(item, int)}
            if types:
                raise TypeError(f"a set of {', '.join(types)}")
            yield from sorted(owner)
        elif owner is self._simulation.env._queue:
            for entry in sorted(owner):
                if entry[-1] is not self._simulation._time_limit:
                    yield entry
        else:
            if isinstance(owner, Tensor):
                yield from self._describe(owner)
            yield from self._references(owner)

    def _references(self, owner: Any) -> Iterator[Any]:
        """Attributes and items with their names, in their order; then all other references.

        Python's garbage collector knows all references, but not in an order that repeats.
        """
        attributes = getattr(owner, "__dict__", {})
        left_out = next((names for kind, names in UNREACHED.items() if isinstance(owner, kind)), ())
        for name, value in attributes.items():
            if name not in left_out:
                yield from (name, value)
        if isinstance(owner, dict):
            for name, value in owner.items():
                yield from (name, value)
            return
        # The collector names the attributes again, and their dictionary.
        reached = {id(value) for value in attributes.values()} | {id(attributes)}
        for other in gc.get_referents(owner):
            # Both differ between a run and its repetition. A generator has a frame object only
            # once a debugger or a profiler has looked at it. It refers to None once it has caught
            # an error, as one from computing a gradient, and a repetition computes no gradients.
            if isinstance(owner, GeneratorType) and isinstance(other, FrameType | None):
                continue
            if id(other) not in reached:
                yield other

    def _describe(self, tensor: Tensor) -> Iterator[Any]:
        """Shape, type and memory of a tensor; it joins `tensors` if its memory is new."""
        layout = tuple(tensor.shape), tensor.stride(), str(tensor.dtype), str(tensor.device)
        memory = tensor.data_ptr(), *layout
        if memory not in self._memories:
            self._memories[memory] = len(self._memories)
            self.tensors.append(tensor)
        yield from (*layout, self._memories[memory])
