"""The machine on which something was measured, without its name."""

import os
import platform
import sys
from pathlib import Path

import torch

from laggard.models.backends.threads import cores


def machine() -> str:
    """`2 cores (Xeon, AVX512), 8 GiB, Linux x86_64; torch 2.13.0, Python 3.11.7`."""
    memory = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        if hasattr(os, "sysconf")
        else None
    )
    where = [f"{cores()} cores ({_processor()}, {torch.backends.cpu.get_cpu_capability()})"]
    where += [f"{memory:.0f} GiB"] if memory else []
    where += [f"{platform.system()} {platform.machine()}"]
    return f"{', '.join(where)}; torch {torch.__version__.partition('+')[0]}, Python {platform.python_version()}"


def _processor() -> str:
    """What the processor is called."""
    table = Path("/proc/cpuinfo")
    lines = (
        table.read_text(encoding="utf-8").splitlines()
        if sys.platform == "linux" and table.is_file()
        else []
    )
    named = (text.partition(":")[2].strip() for text in lines if text.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
