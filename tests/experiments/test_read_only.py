"""Reading commands on a folder that cannot be written; interrupts that a library hides."""

import builtins
import io
import os
import signal
import sys
from errno import EROFS
from pathlib import Path
from time import process_time

import pytest

from laggard.experiments.cli import main

SWEEP = "record: {messages: true}\nsweep: {seed: [0, 1], learning.lr: [0.1, 0.2]}"


@pytest.fixture
def read_only(monkeypatch):
    """Has the operating system refuse every change below a folder."""

    def protect(folder):
        def refuse(path):
            inside = isinstance(path, str | os.PathLike) and Path(path).absolute().is_relative_to(
                folder
            )
            if inside:
                raise OSError(EROFS, os.strerror(EROFS), str(path))

        def guarded(function, is_change=lambda *_: True):
            def call(path, *more, **named):
                if is_change(*more, *named.values()):
                    refuse(path)
                return function(path, *more, **named)

            return call

        def writes(*words):
            return any(isinstance(word, str) and set(word) & set("wax+") for word in words[:1])

        def makes(*_):
            return True

        for module in (builtins, io):
            monkeypatch.setattr(module, "open", guarded(open, writes))
        for name in ("rename", "replace", "unlink", "remove", "rmdir", "utime"):
            monkeypatch.setattr(os, name, guarded(getattr(os, name)))
        mkdir = os.mkdir
        monkeypatch.setattr(
            os,
            "mkdir",
            lambda path, *more: (
                mkdir(path, *more) if Path(path).exists() else guarded(mkdir)(path, *more)
            ),
        )

    return protect


def test_commands_that_read_write_nothing(toy, tmp_path, monkeypatch, capsys, read_only, drawn):
    archive, here = tmp_path / "archive", tmp_path / "here"
    here.mkdir()
    asked = ["sweep", str(toy(SWEEP)), "--out", str(archive)]
    assert main(asked) == 0
    single = ["run", asked[1], "sweep={}", "--out", str(archive)]
    assert main(single) == 0
    files = {file: file.stat().st_mtime_ns for file in archive.rglob("*")}
    monkeypatch.chdir(here)
    folder = archive / "toy"
    run = min(folder.glob("*/messages.parquet"))
    read_only(archive)
    capsys.readouterr()
    with pytest.raises(OSError, match="Read-only"):
        (archive / "new").write_text("")
    assert main(asked) == 0
    assert main([*asked, "--dry-run"]) == 0
    for words in (
        ["table", folder], ["plot", folder], ["plot", folder, "--figure", "staleness"],
        ["report", folder], ["export", run.parent, "--to", "perfetto"],
        single,
    ):  # fmt: skip
        assert main([*map(str, words)]) == 0, words
    assert {file.name.partition("-")[2] for file in here.iterdir()} == {
        "figure.png", "staleness.png", "report.html", "trace.json",
    }  # fmt: skip
    assert "written to the current folder" in capsys.readouterr().err
    assert {file: file.stat().st_mtime_ns for file in archive.rglob("*")} == files


def test_finished_sweep_is_not_drawn_again(toy, tmp_path, drawn):
    asked = ["sweep", str(toy(SWEEP)), "--out", str(tmp_path / "out")]
    counts = []
    for change in ([], [], ["--force"]):
        assert main([*asked, *change]) == 0
        counts.append(len(drawn))
    assert counts == [1, 1, 2]


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def convert(*_):
    try:
        interrupt()
    except KeyboardInterrupt:
        raise SystemError("a callback failed") from None


def convert_to_panic(*_):
    try:
        interrupt()
    except KeyboardInterrupt:
        raise BaseException("a panic") from None


def drop(*_):
    try:
        interrupt()
    except KeyboardInterrupt:
        return []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("hide", [convert, convert_to_panic, drop])
def test_interrupt_hidden_by_library_prints_one_line(hide, monkeypatch, capsys, ctrl_c):
    monkeypatch.setattr("laggard.experiments.config.listing.describe_entries", hide)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


UNRAISABLE = """
import os, signal, sys
from laggard.experiments import cli
from laggard.experiments.config import listing

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def drop(_):
    Last()
    return []

listing.describe_entries = drop
sys.exit(cli.main(["list"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_interrupt_without_a_caller_ends_the_process(ctrl_c):
    import subprocess

    command = [sys.executable, "-c", UNRAISABLE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_validate_warns_of_missing_data_set(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    path = str(toy())
    assert main(["validate", path, "task={model: logistic, dataset: cifar10}"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{path}: warning: task.dataset: cifar10 has no data_batch_1.bin")
    assert main(["validate", path, "task={model: logistic, dataset: digits}"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_reading_takes_a_fifth_of_the_runs_time(toy, tmp_path, capsys):
    seeds = list(range(250))
    path = str(toy(f"sweep: {{algorithm: [sync_ps, async_ps], cluster.seed: {seeds}}}"))
    spent = []
    for words in (
        ["sweep", path, "--out", str(tmp_path), "--jobs", "1"],
        ["sweep", path, "--out", str(tmp_path)],
        ["report", str(tmp_path / "toy")],
        ["sweep", path, "--out", str(tmp_path), "--dry-run"],
    ):
        start = process_time()
        assert main(words) == 0
        spent.append(process_time() - start)
        assert len(capsys.readouterr().out) < 20_000
    simulated, finished, reported, planned = spent
    assert max(finished, reported, planned) < simulated / 5
    page = tmp_path / "toy" / "report.html"
    assert page.stat().st_size < 2_000_000  # of which Bokeh's script is most
    assert "n = 250 seeds" in page.read_text()
