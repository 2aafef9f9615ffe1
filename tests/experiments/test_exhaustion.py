"""No memory, no disk, a folder that is gone: one line, which names the file or the run."""

import os
import re
import shutil

import numpy as np
import pytest
import torch

from laggard.experiments.cli import main
from laggard.experiments.running import run as running


def test_unwritable_file_is_named(toy, tmp_path, mistake):
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        err = mistake("run", toy(), "--out", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert re.fullmatch(rf"{tmp_path}/out/toy/\w{{12}}/[\w.]+: File too large\n", err), err
    assert not list(tmp_path.glob("out/toy/.*"))


def test_run_without_its_folder_is_named(
    toy,
    tmp_path,
    monkeypatch,
    mistake,
):
    simulate = running.simulate

    def simulate_and_remove(*args, **given):
        shutil.rmtree(tmp_path / "out")
        return simulate(*args, **given)

    monkeypatch.setattr(running, "simulate", simulate_and_remove)
    err = mistake("run", toy(), "--out", tmp_path / "out")
    assert re.fullmatch(rf"{tmp_path}/out/toy/\w{{12}}: No such file or directory\n", err), err


def test_folder_in_place_of_an_index_is_named(toy, tmp_path, capsys):
    index = tmp_path / "out" / "toy" / "sweep.json"
    index.mkdir(parents=True)
    assert main(["sweep", str(toy("sweep: {seeds: 2}")), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"{index}: Is a directory"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        np._core._exceptions._ArrayMemoryError((10**12,), np.dtype(float)),
        RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes."
        ),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
    ],
)
def test_lack_of_memory_gives_one_line_error(
    toy,
    tmp_path,
    monkeypatch,
    capsys,
    error,
):
    def exhaust(*args, **given):
        raise error

    monkeypatch.setattr(running, "simulate", exhaust)
    path = toy()
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{path}: out of memory: ")


def test_too_long_name_is_refused(toy, mistake):
    path = toy(f"name: {'n' * 300}")
    assert re.fullmatch(
        rf"{path}: name: expected at most 80 characters, got 'n+\.\.\.\n", mistake("validate", path)
    )
    assert main(["validate", str(toy(f"name: {'n' * 80}"))]) == 0


def test_files_have_the_mode_of_the_umask(ran):
    before = os.umask(0o027)
    try:
        path = ran().path
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o640}
