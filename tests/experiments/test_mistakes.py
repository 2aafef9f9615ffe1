"""Commands and documents that are refused: one line, which `mistakes.yaml` begins."""

import shlex
from contextlib import chdir
from functools import cache
from pathlib import Path

import pytest

from laggard import load, sweep
from laggard.experiments.config.grid import runs
from laggard.experiments.real.calibration import calibrate_cluster
from tests.cases import yaml_table
from tests.experiments.conftest import TOY, stamps
from tests.experiments.league.test_league import write_files
from tests.experiments.test_documents import BASE
from tests.experiments.test_real import QUADRATIC, known_run

MISTAKES = yaml_table(__file__, "mistakes.yaml")
GRID = "sweep: {method: {sync: {algorithm: sync_ps}, late: {}}, learning.lr: [0.1, 0.2], seeds: 2}"


def write_toy(folder):
    (folder / "toy.yaml").write_text(TOY)


def write_documents(folder):
    (folder / "base.yaml").write_text(BASE)
    (folder / "other.yaml").write_text("base: own.yaml\n")


def write_swept(folder):
    (folder / "toy.yaml").write_text(TOY + GRID)
    sweep(load("toy.yaml"), "results")


def write_calibrated(folder):
    (folder / "small.yaml").write_text(QUADRATIC + "algorithm: async_ps\n")
    calibrate_cluster(known_run((0.02, 0.03)), runs(load("small.yaml"))[0], Path("real/small"))


FILES = {
    "chrome": lambda folder: None,
    "toy": write_toy,
    "documents": write_documents,
    "swept": write_swept,
    "league": write_files,
    "clusters": write_files,
    "calibrated": write_calibrated,
}
"""Writes the files of each part of the table to the current folder."""
COMMANDS = {
    "chrome": ("a.json", "import chrome a.json --out out"),
    "documents": ("own.yaml", "validate own.yaml"),
    "clusters": ("mine.yaml", "league mine.yaml --task task.yaml"),
}
"""Of parts whose rows are the text of a file: its name, and the command."""


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Makes the folder of a part once: no command changes it."""

    @cache
    def made(part):
        folder = tmp_path_factory.mktemp(part)
        with chdir(folder):
            FILES[part](folder)
        return folder

    return made


@pytest.mark.parametrize(
    ("part", "row"), [(part, row) for part, rows in MISTAKES.items() for row in rows]
)
def test_mistake_gives_one_line_error(part, row, folder_of, monkeypatch, mistake):
    folder, command = folder_of(part), row
    monkeypatch.chdir(folder)
    if part in COMMANDS:
        file, command = COMMANDS[part]
        Path(file).write_text(row)
    before = stamps(folder)
    line = mistake(*shlex.split(command))
    assert line.startswith(MISTAKES[part][row].replace("FOLDER", str(folder)))
    assert stamps(folder) == before
