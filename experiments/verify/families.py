"""The table of families, and how their checks are carried out."""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from math import nan
from multiprocessing import get_context

import torch

from experiments.errors import ConfigError
from experiments.verify.asynchronous import asynchronous
from experiments.verify.collectives import collectives
from experiments.verify.delayed import delayed
from experiments.verify.engine import engine
from experiments.verify.finding import Family, Finding
from experiments.verify.gossip import gossip
from experiments.verify.gossip_methods import gossip_methods
from experiments.verify.gossip_times import gossip_times
from experiments.verify.local_steps import local_steps
from experiments.verify.networks import networks
from experiments.verify.parameter_server import parameter_server
from experiments.verify.pipelines import pipelines
from experiments.verify.replays import replays
from experiments.verify.rules import rules
from experiments.verify.staleness import staleness
from experiments.verify.times import times
from models.cores import cores

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        rules,
        replays,
        parameter_server,
        asynchronous,
        local_steps,
        staleness,
        times,
        delayed,
        collectives,
        gossip,
        gossip_methods,
        gossip_times,
        pipelines,
        networks,
        engine,
    )
}


def finding_by_finding(family: str, check: str) -> Iterator[Finding]:
    """What one check finds, as it finds it; one that raises has found that its statement does not hold."""
    try:
        for finding in FAMILIES[family].checks[check]():
            yield replace(finding, family=family)
    except Exception as error:
        yield Finding(f"{check}: {type(error).__name__}: {error}", "", nan, nan, family=family)


def findings(family: str, check: str) -> list[Finding]:
    """All that one check finds."""
    return list(finding_by_finding(family, check))


def verify(names: Sequence[str] = (), processes: int | None = None) -> list[Finding]:
    """What the checks of the named families find, or of all, carried out by a process per core.

    A bar shows how far they are, where the standard error is a terminal.

    Raises:
        ConfigError: there is no such family.
    """
    from tqdm import tqdm

    for name in names:
        if name not in FAMILIES:
            raise ConfigError("", f"{name!r}: expected families of {', '.join(FAMILIES)}", "verify")
    checks = [(name, check) for name in dict.fromkeys(names or FAMILIES) for check in FAMILIES[name].checks]
    pool = ProcessPoolExecutor(processes or cores(), get_context("spawn"), _begin)
    try:
        tasks = {pool.submit(findings, *check): check for check in checks}
        shape = "{desc} {bar:20} {n_fmt}/{total_fmt}"
        with tqdm(total=len(checks), disable=None, leave=False, ncols=60, bar_format=shape) as bar:
            for task in as_completed(tasks):
                bar.set_description_str(f"{tasks[task][0]:16}", refresh=False)
                bar.update()
        return [finding for task in tasks for finding in task.result()]
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """A process of its own begins: one thread, and Ctrl-C ends it without a word."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
