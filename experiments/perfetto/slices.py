"""A run as slices of time, with arrows between them that follow each gradient to its update."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.results.result import Result

COMPUTING, UP, DOWN, UPDATES = KINDS = ("computing", "up link", "down link", "updates")


class TimeWindow(NamedTuple):
    """An interval of virtual time (s), with its start and without its end."""

    start: float = 0.0
    end: float = math.inf

    def meets(self, begins: pd.Series, ends: pd.Series) -> pd.Series:
        """Whether each interval overlaps the window."""
        return (begins < self.end) & (ends >= self.start)


def nanoseconds(seconds: pd.Series) -> pd.Series:
    """Integer nanoseconds, so that rounding does not make consecutive slices overlap."""
    return (seconds * 1e9).round().astype("int64")


def machine(rank: int) -> str:
    """The name of a node."""
    if rank >= 0:
        return f"worker {rank}"
    if rank == -1:
        return "server"
    return f"server {-rank}"


def gradients(updates: pd.DataFrame, window: TimeWindow) -> pd.DataFrame:
    """The gradients in the window, with their `row` in `updates` and times in ns.

    `computation` and `update` number the slices of a gradient; -1 if it was not applied, or outside
    the window.
    """
    ended = updates.assign(
        computed=updates["computed"].fillna(updates["time"]), status=updates["status"].astype(str)
    )
    ended = ended.rename_axis("row").reset_index()
    ended = ended[window.meets(ended["started"], ended["time"])]
    applied = (ended["status"] == "applied") & window.meets(ended["time"], ended["time"])
    ended = ended.assign(
        **{name: nanoseconds(ended[name]) for name in ("started", "computed", "time")}
    )
    computation = ended.groupby(["worker", "started", "computed"], sort=False).ngroup()
    update = ended.groupby(["target", "time"], sort=False).ngroup()
    return ended.assign(computation=computation, update=update.where(applied, -1))


def messages(result: Result, window: TimeWindow) -> pd.DataFrame:
    """The messages in the window, with their times in ns.

    A message in flight lasts until the end of the run; a lost message lasts no time.
    """
    log = result.messages
    ends = (
        log["arrived"]
        .where(log["status"] != "in flight", result.manifest["mileage"]["time"])
        .fillna(log["sent"])
    )
    log = log.assign(
        arrived=ends.astype(float), sent=log["sent"].astype(float), status=log["status"].astype(str)
    )
    log = log[window.meets(log["sent"], log["arrived"])].reset_index(drop=True)
    return log.assign(sent=nanoseconds(log["sent"]), arrived=nanoseconds(log["arrived"]))


def computation_slices(ended: pd.DataFrame) -> pd.DataFrame:
    """A slice per gradient; its pieces share one slice, with the largest staleness."""
    of = ended.assign(applied=ended["status"] == "applied").groupby("computation", sort=False)
    whole = of.agg(
        worker=("worker", "first"), started=("started", "first"), computed=("computed", "first"),
        applied=("applied", "any"), status=("status", "first"), staleness=("staleness", "max"),
        version_read=("version_read", "first"),
    ).reset_index()  # fmt: skip
    status = whole["status"].where(~whole["applied"], "applied")
    stale = "staleness " + whole["staleness"].astype(str)
    args = whole[["staleness", "version_read"]].assign(fate=status).to_dict("records")
    name = "gradient, " + stale.where(whole["applied"], status)
    return _table(
        whole["worker"],
        COMPUTING,
        whole["started"],
        whole["computed"],
        name,
        args,
        whole["computation"],
    )


def update_slices(ended: pd.DataFrame) -> pd.DataFrame:
    """A slice without length per update; updates of one model in one instant share it."""
    of = ended[ended["update"] >= 0].groupby("update", sort=False)
    each = of.agg(
        target=("target", "first"), time=("time", "first"), first=("version", "min"), version=("version", "max"),
        gradients=("row", "size"), workers=("worker", "nunique"), mean_staleness=("staleness", "mean"),
        max_staleness=("staleness", "max"),
    ).reset_index()  # fmt: skip
    first, last = (each["first"] + 1).astype(str), (each["version"] + 1).astype(str)
    name = ("update " + last).where(first == last, "updates " + first + " to " + last)
    told = each.assign(version=each["version"] + 1)
    args = told[["version", "gradients", "workers", "mean_staleness", "max_staleness"]].to_dict(
        "records"
    )
    return _table(each["target"], UPDATES, each["time"], each["time"], name, args, each["update"])


def message_slices(sent: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Two slices per message: on the sender's up link and on the receiver's down link."""
    args = sent[["bytes", "status"]].to_dict("records")
    for own, kind, other, word in (
        ("sender", UP, "receiver", " to "),
        ("receiver", DOWN, "sender", " from "),
    ):
        name = sent["content"].astype(str) + word + sent[other].map(machine).astype(str)
        yield _table(
            sent[own], kind, sent["sent"], sent["arrived"], name, args, pd.Series(sent.index)
        )


