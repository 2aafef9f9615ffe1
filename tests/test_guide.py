"""What the pages say: all that the guide shows runs, and each method and module stands where it is
looked for.
"""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from laggard import load, load_results, sweep
from laggard.experiments import figures
from laggard.experiments.config.parts import COMPENSATION
from laggard.experiments.results.store import SNAPSHOT
from laggard.simulator import ALGORITHMS
from tests.documents import ROOT, Reader, blocks, broken_links, job_environment
from tests.experiments.killing import CONFIG, contents

GUIDE, METHODS, ARCHITECTURE = (
    ROOT / "docs/guide.md",
    ROOT / "docs/methods.md",
    ROOT / "ARCHITECTURE.md",
)
GUIDE_PAGES = [
    GUIDE,
    *(
        GUIDE.parent / link
        for link in re.findall(r"^- .*\]\((guide/\w+\.md)\)", GUIDE.read_text(), re.M)
    ),
]
"""In the order of the guide's list, in which they are read."""
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/guide").glob("*.md")),
    *sorted(ROOT.glob("*.md")),
]
RENDERED = {"statements.md", "REPRODUCTION.md"}  # by programs, with tables as wide as they come


def guide_blocks():
    """The blocks of code of all pages of the guide."""
    return [block for page in GUIDE_PAGES for block in blocks(page)]


def test_guide_lists_all_its_pages():
    assert sorted(GUIDE_PAGES) == sorted([GUIDE, *(ROOT / "docs/guide").glob("*.md")])


@pytest.mark.slow
def test_guide_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    reader = Reader(tmp_path, monkeypatch, capsys)
    for page in GUIDE_PAGES:
        reader.follow(page)
    assert (tmp_path / "shares.png").stat().st_size > 0
    from shares import shares  # type: ignore[import-not-found]  # the guide's

    # what an entry of the product does
    monkeypatch.setitem(figures.FIGURES, "shares", figures.Entry("shares", "shares"))
    monkeypatch.setattr(figures, "shares", shares, raising=False)
    reader.run("laggard plot results/study --figure shares")
    assert (tmp_path / "results/study/shares.png").stat().st_size > 0


@pytest.mark.slow
def test_pandas_alone_reads_the_staleness_of_a_sweep(tmp_path, monkeypatch):
    """The subprocess cannot import laggard."""
    monkeypatch.chdir(tmp_path)
    (study,) = (block for block in guide_blocks() if block.file == "study.yaml")
    Path("study.yaml").write_text(study.body, encoding="utf-8")
    sweep(load("study.yaml", "stop.epochs=1"), jobs=1)
    (block,) = (block for block in guide_blocks() if "read_parquet" in block.body)
    code = f"import sys; sys.modules['laggard'] = None\n{block.body}\nprint(applied['staleness'].mean())"
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    updates = load_results("results/study").where(**{"algorithm.name": "async_ps"}).updates
    expected = (
        updates.query("status == 'applied'").groupby("run")["staleness"].agg(["sum", "size"]).sum()
    )
    assert float(done.stdout.splitlines()[-1]) == expected["sum"] / expected["size"] > 2
    assert Path("histograms.png").stat().st_size * Path("over_time.png").stat().st_size > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_job_of_the_guide_resumes_after_sigterm(tmp_path):
    """SLURM ends a job by SIGTERM; the same script then completes the bytes of an undisturbed
    sweep.
    """
    config, results, programs = (
        tmp_path / "study.yaml",
        tmp_path / "results" / "study",
        tmp_path / "programs",
    )
    config.write_text(CONFIG % (3000, 2), encoding="utf-8")
    (script,) = (block for block in guide_blocks() if block.file == "study.sbatch")
    programs.mkdir()
    often = programs / "laggard"  # a snapshot as often as may be
    often.write_text(
        f'#!/bin/sh\nexec "{Path(sys.executable).parent / "laggard"}" "$@" --snapshots 0\n'
    )
    often.chmod(0o755)

    def submit():
        environment = job_environment(2, 0, programs)
        return subprocess.Popen(
            ["bash", "-c", script.body], cwd=tmp_path, env=environment, start_new_session=True, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    with submit() as job:
        while len(list(results.glob(f".*/{SNAPSHOT}"))) < 2:
            assert job.poll() is None
            sleep(0.01)
        os.killpg(job.pid, signal.SIGTERM)
        _, err = job.communicate(timeout=20)
        assert job.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert err.endswith(
            "terminated: 0 of 2 runs saved in results/study; run the same command to complete it\n"
        )
    with submit() as job:
        _, err = job.communicate(timeout=300)
        assert job.returncode == 0, err
    manifests = [
        json.loads(file.read_text(encoding="utf-8")) for file in results.glob("[!.]*/manifest.json")
    ]
    assert [len(manifests), sum("resumed" in manifest for manifest in manifests)] == [2, 2]
    sweep(load(config), tmp_path / "whole", jobs=1)
    assert contents(results) == contents(tmp_path / "whole" / "study")
    assert not list(results.glob(".*"))


def test_every_method_is_listed_with_its_source():
    """A source's years are those of the docstring."""
    page = METHODS.read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page, flags=re.MULTILINE))
    parts = {
        **ALGORITHMS,
        **{name: part.recipe for name, part in COMPENSATION.parts.items() if name != "none"},
    }
    assert set(rows) == set(parts)
    for name, part in parts.items():
        for year in re.findall(r"\d{4}", rows[name]):
            assert year in (inspect.getdoc(part) or ""), f"{name}: {rows[name]}"
    links = re.findall(r"^\[(.+)\]: (.+)$", page, flags=re.MULTILINE)
    assert [label for label, target in links if Path(target).name != label] == []
    for name, algorithm in ALGORITHMS.items():
        assert f"[{Path(inspect.getfile(algorithm)).name}]: " in page, name


def test_every_config_of_methods_is_listed():
    page = METHODS.read_text()
    configs = {path.name for path in (ROOT / "configs/methods").glob("*.yaml")}
    assert set(re.findall(r"^\[(\w+\.yaml)\]: ", page, flags=re.MULTILINE)) == configs
    assert {name for name in configs if page.count(f"[{name}]") < 2} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_valid_links_and_short_lines(page):
    assert broken_links(page) == []
    if page.name not in RENDERED:
        assert [line for line in page.read_text().splitlines() if len(line) > 120] == []


def test_architecture_names_every_module():
    text = ARCHITECTURE.read_text()
    assert len(text.splitlines()) <= 200, "it is read in one sitting: say what can go"
    entries = re.findall(r"^- `([\w/]+)/`:? ((?:.|\n  )*)", text, flags=re.MULTILINE)
    named = {folder: set(re.findall(r"`([a-z0-9_]+)`", entry)) for folder, entry in entries}
    there = {}
    for path in (
        path
        for package in ("simulator", "models", "experiments")
        for path in (ROOT / package).rglob("*.py")
    ):
        there.setdefault(str(path.parent.relative_to(ROOT)), set()).add(path.stem)
    modules = {folder: stems - {"__init__", "__main__"} for folder, stems in there.items()}
    assert {
        folder: named.get(folder, set()) ^ of
        for folder, of in modules.items()
        if named.get(folder) != of
    } == {}
    assert set(named) == set(modules)
