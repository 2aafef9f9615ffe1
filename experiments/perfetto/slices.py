"""What happened in a run as slices of time: tables of `rank`, `kind`, `start`, `end` (ns), `name`, `args`, `key`."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.store import Result

COMPUTING, UP, DOWN, UPDATES = KINDS = ("computing", "up link", "down link", "updates")


class Window(NamedTuple):
    """A stretch of virtual time (s), its start in it and its end not."""

    start: float = 0.0
    end: float = math.inf

    def meets(self, begins: pd.Series, ends: pd.Series) -> pd.Series:
        """Which stretches have a part in it."""
        return (begins < self.end) & (ends >= self.start)


def nanoseconds(seconds: pd.Series) -> pd.Series:
    """Whole numbers: what follows upon another in time does not overlap it by rounding."""
    return (seconds * 1e9).round().astype("int64")


def machine(rank: int) -> str:
    """What a node is called."""
    return f"worker {rank}" if rank >= 0 else "server" if rank == -1 else f"server {-rank}"


def gradients(updates: pd.DataFrame, window: Window) -> pd.DataFrame:
    """The gradients that have a part in the window, each under its `row` in `updates`, with its times in ns.

    `computation` and `update` number the slices it has part in; -1 where it made part of none, or of one outside.
    """
    fates = updates.assign(computed=updates["computed"].fillna(updates["time"]), status=updates["status"].astype(str))
    fates = fates.rename_axis("row").reset_index()
    fates = fates[window.meets(fates["started"], fates["time"])]
    applied = (fates["status"] == "applied") & window.meets(fates["time"], fates["time"])
    fates = fates.assign(**{name: nanoseconds(fates[name]) for name in ("started", "computed", "time")})
    computation = fates.groupby(["worker", "started", "computed"], sort=False).ngroup()
    update = fates.groupby(["target", "time"], sort=False).ngroup()
    return fates.assign(computation=computation, update=update.where(applied, -1))


def messages(result: Result, window: Window) -> pd.DataFrame:
    """The messages that have a part in the window, with their times in ns.

    One that is under way at the end of the run is on its way until then; one that was lost, for no time.
    """
    log = result.messages
    ends = log["arrived"].where(log["status"] != "in flight", result.manifest["mileage"]["time"]).fillna(log["sent"])
    log = log.assign(arrived=ends.astype(float), sent=log["sent"].astype(float), status=log["status"].astype(str))
    log = log[window.meets(log["sent"], log["arrived"])].reset_index(drop=True)
    return log.assign(sent=nanoseconds(log["sent"]), arrived=nanoseconds(log["arrived"]))


def computing(fates: pd.DataFrame) -> pd.DataFrame:
    """A slice a gradient; the pieces that it may have share one computation, with the staleness of the stalest."""
    of = fates.assign(applied=fates["status"] == "applied").groupby("computation", sort=False)
    whole = of.agg(
        worker=("worker", "first"), started=("started", "first"), computed=("computed", "first"),
        applied=("applied", "any"), status=("status", "first"), staleness=("staleness", "max"),
        version_read=("version_read", "first"),
    ).reset_index()  # fmt: skip
    fate = whole["status"].where(~whole["applied"], "applied")
    stale = "staleness " + whole["staleness"].astype(str)
    args = whole[["staleness", "version_read"]].assign(fate=fate).to_dict("records")
    name = "gradient, " + stale.where(whole["applied"], fate)
    return _table(whole["worker"], COMPUTING, whole["started"], whole["computed"], name, args, whole["computation"])


def updating(fates: pd.DataFrame) -> pd.DataFrame:
    """An instant an update of a model; those of one model in one instant are one."""
    of = fates[fates["update"] >= 0].groupby("update", sort=False)
    each = of.agg(
        target=("target", "first"), time=("time", "first"), first=("version", "min"), version=("version", "max"),
        gradients=("row", "size"), workers=("worker", "nunique"), mean_staleness=("staleness", "mean"),
        max_staleness=("staleness", "max"),
    ).reset_index()  # fmt: skip
    first, last = (each["first"] + 1).astype(str), (each["version"] + 1).astype(str)
    name = ("update " + last).where(first == last, "updates " + first + " to " + last)
    told = each.assign(version=each["version"] + 1)
    args = told[["version", "gradients", "workers", "mean_staleness", "max_staleness"]].to_dict("records")
    return _table(each["target"], UPDATES, each["time"], each["time"], name, args, each["update"])


def crossing(sent: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """A slice a message on its sender's up link, and one on its receiver's down link, from sending to arrival."""
    args = sent[["bytes", "status"]].to_dict("records")
    for own, kind, other, word in (("sender", UP, "receiver", " to "), ("receiver", DOWN, "sender", " from ")):
        name = sent["content"].astype(str) + word + sent[other].map(machine).astype(str)
        yield _table(sent[own], kind, sent["sent"], sent["arrived"], name, args, pd.Series(sent.index))


def _table(
    rank: pd.Series, kind: str, start: pd.Series, end: pd.Series, name: pd.Series, args: list[dict], key: pd.Series
) -> pd.DataFrame:
    columns = {"rank": rank, "start": start, "end": end, "key": key}
    numbers = {column: np.asarray(values, dtype=np.int64) for column, values in columns.items()}
    return pd.DataFrame(
        {**numbers, "kind": kind, "name": np.asarray(name, dtype=object), "args": pd.Series(args, dtype=object)}
    )
