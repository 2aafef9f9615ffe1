"""Recordings of real training, by other programs, as a table of compute times and a config that
replays it.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from laggard.experiments.config.document import text_of
from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.real.calibration import CLUSTER, COMPUTE

STEP = re.compile(r"ProfilerStep#(\d{1,15})")
MOST_RECORDED = 1e15
"""What numbers of steps, and their microseconds, must be below: 30 years."""
GZIP = b"\x1f\x8b"
COMPUTING = ("forward-compute", "backward-compute", "backward-wgrad-compute", "forward-backward")
"""Types of operations in ByteDance's tables in which a GPU computes a mini-batch's gradient."""
USED = ("dp_rank", "step", "optype", "start_ts", "duration")


def chrome_steps(paths: Sequence[Path]) -> pd.DataFrame:
    """The steps of PyTorch's profiler, of Chrome traces that each have one worker's: `worker`,
    `step`, `seconds`.

    A step is the event `ProfilerStep#N`, from one call of `profiler.step()` to the next: it
    contains what the worker waited for others. Workers have the ranks that all files say, or
    without any the order of the files.

    Source: PyTorch, torch.profiler, `export_chrome_trace`.

    Args:
        paths: JSON, also compressed by gzip.

    Raises:
        ConfigError: a file cannot be read, has no steps or an impossible one; names the file.
    """
    documents = [_chrome_document(path) for path in paths]
    said = [document.get("distributedInfo") for document in documents]
    ranks = [info.get("rank") if isinstance(info, Mapping) else None for info in said]
    if all(rank is None for rank in ranks):
        ranks = list(range(len(paths)))
    parts = []
    for path, rank, document in zip(paths, ranks, documents, strict=True):
        if isinstance(rank, bool) or not isinstance(rank, int) or ranks.count(rank) > 1:
            problem = (
                f"expected a rank of its own in each file, or in none, got {format_value(rank)}"
            )
            raise ConfigError("distributedInfo.rank", problem, str(path))
        steps = _profiler_steps(path, document["traceEvents"])
        parts.append(
            pd.DataFrame({"worker": rank, "step": list(steps), "seconds": list(steps.values())})
        )
    return _common_steps(pd.concat(parts), str(paths[0].parent))


def _chrome_document(path: Path) -> Mapping[str, Any]:
    """The trace in a file; a mere list of events is allowed too."""
    try:
        content = path.read_bytes()
        document = json.loads(gzip.decompress(content) if content.startswith(GZIP) else content)
    except OSError as error:
        raise ConfigError("", f"cannot be read: {error.strerror or error}", str(path)) from None
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise ConfigError("", f"expected a Chrome trace in JSON: {error}", str(path)) from None
    document = {"traceEvents": document} if isinstance(document, list) else document
    if not (isinstance(document, dict) and isinstance(document.get("traceEvents"), list)):
        raise ConfigError(
            "traceEvents", "expected a list of events: this is no Chrome trace", str(path)
        )
    return document


def _profiler_steps(path: Path, events: Sequence[Any]) -> dict[int, float]:
    """Step -> seconds; what a GPU's own track repeats of them is left out."""
    steps: dict[int, float] = {}
    for event in events:
        named = (
            STEP.fullmatch(str(event.get("name")))
            if isinstance(event, dict) and event.get("ph") == "X"
            else None
        )
        if named is None or event.get("cat") == "gpu_user_annotation":
            continue
        step, lasted = int(named[1]), event.get("dur")
        if (
            isinstance(lasted, bool)
            or not isinstance(lasted, int | float)
            or not 0 < lasted < MOST_RECORDED
        ):
            problem = f"expected microseconds > 0 as dur, got {format_value(lasted)}"
            raise ConfigError(named[0], problem, str(path))
        if step in steps:
            raise ConfigError(
                named[0], "expected once in a file, got it twice: a file is one worker's", str(path)
            )
        steps[step] = lasted / 1e6
    if not steps:
        problem = "expected events named ProfilerStep#N, got none: call profiler.step() after each mini-batch"
        raise ConfigError("traceEvents", problem, str(path))
    return steps


