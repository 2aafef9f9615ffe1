"""Worker processes and Ctrl-C: they ignore it, end with their parent, and are killed when it is interrupted."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children

from laggard.__main__ import shorten_warnings

WATCHED, KILLED = 0.5, 0.05
"""Seconds between two checks that the parent process is alive, and between two looks for workers to be killed."""


def start_worker(parent: int) -> None:
    """Have this process ignore Ctrl-C, print warnings as the command does, and exit once the process `parent` has."""

    def exit_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(WATCHED)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shorten_warnings()
    threading.Thread(target=exit_with_parent, daemon=True).start()


@contextmanager
def block_interrupt() -> Iterator[None]:
    """Block Ctrl-C in this context, and so in the processes that are started in it, which inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupt_by_killing(interrupts: list[int]) -> Iterator[None]:
    """Have Ctrl-C, and SIGTERM where it is handled, kill loky's workers; KeyboardInterrupt is raised at the end.

    An exception in the middle of loky leaves its locks taken, so that the process hangs at its exit. Workers that die
    are an event that loky expects at any moment. Those that it is starting meanwhile are killed too.

    Args:
        interrupts: the numbers of the signals are appended.
    """
    from joblib.externals.loky.backend.process import LokyProcess

    def kill_workers() -> None:
        while not over.wait(KILLED):
            for child in active_children() if interrupts else ():
                if isinstance(child, LokyProcess):
                    with suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL)

    if threading.current_thread() is not threading.main_thread():
        yield  # no signal is handled here
        return
    over, thread = threading.Event(), threading.Thread(target=kill_workers, daemon=True)
    thread.start()
    handlers = {of: signal.getsignal(of) for of in (signal.SIGINT, signal.SIGTERM)}
    handlers = {of: handler for of, handler in handlers.items() if callable(handler)}
    for of in handlers:
        signal.signal(of, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        for of, handler in handlers.items():
            signal.signal(of, handler)
        over.set()
        thread.join()
        if interrupts:
            raise KeyboardInterrupt(interrupts[0])
