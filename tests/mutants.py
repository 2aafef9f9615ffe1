"""Random faults in the engine and in what is learnt: does a test find each? `make mutants`.

A mutant is a copy of the checkout with one change: a comparison, an operator, a number, a branch
that is always or never taken, a call that is left out. It is killed when a test of its package
fails or takes far longer than without it.
Coverage, recorded once, says which tests execute the changed line: the cheapest of them run first,
then the others, and the rest of the package only where all of these pass. A mutant that survives
names a line that no test depends on, or changes nothing that can be observed.
"""

import argparse
import hashlib
import importlib.util
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import NamedTuple

import pytest
from coverage import CoverageData

from tests.mutations import ROOT, Mutant, mutants

TESTS = {"simulator": ("tests/simulator/", "tests/theory/"), "models": ("tests/models/",)}
"""The tests of each package; statements of theory are about the engine."""
FIRST = 60
"""How many of the tests that execute a line are tried first: their modules alone have to be
imported.
"""
WANTED = 0.95

FORKS = multiprocessing.get_context("forkserver")
# most of a start
FORKS.set_forkserver_preload(["pytest", "torch", "pandas", "scipy.stats", "networkx", "pydantic"])


def files_of_checkout() -> list[str]:
    """The files that git knows and that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def copy_of_checkout(to: Path) -> Path:
    """The files that git knows, links as links, in the folder `to`."""
    for name in files_of_checkout():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    return to


class Recording(NamedTuple):
    """Seconds of every test, the cheapest first, and the tests that execute each line of a
    module.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]

    def stages(self, mutant: Mutant) -> list[list[str]]:
        """The tests of a mutant's package: the cheapest that execute its line, the others, the
        rest; none is empty.

        Where no test executes the line itself, as in compiled functions and at an import, those of
        the function or class around it count, or else those of the module.
        """
        lines = self.lines.get(mutant.path, {})
        found = (({test for line in span for test in lines.get(line, ())}) for span in mutant.spans)
        near = next(filter(None, found), set())
        package = [
            test for test in self.seconds if test.startswith(TESTS[mutant.path.partition("/")[0]])
        ]
        cheap = [test for test in package if test in near]
        stages = [cheap[:FIRST], cheap[FIRST:], [test for test in package if test not in near]]
        return [stage for stage in stages if stage]


def recording(jobs: int) -> Recording:
    """The tests without a fault: from `build/mutants`, where these files were recorded, or from a
    run of them now.
    """
    folders = sorted({folder for own in TESTS.values() for folder in own})
    files = [
        name
        for name in files_of_checkout()
        if name.startswith((*(f"{one}/" for one in TESTS), *folders))
    ]
    digest = hashlib.sha256(
        b"".join(name.encode() + (ROOT / name).read_bytes() for name in files)
    ).hexdigest()
    folder = ROOT / "build" / "mutants" / digest[:16]
    if not (folder / "durations.txt").exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "pytest", "-n", str(jobs), "--dist", "worksteal", "--durations=0",
                   "--durations-min=0", "--cov-context=test", "--cov-report=", f"--cov-config={os.devnull}",
                   *(f"--cov=laggard.{one}" for one in TESTS), *folders]  # fmt: skip
        environment = {**os.environ, "COVERAGE_FILE": str(folder / "lines")}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}\nthe tests fail without a fault")
        (folder / "durations.txt").write_text(done.stdout)
    seconds: Counter[str] = Counter()
    text = (folder / "durations.txt").read_text()
    for number, test in re.findall(
        r"^ *([\d.]+)s (?:setup|call|teardown) +(\S.*)$", text, re.MULTILINE
    ):
        seconds[test] += float(number)  # type: ignore[assignment]
    data = CoverageData(str(folder / "lines"))
    data.read()
    lines = {
        str(Path(path).resolve().relative_to(ROOT)): {
            line: sorted({context.rpartition("|")[0] for context in contexts if context})
            for line, contexts in data.contexts_by_lineno(path).items()
        }
        for path in data.measured_files()
    }
    return Recording(
        {test: seconds[test] for test in sorted(seconds, key=lambda test: (seconds[test], test))},
        lines,
    )