def straggler_analysis_steps(path: Path) -> pd.DataFrame:
    """The compute times of each data-parallel rank in a table of ByteDance's StragglerAnalysis: a
    row a step.

    With the operations o of a rank and a step in which some GPU computes, of all of its stages,

        seconds = max_o (start_ts_o + duration_o) - min_o start_ts_o

    from the first forward to the last backward operation: with the pipeline's own bubbles and
    messages, and without the exchange of gradients between data-parallel ranks.

    Source: Lin et al. (2025), arXiv 2505.05713, and the tables published with it.

    Args:
        path: Parquet.

    Raises:
        ConfigError: the file cannot be read, lacks columns, or a row has impossible times; names
            the file.
    """
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # Arrow's errors are ValueErrors
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError("", f"expected a Parquet table: {reason}", str(path)) from None
    if missing := [name for name in USED if name not in table]:
        raise ConfigError(
            missing[0], f"expected the columns {', '.join(USED)}, got {', '.join(table)}", str(path)
        )
    rows = table[table["optype"].isin(COMPUTING)].reset_index(drop=True)
    if rows.empty:
        problem = f"expected operations such as {COMPUTING[0]}, got none"
        raise ConfigError("optype", problem, str(path))
    for name in ("dp_rank", "step"):
        _check_numbers(
            rows[name],
            "whole numbers >= 0",
            lambda numbers: (numbers >= 0) & (numbers % 1 == 0) & (numbers < MOST_RECORDED),
            path,
        )
    _check_numbers(rows["start_ts"], "finite seconds", np.isfinite, path)
    _check_numbers(rows["duration"], "finite seconds >= 0", lambda seconds: seconds >= 0, path)
    start = rows["start_ts"].astype(np.float64)
    spans = rows.assign(start=start, end=start + rows["duration"]).groupby(["dp_rank", "step"])
    seconds = (spans["end"].max() - spans["start"].min()).rename("seconds").reset_index()
    _check_numbers(seconds["seconds"], "steps that take time", lambda seconds: seconds > 0, path)
    return _common_steps(seconds.rename(columns={"dp_rank": "worker"}), str(path))


def _check_numbers(
    column: "pd.Series[Any]", expected: str, valid: Callable[["pd.Series[float]"], Any], path: Path
) -> None:
    """Raise `ConfigError` unless the column has finite numbers that are valid."""
    numbers = pd.to_numeric(column, errors="coerce").astype(np.float64)
    wrong = ~(np.isfinite(numbers) & valid(numbers))
    if wrong.any():
        raise ConfigError(
            str(column.name), f"expected {expected}, got {column[wrong].iloc[0]}", str(path)
        )


def _common_steps(steps: pd.DataFrame, where: str) -> pd.DataFrame:
    """The steps that all workers have, of workers 0 to P - 1, in order."""
    workers = sorted(int(worker) for worker in steps["worker"].unique())
    if workers != list(range(len(workers))):
        missing = next(rank for rank in range(len(workers) + 1) if rank not in workers)
        raise ConfigError(
            "worker", f"expected ranks 0, 1, 2, ... without a gap, got none of {missing}", where
        )
    common = steps.groupby("step")["worker"].transform("nunique") == len(workers)
    if not common.any():
        raise ConfigError("step", "expected a step that all workers have, got none", where)
    kept = steps[common].sort_values(["worker", "step"]).reset_index(drop=True)
    return kept.astype({"worker": np.int64, "step": np.int64})[["worker", "step", "seconds"]]


def write_import(steps: pd.DataFrame, name: str, folder: Path) -> Path:
    """Write a table of compute times, and the config that replays it: synchronous, on a network
    that takes no time.
    """
    workers, updates = int(steps["worker"].nunique()), int(steps["step"].nunique())
    compute = {
        "law": "trace",
        "file": COMPUTE,
        "column": "seconds",
        "worker": "worker",
        "order": "replay",
    }
    document = {
        "name": name,
        "question": "How long do the recorded steps take?",
        "cluster": {"workers": workers, "compute": compute},
        "algorithm": "all_reduce",
        "task": {"model": "timing"},
        "stop": {"updates": updates},
    }
    folder.mkdir(parents=True, exist_ok=True)
    steps.to_csv(folder / COMPUTE, index=False)
    (folder / CLUSTER).write_text(text_of(document), encoding="utf-8")
    return folder / CLUSTER
