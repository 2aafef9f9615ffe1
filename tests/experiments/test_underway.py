"""How far the runs of a sweep are: what is noted is so, it is gone afterwards, and it costs an
update nothing.
"""

import io
import os
import threading
import time
from functools import partial

import pytest

from laggard import load, run, sweep
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.results.store import private_folder
from laggard.experiments.running import progress
from laggard.experiments.running.progress import (
    PROGRESS_FILE,
    START,
    Advance,
    SweepDisplay,
    heartbeat,
    read_progress,
)
from laggard.simulator import RunProgress


class Halfway:
    """A simulation that stands still at 30 of 40 updates and at 5 of 20 s."""

    def progress(self):
        return RunProgress(time=5.0, updates=30.0, samples=0, epochs=0.0, gradients=31)


def test_progress_file_names_the_nearest_limit(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "PERIOD", 0.01)
    spec = RunSpec(load(toy(), "stop={updates: 40, time: 20.0}"))
    own = private_folder(spec, tmp_path)
    own.mkdir(parents=True)
    with heartbeat(spec, tmp_path) as observer:
        observer.observe(Halfway())
        while not (found := read_progress(tmp_path / "toy")):
            time.sleep(0.01)
    way = found[spec.id]
    assert way[:3] == ("updates", 30.0, 40)
    assert not list(own.iterdir())


def test_stale_and_damaged_progress_is_skipped(tmp_path):
    for number, (text, age) in enumerate(
        [("[", 0), ("[1]", 0), ("3", 0), ('["updates", 1, 2, 3.0]', 60)]
    ):
        own = tmp_path / f".00000000000{number}.here.1"
        own.mkdir()
        (own / PROGRESS_FILE).write_text(text)
        os.utime(own / PROGRESS_FILE, 2 * (time.time() - age,))
    assert read_progress(tmp_path) == {}


def test_progress_changes_no_result(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "PERIOD", 1e-4)
    config = load(toy(), "stop.updates=2000")
    plain = run(config, tmp_path / "plain")
    noted = run(config, tmp_path / "noted", progress=partial(heartbeat, out=tmp_path / "noted"))
    assert noted.manifest["files"] == plain.manifest["files"]
    assert {file.name for file in noted.path.iterdir()} == {
        file.name for file in plain.path.iterdir()
    }


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("file", [Terminal, io.StringIO])
def test_runs_under_way_are_shown_on_terminals(
    toy,
    tmp_path,
    file,
):
    planned = runs(load(toy("sweep: {seed: [0, 1]}")))
    own = tmp_path / f".{planned[1].id}.here.1"
    own.mkdir()
    (own / PROGRESS_FILE).write_text('["updates", 30, 40, 6.0]')
    with SweepDisplay(planned, tmp_path, said := file(), quiet=False) as sweeping:
        if said.isatty():
            sweeping.refresh()
        shown = said.getvalue()
    assert ("seed = 1: 75%, 30 of 40 updates, 0:00:02 left" in shown) is said.isatty()
    assert "seed = 0" not in shown


def test_progress_text_has_the_unit_of_its_limit():
    assert str(Advance("epochs", 0.5, 4.0, 7.0)) == "12%, 0.5 of 4 epochs, 0:00:49 left"
    assert str(Advance("time", 0.0, 90.0, 7.0)) == START
    assert str(Advance("time", 0.01, 90.0, 7.0)).startswith("0%, 0.01 of 90 s simulated")
    assert (
        str(Advance("updates", 12500.0, 50000, 1200.0))
        == "25%, 12,500 of 50,000 updates, 1:00:00 left"
    )


@pytest.mark.slow
def test_workers_write_their_progress(toy, tmp_path):
    """The parent reads the progress when the first of two runs has finished and the second
    continues.
    """
    config = load(toy("sweep: {stop.updates: [1, 15000]}"))
    seen = {}
    over = threading.Event()

    def look():
        while not over.wait(0.05):
            seen.update(read_progress(tmp_path / "toy"))

    looking = threading.Thread(target=look)
    looking.start()
    results = sweep(config, tmp_path, jobs=2)
    over.set()
    looking.join()
    assert {way.total for way in seen.values()} == {15000}
    assert set(seen) == {results[1].manifest["run"]}
    assert not list((tmp_path / "toy").glob(".*"))
