"""A process in whose forks the k-th operation of a kind fails: `python -m tests.experiments.injecting`.

It reads cases from standard input, one JSON a line: the words of a command, the kind of operation,
the number of the one that fails, and the folder below which files count. It answers each with the
exit code and the lines of standard error, or for the number 0 with how many operations there were.
"""

import _testcapi
import json
import os
import resource
import sys
import tempfile
import threading
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow.parquet  # noqa: F401
from joblib.externals.loky.backend import fork_exec

from laggard.experiments.cli import main

EVENTS = {
    "open": "open",
    "os.rename": "rename",
    "os.mkdir": "mkdir",
    "os.remove": "remove",
    "os.rmdir": "remove",
}
"""Audit events -> the kind of operation."""
ERRORS = {"open": 24, "rename": 5, "mkdir": 28, "remove": 13}


class Injector:
    """Counts operations of a kind, and has one of them fail."""

    def __init__(self, kind, number, folder):
        self.kind, self.number, self.folder = kind, number, folder
        self.counts = Counter[str]()

    def __call__(self, event, arguments):
        kind = EVENTS.get(event)
        if kind is None or not self._is_inside(arguments[0]):
            return
        self.counts[kind] += 1
        if kind == self.kind and self.counts[kind] == self.number:
            code = ERRORS[kind]
            raise OSError(code, os.strerror(code), str(arguments[0]))

    def _is_inside(self, path):
        return isinstance(path, str) and path.startswith(self.folder)


def limit(kind, number):
    """Limit sizes of files or descriptors, or have an allocation or the start of a worker fail."""
    if kind == "write":
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
    elif kind == "descriptors":
        used = len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + number, used + number))
    elif kind == "allocation":
        _testcapi.set_nomemory(number, number + 1)
    elif kind == "fork":
        starts = iter(range(1, number + 1))
        start = fork_exec.fork_exec

        def fail(*arguments, **named):
            if next(starts, 0) == number:
                raise BlockingIOError(11, os.strerror(11))
            return start(*arguments, **named)

        fork_exec.fork_exec = fail


def run_case(words, kind, number, folder):
    """Run a command in a fork of this process."""
    output, errors = os.pipe()  # a limit on files concerns no pipe
    with tempfile.TemporaryFile("w+") as counted:
        child = os.fork()
        if child == 0:
            os.dup2(errors, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            injector = Injector(kind, number, folder)
            code = 70
            try:
                sys.addaudithook(injector)
                if number:
                    limit(kind, number)
                code = main(words)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                if not number:
                    os.write(counted.fileno(), json.dumps(injector.counts).encode())
                os._exit(code)
        os.close(errors)
        with os.fdopen(output) as stream:
            lines = stream.read().splitlines()
        _, status = os.waitpid(child, 0)
        counted.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "lines": lines,
            "counts": json.loads(counted.read() or "{}"),
        }


CONFIG = """
cluster: {workers: 2}
task: {model: quadratic, dim: 2, epoch: 20}
stop: {updates: 4}
sweep: {seed: [0, 1]}
"""


def import_all():
    """Run each command once: what it imports, all forks have then."""
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        path = Path(folder, "small.yaml")
        path.write_text(CONFIG)
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            for words in (["run", str(path), "sweep={}"], ["sweep", str(path), "--jobs", "1"]):
                assert main([*words, "--out", folder]) == 0
            assert main(["table", f"{folder}/small"]) == 0


if __name__ == "__main__":
    import_all()
    assert threading.active_count() == 1, "a fork has one thread only"
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(run_case(**json.loads(line)))}\n")
        sys.stdout.flush()