def _table(
    rank: pd.Series,
    kind: str,
    start: pd.Series,
    end: pd.Series,
    name: pd.Series,
    args: list[Any],
    key: pd.Series,
) -> pd.DataFrame:
    columns = {"rank": rank, "start": start, "end": end, "key": key}
    numbers = {column: np.asarray(values, dtype=np.int64) for column, values in columns.items()}
    return pd.DataFrame(
        {
            **numbers,
            "kind": kind,
            "name": np.asarray(name, dtype=object),
            "args": pd.Series(args, dtype=object),
        }
    )


def arrows(
    slices: pd.DataFrame, ended: pd.DataFrame, sent: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    """The flow events of all gradients, in order of time (ns), each in the middle of its slice."""
    ways = _stops(ended, sent)
    ways = ways.merge(slices[["kind", "key", "pid", "tid", "start", "end"]], on=["kind", "key"])
    ways["ts"] = (ways["start"] + ways["end"]) // 2
    ways = ways.sort_values(["ts", "stop"], kind="stable")
    of = ways.groupby("row")
    place, last = of.cumcount(), of["row"].transform("size") - 1
    ways["ph"] = np.where(place == 0, "s", np.where(place == last, "f", "t"))
    ways = ways[last > 0]
    for row, ph, pid, tid, ts in zip(
        *(ways[name].tolist() for name in ("row", "ph", "pid", "tid", "ts")), strict=True
    ):
        event = {
            "ph": ph,
            "cat": "gradient",
            "name": "gradient",
            "id": row + 1,
            "pid": pid,
            "tid": tid,
            "ts": ts,
        }
        if ph == "f":  # the arrow ends at the enclosing slice, not at the next one
            event["bp"] = "e"
        yield event


def _stops(ended: pd.DataFrame, sent: pd.DataFrame) -> pd.DataFrame:
    """The slices (`kind`, `key`) of each gradient (`row`): at most one message, the first."""
    carried = sent.assign(message=sent.index)[sent["status"] == "delivered"]
    carried = carried.merge(ended[["row", "computed", "time"]], left_on="gradient", right_on="row")
    carried = carried[
        (carried["sent"] >= carried["computed"]) & (carried["arrived"] <= carried["time"])
    ]
    carried = carried.drop_duplicates("row")
    applied = ended[ended["update"] >= 0]
    stops = [
        (ended["row"], ended["computation"], COMPUTING),
        (carried["row"], carried["message"], UP),
        (carried["row"], carried["message"], DOWN),
        (applied["row"], applied["update"], UPDATES),
    ]
    tables = [
        pd.DataFrame({"row": row, "key": key, "kind": kind, "stop": stop})
        for stop, (row, key, kind) in enumerate(stops)
    ]
    return pd.concat(tables, ignore_index=True).astype({"row": "int64", "key": "int64"})
