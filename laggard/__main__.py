"""`laggard`, and `python -m laggard`: Ctrl-C and SIGTERM end the process in one line, from its
first moment on.

Worker processes start here too, so the first imports must be few.
"""

import os
import signal
import sys
import warnings
from typing import NoReturn

SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""The signals of Ctrl-C and of batch systems that end a job, and the line for each."""
WATCHED = 0.5  # seconds between two checks that the parent of a worker process is alive


def shorten_warnings() -> None:
    """Print each warning as one line from now on, without its place in the code, and only once.

    The parts of a config are built several times, and each time their files may be read. Python's
    own "once" forgets what it has shown whenever a library changes the filters for a moment.
    """
    shown = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = f"warning: {message}\n"
        if text not in shown:
            shown.add(text)
            sys.stderr.write(text)

    warnings.showwarning = show
    warnings.simplefilter("always", UserWarning)


def block_signals() -> None:
    """Block Ctrl-C and SIGTERM for good. While Python exits, they would kill it silently."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def leave(number: int, _: object = None) -> NoReturn:
    """End the process at once; further signals are ignored, since `timeout` sends two."""
    for handled in SIGNALS:
        # SIG_IGN would have Python complain about a signal that waits already
        signal.signal(handled, lambda *_: None)
    os.write(2, f"{SIGNALS[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


def start_worker(parent: int) -> None:
    """Have this process ignore Ctrl-C, print warnings as the command does, and exit once the
    process `parent` has exited.
    """
    import threading
    import time

    def exit_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(WATCHED)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shorten_warnings()
    threading.Thread(target=exit_with_parent, daemon=True).start()


def entry() -> int:
    """Run the command line as a separate process; signals are handled before its long imports."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)
    from laggard.experiments import cli

    return cli.entry()


if __name__ == "__main__":
    sys.exit(entry())
