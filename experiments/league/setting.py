"""The setting of a league: the reader's cluster, and a task with a limit and ranges of its rates.

Only `cluster` counts in the cluster's file, so that files of `calibrate` and `import` can be used
unchanged. A task's file is a config too; its `task`, `learning`, `stop` and `sweep.search` count.
Its `stop` applies to the overlapped all-reduce: the seconds until then are every method's time
limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laggard.experiments.config.cluster import PRESETS
from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.document import EXAMPLE, examples, find_config, put
from laggard.experiments.config.errors import ConfigError, unknown_key, unknown_name
from laggard.experiments.config.load import SCALES, apply_overrides, apply_scale, read_with_base
from laggard.experiments.config.plugins import look_in
from laggard.experiments.config.search import SearchPart, numbered_draws

TASK_KEYS = ("task", "learning", "stop", "device", "backend", "threads")
DEFAULT_RANGES = {"learning.lr": {"log_uniform": [0.001, 1.0]}}
"""The ranges of a task whose file has none."""
MOST_SETTINGS_TRIED = 25
"""Settings that an entrant tries at most, unless the task's search has another number of runs."""
HELD_OUT = 0.2
"""The share of a training set that is held out in the trials, if the task says no other."""


@dataclass(frozen=True)
class LeagueSetting:
    """The cluster and the task of a league.

    Attributes:
        base: the keys of a config that all entrants share, `stop` as in the task's file; without
            its `task.validation`, which is `held_out`.
        ranges: the ranges of rates and other numbers of the rule, as in `sweep.search`.
        settings: the largest number of settings that an entrant tries.
        held_out: the share of the training set that trials hold out to be measured on; 0 if there
            is no training set, or if it is too small.
        cluster_file, task_file: the names of the files in errors.
        ignored: keys of the cluster's file that do not count.
    """

    base: Mapping[str, Any]
    ranges: Mapping[str, Any]
    settings: int
    held_out: float
    cluster_file: str
    task_file: str
    ignored: Sequence[str] = ()


def read_setting(
    cluster: str, task: str, scale: str | None = None, overrides: Sequence[str] = ()
) -> LeagueSetting:
    """The setting of a league.

    Args:
        cluster: a file with a `cluster`, an example, or the name of a preset.
        task: a config, or the name of an example in `league/`.
        scale: the name of one of the `scales` of the task's file.
        overrides: changes of the cluster and of the task, as `task.dataset=fashion_mnist`.

    Raises:
        ConfigError: one of them is missing or invalid.
    """
    machines, ignored = _read_cluster(cluster)
    document = _read_keys(_find_task(task))
    scaled = apply_scale(document, document.pop(SCALES, None), scale)
    lesson = dict(apply_overrides({**scaled, "cluster": machines}, overrides))
    machines = lesson.pop("cluster")
    sweep = lesson.get("sweep") or {}
    others = [axis for axis in sweep if axis != "search"]
    if others:
        problem = f"expected ranges under `search` alone, got {', '.join(map(str, others))}"
        raise ConfigError("sweep", problem, task)
    search = dict(sweep.get("search", {}))
    settings = search.pop("runs", MOST_SETTINGS_TRIED)
    ranges = {key: limits for key, limits in search.items() if key not in SearchPart.model_fields}
    ranges = ranges or DEFAULT_RANGES
    base: Mapping[str, Any] = {
        "cluster": machines,
        **{key: lesson[key] for key in TASK_KEYS if key in lesson},
    }
    try:  # for their checks: the entrants parse and draw later
        parse(base)
        numbered_draws({**ranges, "runs": settings}, "sweep.search")
    except ConfigError as error:
        where = cluster if error.key.startswith("cluster") else task
        raise error.relocate(where=where) from None
    held_out = _find_held_out(base)
    if held_out:
        base = put(base, "task.validation", 0.0)  # the runs that report learn from the whole set
    return LeagueSetting(base, ranges, settings, held_out, cluster, task, ignored)


def _find_held_out(base: Mapping[str, Any]) -> float:
    """The share that trials hold out: the task's own, or `HELD_OUT` where the rest is enough."""
    own = getattr(parse(base).task, "validation", None)
    if own is None:
        return 0.0
    if own:
        return float(own)
    config = parse(put(base, "task.validation", HELD_OUT))
    try:
        config.task.fits(config.cluster.workers, config.device, config.backend)
    except ConfigError:  # such as a mini-batch of the whole set, or a table of shards
        return 0.0
    return HELD_OUT


def _read_cluster(name: str) -> tuple[Mapping[str, Any], Sequence[str]]:
    if _is_name(name):
        if name not in PRESETS:
            problem = f"expected a file with a cluster, or a preset ({', '.join(PRESETS)})"
            raise ConfigError("", problem, name)
        return {"preset": name}, []
    document = _read_keys(find_config(name))
    document.pop(SCALES, None)
    if "cluster" not in document:
        got = ", ".join(document) or "nothing"
        raise ConfigError("cluster", f"missing: expected the machines, got {got}", name)
    ignored = [key for key in document if key not in ("cluster", "name", "question")]
    return document["cluster"], ignored


def _find_task(name: str) -> Path:
    shipped = [example for example in examples() if example.startswith("league/")]
    if f"league/{name}" in shipped:
        return find_config(f"{EXAMPLE}league/{name}")
    if _is_name(name):
        names = [example.removeprefix("league/") for example in shipped]
        raise unknown_name("", name, names).relocate(where="task")
    return find_config(name)


def _is_name(text: str) -> bool:
    """Whether a text is the name of a preset or a task, not of a file."""
    return not (Path(text).suffix or Path(text).exists() or text.startswith(EXAMPLE))


def _read_keys(file: Path) -> dict[str, Any]:
    """Read the document of a config, and its scales; refuse unknown keys."""
    look_in(Path.cwd(), file.resolve().parent)
    document = dict(read_with_base(file))
    for key in document:
        if key != SCALES and key not in Config.model_fields:
            raise unknown_key(key, Config.model_fields).relocate(where=str(file))
    return document
