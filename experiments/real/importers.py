"""Imports recordings of other programs: a table of compute times, and a config that replays it."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from laggard.experiments.config.document import text_of
from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.real.calibration import CLUSTER, COMPUTE_TABLE, replay
from laggard.experiments.real.trace_events import complete_events, read_trace
from laggard.files import describe_numbering, natural_key

STEP = re.compile(r"ProfilerStep#(\d{1,15})")
MAX_RECORDED = 1e15
"""Bound of the numbers of steps, and of their microseconds: 30 years."""
COMPUTING = ("forward-compute", "backward-compute", "backward-wgrad-compute", "forward-backward")
"""Operations in ByteDance's tables in which a GPU computes a gradient."""
OPERATION_COLUMNS = ("dp_rank", "step", "optype", "start_ts", "duration")


def chrome_steps(paths: Sequence[Path]) -> pd.DataFrame:
    """The steps in Chrome traces of PyTorch's profiler, one a worker: `worker`, `step`, `seconds`.

    A step is the event `ProfilerStep#N`, from one call of `profiler.step()` to the next. It
    contains the time in which the worker waited for others. Workers have the ranks in the files,
    or, if no file has one, the natural order of the files' names.

    Source: PyTorch, torch.profiler, `export_chrome_trace`.

    Args:
        paths: JSON files, compressed or not.

    Raises:
        ConfigError: a file cannot be read, or has no steps or impossible ones; names the file.
    """
    paths = sorted(paths, key=lambda path: natural_key(str(path)))
    documents = [read_trace(path) for path in paths]
    ranks = [_rank_of_trace(document) for document in documents]
    if all(rank is None for rank in ranks):
        ranks = list(range(len(paths)))
        _tell_ranks(paths)
    _check_world_size(paths, documents)
    tables = []
    for path, rank, document in zip(paths, ranks, documents, strict=True):
        if not _is_number(rank, int) or ranks.count(rank) > 1:
            expected = "a different whole number as rank in each file, or no rank in any"
            problem = f"expected {expected}, got {format_value(rank)}"
            raise ConfigError("distributedInfo.rank", problem, str(path))
        steps = _profiler_steps(path, document["traceEvents"])
        columns = {"worker": rank, "step": list(steps), "seconds": list(steps.values())}
        tables.append(pd.DataFrame(columns))
    return _common_steps(pd.concat(tables), str(paths[0].parent))


def _rank_of_trace(document: Mapping[str, Any]) -> Any:
    info = document.get("distributedInfo")
    if isinstance(info, Mapping):
        return info.get("rank")
    return None


def _tell_ranks(paths: Sequence[Path]) -> None:
    """Warn where the number in a file's name differs from the rank of the file."""
    described = describe_numbering({path.name: rank for rank, path in enumerate(paths)})
    if described is not None:
        warnings.warn(f"no file says its rank; by their names {described}", stacklevel=3)


def _check_world_size(paths: Sequence[Path], documents: Sequence[Mapping[str, Any]]) -> None:
    """Warn where files name another number of workers than there are files."""
    for path, document in zip(paths, documents, strict=True):
        info = document.get("distributedInfo")
        size = info.get("world_size") if isinstance(info, Mapping) else None
        if size is not None and size != len(paths):
            problem = f"distributedInfo.world_size is {size}, but {len(paths)} files are read"
            warnings.warn(f"{path}: {problem}", stacklevel=3)
            return


