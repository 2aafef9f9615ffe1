"""One run id, one set of bytes: whatever the number of processes and of threads."""

import pytest
import torch

from laggard import load, sweep
from laggard.experiments.results.store import FILES

WAYS = {
    "one process": (1, 1, []),
    "two": (2, 2, []),
    "a thread": (1, 2, ["threads=1"]),
    "threads": (1, 2, ["threads=2"]),
}
"""Processes, torch's own threads in this one, and overrides."""


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "network", ["mlp, hidden: [16]", pytest.param("lenet5", marks=pytest.mark.slow)]
)
def test_jobs_and_threads_change_no_byte(network, processes, toy, tmp_path):
    """`config.yaml` is the same too, unless `threads` is set. Processes take seconds to start."""
    task = f"task={{model: {network}, dataset: digits, batch: 32}}"
    overrides = [task, "stop={updates: 12}", "evaluate={every_updates: 4}", "sweep.seed=[0, 1]"]
    before, found = torch.get_num_threads(), {}
    try:
        for way, (jobs, threads, own) in WAYS.items():
            if jobs > processes:
                continue
            torch.set_num_threads(threads)
            results = sweep(load(toy(), *overrides, *own), tmp_path / way, jobs=jobs)
            names = [name for name in FILES if not (own and name == "config.yaml")]
            found[way] = {
                (result.path.name, name): (result.path / name).read_bytes()
                for result in results
                for name in names
            }
    finally:
        torch.set_num_threads(before)
    first = found.pop("one process")
    assert len(first) == 2 * len(FILES)
    for way, files in found.items():
        assert {file for file, content in files.items() if content != first[file]} == set(), way