class Alarm:
    """Kills this process where a test, or what comes between two of them, takes far longer than was
    recorded.
    """

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Give the test ten times the time that it took, and a minute."""
        signal.alarm(60 + int(10 * self.seconds.get(item.nodeid, 0.0)))
        try:
            return (yield)
        finally:
            signal.alarm(60)


def run_tests(copy: str, seconds: dict[str, float], options: list[str]) -> None:
    """End this process, which has loaded nothing of laggard yet, as pytest ends in a copy of the
    checkout.
    """
    sys.dont_write_bytecode = False  # else every process would compile all that it imports
    os.setsid()
    os.chdir(copy)
    sys.path.insert(0, copy)
    os.environ["PYTHONPATH"] = copy
    # the packages of this checkout
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    # a parameter may be a path
    seconds = {test.replace(str(ROOT), copy): limit for test, limit in seconds.items()}
    signal.alarm(600)  # until the first test begins
    sys.exit(
        pytest.main(
            ["-x", "-q", "-p", "no:cacheprovider", *options, *seconds], plugins=[Alarm(seconds)]
        )
    )


def ended(copy: Path, seconds: dict[str, float], *options: str) -> str:
    """What becomes of tests that took so many seconds: `survived`, `killed`, or `endless`."""
    process = FORKS.Process(target=run_tests, args=(str(copy), seconds, list(options)))
    process.start()
    process.join()
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # what its tests had started
    if process.exitcode == -signal.SIGALRM:
        return "endless"
    return "killed" if process.exitcode else "survived"


def outcome(mutant: Mutant, copy: Path, recorded: Recording) -> str:
    """What becomes of a mutant in a copy of the checkout, and after how many stages."""
    file = copy / mutant.path
    right, before, said, stage = file.read_bytes(), mutant.before.encode(), "survived", 0
    assert right[mutant.offset :].startswith(before)
    file.write_bytes(
        right[: mutant.offset] + mutant.after.encode() + right[mutant.offset + len(before) :]
    )
    try:
        for stage, tests in enumerate(recorded.stages(mutant), 1):  # noqa: B007
            said = ended(copy, {test: recorded.seconds[test] for test in tests})
            if said != "survived":
                break
        return f"{said:8} {stage}"
    finally:
        file.write_bytes(right)
        # else Python might take it again
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def trials(
    chosen: list[Mutant], jobs: int, recorded: Recording, tell: Callable[[str], object]
) -> int:
    """Try every mutant, several at once, each in a copy of its own; counts the survivors."""
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = f"{temporary}/compiled"
        free: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            free.put(copy := copy_of_checkout(Path(temporary, str(job))))

        # else all would count as killed
        if ended(copy, recorded.seconds, "--collect-only") != "survived":
            sys.exit("the tests that were recorded are not found in a copy of the checkout")

        def trial(mutant: Mutant) -> bool:
            copy, start = free.get(), monotonic()
            said = outcome(mutant, copy, recorded)
            free.put(copy)
            change = f"{' '.join(mutant.before.split())} -> {' '.join(mutant.after.split())}"
            tell(
                f"{said} {monotonic() - start:4.0f} s  {mutant.path}:{mutant.line}  {change[:120]}\n"
            )
            return said.startswith("survived")

        with ThreadPoolExecutor(jobs) as pool:
            return sum(pool.map(trial, chosen))


def main() -> int:
    """Try as many random mutants as asked for; 1 where fewer than 95 % are killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only", default="", help="change only modules whose path contains this text"
    )
    args = parser.parse_args()
    modules = [path for package in TESTS for path in sorted((ROOT / package).rglob("*.py"))]
    every = [mutant for path in modules if args.only in str(path) for mutant in mutants(path)]
    drawn = random.Random(args.seed).sample(every, min(args.count, len(every)))
    chosen = [mutant for mutant in drawn if mutant.observable]
    survived = trials(
        chosen,
        args.jobs,
        recording(args.jobs),
        lambda line: (sys.stdout.write(line), sys.stdout.flush()),
    )
    killed = len(chosen) - survived
    sys.stdout.write(
        f"{killed} of {len(chosen)} mutants killed (seed {args.seed}, of {len(every)} possible ones)\n"
    )
    return int(killed < WANTED * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
