"""The k-th operation of a command fails, for every k: one line, nothing lost, no half result."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from laggard import load_results
from laggard.experiments.cli import main
from tests.cases import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="its limits")]
SWEEP = "sweep: {seed: [0, 1]}"
KINDS = ("open", "rename", "mkdir", "remove")
"""Operations of which each fails in turn."""
LIMITS = {
    "descriptors": range(1, 9),
    "allocation": [int(100 * 1.6**power) for power in range(20)],
    "fork": (1, 2),
}
"""Operations that are too many to fail one by one, or that cost seconds."""
WRITING = (*KINDS, "write", "descriptors", "allocation")
CASES = [
    *[(command, kind) for command in ("run", "sweep") for kind in WRITING],
    ("parallel", "fork"),
    *[("table", kind) for kind in ("open", "allocation")],
]


@pytest.fixture(scope="module")
def server():
    """Runs a command in which an operation fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.experiments.injecting"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:

        def ask(words, kind, number, folder):
            case = {"words": words, "kind": kind, "number": number, "folder": str(folder)}
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def hashes(folder):
    """The hashes of the files of each finished run; all of them are read and checked."""
    return {
        result.manifest["run"]: result.verify().manifest["files"] for result in load_results(folder)
    }


def words_of(command, path, out):
    return {
        "run": ["run", str(path), "sweep={}", "seed=1", "--out", str(out)],
        "sweep": ["sweep", str(path), "--out", str(out), "--jobs", "1"],
        "parallel": ["sweep", str(path), "--out", str(out), "--jobs", "2", "--force"],
        "table": ["table", str(out / "toy")],
    }[command]


def cases(command, kind, counts, reference):
    """The numbers of the operations that are to fail."""
    if kind in KINDS:
        return range(1, counts.get(kind, 0) + 1)
    if kind == "write":
        sizes = {file.stat().st_size for file in reference.rglob("*") if file.is_file()}
        return sorted({1} | {size // 2 for size in sizes} | {size - 1 for size in sizes})
    return LIMITS[kind]


@pytest.mark.parametrize(("command", "kind"), CASES)
def test_failing_operation_gives_one_line_and_loses_nothing(command, kind, server, toy, tmp_path):
    path = toy(SWEEP)
    before, whole, out = tmp_path / "before", tmp_path / "whole", tmp_path / "out"
    assert main(["run", str(path), "sweep={}", "seed=0", "--out", str(before)]) == 0
    if command == "table":
        assert main(words_of("sweep", path, before)) == 0
    first = hashes(before / "toy")
    shutil.copytree(before, whole)
    answer = server(words_of(command, path, whole), "none", 0, tmp_path)
    assert answer["code"] == 0, answer
    counts = answer["counts"]
    quiet = [line.replace("whole", "out") for line in answer["lines"]]
    expected = hashes(whole / "toy")
    failures = 0
    for number in cases(command, kind, counts, whole):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(before, out)
        case = command, kind, number
        answer = server(words_of(command, path, out), kind, number, tmp_path)
        assert answer["code"] in (0, 1, 2), (case, answer)
        failures += answer["code"] != 0 or bool(answer["lines"])
        told = [line for line in answer["lines"] if line not in quiet]
        assert not any("Traceback" in line for line in told), (case, answer)
        most = 20 if command == "parallel" else 3  # loky's resource tracker has lines of its own
        assert bool(answer["code"]) <= len(told) <= most, (case, answer)
        found = hashes(out / "toy")
        assert set(found) >= set(first), (case, "lost")
        assert all(expected[run] == files for run, files in found.items()), (case, "half a result")
        left = [file.name for file in out.rglob(".*")]
        again = server(words_of(command, path, out), "none", 0, tmp_path)
        assert again["code"] == 0, (case, again)
        assert hashes(out / "toy") == expected, case
        assert not list(out.rglob(".*")), (case, left)
    assert failures, "nothing failed: nothing was tested"