def _is_number(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is a number; `true` is an int in Python."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _profiler_steps(path: Path, events: Sequence[Any]) -> dict[int, float]:
    """The seconds of each step in a worker's trace."""
    steps: dict[int, float] = {}
    for event in complete_events(events):
        if event.get("cat") == "gpu_user_annotation":  # the GPU's track repeats the steps
            continue
        match = STEP.fullmatch(str(event.get("name")))
        if match is None:
            continue
        name, step = match[0], int(match[1])
        duration: Any = event.get("dur")
        if not _is_number(duration, int | float) or not 0 < duration < MAX_RECORDED:
            problem = f"expected microseconds > 0 as dur, got {format_value(duration)}"
            raise ConfigError(name, problem, str(path))
        if step in steps:
            problem = "expected once in the file of a worker, got it twice"
            raise ConfigError(name, problem, str(path))
        steps[step] = duration / 1e6
    if not steps:
        problem = "expected events named ProfilerStep#N, got none"
        remedy = "call profiler.step() after each mini-batch"
        raise ConfigError("traceEvents", f"{problem}: {remedy}", str(path))
    return steps


def straggler_analysis_steps(path: Path) -> pd.DataFrame:
    """The compute times of data-parallel ranks in a table of ByteDance's StragglerAnalysis.

    Over the compute operations o of a rank and a step, on the GPUs of all pipeline stages,

        seconds = max_o (start_ts_o + duration_o) - min_o start_ts_o

    from the first forward to the last backward operation. This includes the bubbles and messages
    of the pipeline, but not the exchange of gradients between data-parallel ranks.

    Source: Lin et al. (2025), arXiv 2505.05713, and the tables published with it.

    Args:
        path: a Parquet file with a row per operation.

    Raises:
        ConfigError: the file cannot be read, lacks columns, or has impossible times; names the
            file.
    """
    rows = _read_operations(path)
    start = rows["start_ts"].astype(np.float64)
    spans = rows.assign(start=start, end=start + rows["duration"]).groupby(["dp_rank", "step"])
    seconds = (spans["end"].max() - spans["start"].min()).rename("seconds").reset_index()
    _check_numbers(seconds["seconds"], "steps that take time", lambda numbers: numbers > 0, path)
    return _common_steps(seconds.rename(columns={"dp_rank": "worker"}), str(path))


def _read_operations(path: Path) -> pd.DataFrame:
    """The compute operations in a table of StragglerAnalysis, checked."""
    try:
        table = pd.read_parquet(path.absolute())
    except (OSError, ValueError) as error:  # Arrow's errors are ValueErrors
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError("", f"expected a Parquet table: {reason}", str(path)) from None
    missing = [name for name in OPERATION_COLUMNS if name not in table]
    if missing:
        problem = f"expected the columns {', '.join(OPERATION_COLUMNS)}, got {', '.join(table)}"
        raise ConfigError(missing[0], problem, str(path))
    rows = table[table["optype"].isin(COMPUTING)].reset_index(drop=True)
    if rows.empty:
        problem = f"expected operations such as {COMPUTING[0]}, got none"
        raise ConfigError("optype", problem, str(path))
    for name in ("dp_rank", "step"):
        _check_numbers(rows[name], "whole numbers >= 0", _is_whole, path)
    _check_numbers(rows["start_ts"], "finite seconds", np.isfinite, path)
    _check_numbers(rows["duration"], "finite seconds >= 0", lambda numbers: numbers >= 0, path)
    return rows


def _is_whole(numbers: "pd.Series[float]") -> "pd.Series[bool]":
    return (numbers >= 0) & (numbers % 1 == 0) & (numbers < MAX_RECORDED)


def _check_numbers(
    column: "pd.Series[Any]", expected: str, valid: Callable[["pd.Series[float]"], Any], path: Path
) -> None:
    """Raise `ConfigError` unless all numbers of a column are finite and valid."""
    numbers = pd.to_numeric(column, errors="coerce").astype(np.float64)
    wrong = ~(np.isfinite(numbers) & valid(numbers))
    if wrong.any():
        problem = f"expected {expected}, got {column[wrong].iloc[0]}"
        raise ConfigError(str(column.name), problem, str(path))


def _common_steps(steps: pd.DataFrame, where: str) -> pd.DataFrame:
    """The steps that all workers have, of workers 0 to P - 1, in order."""
    workers = set(map(int, steps["worker"].unique()))
    missing = sorted(set(range(len(workers))) - workers)
    if missing:
        problem = f"expected ranks 0, 1, 2, ... without a gap, got none of {missing[0]}"
        raise ConfigError("worker", problem, where)
    common = steps.groupby("step")["worker"].transform("nunique") == len(workers)
    if not common.any():
        raise ConfigError("step", "expected a step that all workers have, got none", where)
    columns = ["worker", "step", "seconds"]
    table = steps.loc[common, columns].sort_values(["worker", "step"]).reset_index(drop=True)
    return table.astype({"worker": np.int64, "step": np.int64})


def write_import(
    steps: pd.DataFrame, name: str, folder: Path, network: Mapping[str, float | bool]
) -> Path:
    """Write a table of compute times, and the synchronous config that replays it.

    Args:
        network: `cluster.network` of the config; empty for a network that takes no time.
    """
    workers = int(steps["worker"].nunique())
    updates = int(steps["step"].nunique())
    cluster: dict[str, Any] = {"workers": workers, "compute": replay(COMPUTE_TABLE)}
    if network:
        cluster["network"] = dict(network)
    document = {
        "name": name,
        "question": "How long do the recorded steps take?",
        "cluster": cluster,
        "algorithm": "all_reduce",
        "task": {"model": "timing"},
        "stop": {"updates": updates},
    }
    folder.mkdir(parents=True, exist_ok=True)
    steps.to_csv(folder / COMPUTE_TABLE, index=False)
    (folder / CLUSTER).write_text(text_of(document), encoding="utf-8")
    return folder / CLUSTER
