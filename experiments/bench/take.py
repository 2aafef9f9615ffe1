"""Taking a bench: the measures one after the other, and the machine on which they were taken."""

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import torch

from experiments.bench import MEASURES
from experiments.bench.children import children
from experiments.bench.images import said
from experiments.bench.report import Entry, Machine, Report
from experiments.bench.settings import Settings
from experiments.config import Config
from experiments.errors import ConfigError, meant
from experiments.record import versions
from models.cores import cores


def take(
    measures: Sequence[str] = (),
    quick: bool = False,
    device: str = "cpu",
    config: Config | None = None,
    tell: Callable[[Entry], None] = lambda _: None,
) -> Report:
    """The report of `measures`, all by default, or the gradients of `config` alone.

    Args:
        tell: is told each entry as soon as it is there.

    Raises:
        ConfigError: no such measure or device, or a config beside a measure that has no use for one.
    """
    chosen = list(measures) or (["gradients"] if config else list(MEASURES))
    for name in chosen:
        if name not in MEASURES:
            hint = meant(name, MEASURES) or f"expected one of {', '.join(MEASURES)}"
            raise ConfigError("bench", f"no measure {name!r}; {hint}; a config goes behind --config")
    if config and chosen != ["gradients"]:
        raise ConfigError("--config", f"is for the measure gradients alone, got {', '.join(chosen)}")
    began, date, load, entries = time.perf_counter(), datetime.now(UTC), busy(), []
    with children() as processes:
        settings = Settings(processes, quick, device, config)
        place = settings.place
        for name in (name for name in MEASURES if name in chosen):
            for entry in import_module(f"experiments.bench.{name}").measure(settings):
                entries.append(entry)
                tell(entry)
    return Report(
        date=date.isoformat(timespec="seconds"),
        quick=quick,
        data=said() if config is None else config.name,
        seconds=round(time.perf_counter() - began, 1),
        machine=machine(place, [*load, *busy()]),
        versions={"python": platform.python_version(), **versions()},
        entries=entries,
    )


def busy() -> list[float]:
    """The load average of the last minute, where the system has it."""
    return [round(os.getloadavg()[0], 2)] if hasattr(os, "getloadavg") else []


def machine(device: torch.device, load: list[float]) -> Machine:
    """This machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else None
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=processor(),
        capability=torch.backends.cpu.get_cpu_capability(),
        cores=cores(),
        memory_gib=memory and round(memory, 1),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        load=load,
    )


def processor() -> str:
    """What the processor is called."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text(encoding="utf-8").splitlines() if sys.platform == "linux" and table.is_file() else []
    named = (text.partition(":")[2].strip() for text in lines if text.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
