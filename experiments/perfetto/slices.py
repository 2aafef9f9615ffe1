"""A run as slices of time, with arrows between them that follow each gradient to its update."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from laggard.experiments.results.result import Result, TimeWindow

COMPUTING, UP, DOWN, UPDATES = KINDS = ("computing", "up link", "down link", "updates")


def nanoseconds(seconds: pd.Series) -> pd.Series:
    """Integer nanoseconds, so that rounding does not make consecutive slices overlap."""
    return (seconds * 1e9).round().astype("int64")


def machine(rank: int) -> str:
    """The name of a node as a trace shows it: `worker 3`, `server`, `server 2`."""
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
    ended = updates.rename_axis("row").reset_index()
    ended["status"] = ended["status"].astype(str)
    ended["computed"] = ended["computed"].fillna(ended["time"])
    ended = ended[window.meets(ended["started"], ended["time"])].copy()
    is_applied = ended["status"] == "applied"
    is_inside = window.meets(ended["time"], ended["time"])
    for name in ("started", "computed", "time"):
        ended[name] = nanoseconds(ended[name])
    by_update = ended.groupby(["target", "time"], sort=False)
    by_computation = ended.groupby(["worker", "started", "computed"], sort=False)
    ended["update"] = by_update.ngroup().where(is_applied & is_inside, -1)
    ended["computation"] = by_computation.ngroup()
    return ended


def messages(result: Result, window: TimeWindow) -> pd.DataFrame:
    """The messages in the window, with their times in ns.

    A message in flight lasts until the end of the run; a lost message lasts no time.
    """
    log = result.messages.copy()
    end_of_run = result.manifest["mileage"]["time"]
    in_flight = log["status"] == "in flight"
    log["status"] = log["status"].astype(str)
    log["sent"] = log["sent"].astype(float)
    log["arrived"] = log["arrived"].astype(float).mask(in_flight, end_of_run)
    log["arrived"] = log["arrived"].fillna(log["sent"])
    log = log[window.meets(log["sent"], log["arrived"])].reset_index(drop=True)
    for name in ("sent", "arrived"):
        log[name] = nanoseconds(log[name])
    return log


def computation_slices(ended: pd.DataFrame) -> pd.DataFrame:
    """A slice per gradient; its pieces share one slice, with the largest staleness."""
    pieces = ended.groupby("computation", sort=False)
    gradients = pieces.first()
    gradients["staleness"] = pieces["staleness"].max()
    is_applied = (ended["status"] == "applied").groupby(ended["computation"]).any()
    is_applied = is_applied.reindex(gradients.index)
    status = gradients["status"].mask(is_applied, "applied")
    staleness = "staleness " + gradients["staleness"].astype(str)
    details = gradients[["staleness", "version_read"]].assign(status=status)
    slices = pd.DataFrame()
    slices["rank"] = gradients["worker"]
    slices["start"] = gradients["started"]
    slices["end"] = gradients["computed"]
    slices["key"] = gradients.index
    slices["kind"] = COMPUTING
    slices["name"] = "gradient, " + status.mask(is_applied, staleness)
    slices["args"] = details.to_dict("records")
    return slices


def update_slices(ended: pd.DataFrame) -> pd.DataFrame:
    """A slice without length per update; updates of one model in one instant share it."""
    applied = ended[ended["update"] >= 0].groupby("update", sort=False)
    details = pd.DataFrame()
    details["version"] = applied["version"].max() + 1
    details["gradients"] = applied.size()
    details["workers"] = applied["worker"].nunique()
    details["mean_staleness"] = applied["staleness"].mean()
    details["max_staleness"] = applied["staleness"].max()
    first = (applied["version"].min() + 1).astype(str)
    last = details["version"].astype(str)
    slices = pd.DataFrame()
    slices["rank"] = applied["target"].first()
    slices["start"] = applied["time"].first()
    slices["end"] = slices["start"]
    slices["key"] = slices.index
    slices["kind"] = UPDATES
    slices["name"] = ("update " + last).where(first == last, "updates " + first + " to " + last)
    slices["args"] = details.to_dict("records")
    return slices


def message_slices(sent: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Two slices per message: on the sender's up link and on the receiver's down link."""
    # where there are no messages, pandas gives a column of integers, to which no text can be added
    receivers = sent["receiver"].map(machine).astype(str)
    senders = sent["sender"].map(machine).astype(str)
    yield _link_slices(sent, "sender", UP, " to " + receivers)
    yield _link_slices(sent, "receiver", DOWN, " from " + senders)


def _link_slices(sent: pd.DataFrame, end: str, kind: str, other_end: pd.Series) -> pd.DataFrame:
    slices = pd.DataFrame()
    slices["rank"] = sent[end].astype("int64")
    slices["start"] = sent["sent"]
    slices["end"] = sent["arrived"]
    slices["key"] = sent.index
    slices["kind"] = kind
    slices["name"] = sent["content"].astype(str) + other_end
    slices["args"] = sent[["bytes", "status"]].to_dict("records")
    return slices


def arrows(
    slices: pd.DataFrame, ended: pd.DataFrame, sent: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    """The flow events of all gradients, in order of time (ns), each in the middle of its slice."""
    stops = _stops(ended, sent).merge(slices, on=["kind", "key"])
    stops["ts"] = (stops["start"] + stops["end"]) // 2
    stops = stops.sort_values(["ts", "stop"], kind="stable")
    by_gradient = stops.groupby("row")
    place = by_gradient.cumcount()
    last = by_gradient["row"].transform("size") - 1
    stops["ph"] = "t"
    stops.loc[place == last, "ph"] = "f"
    stops.loc[place == 0, "ph"] = "s"
    stops["id"] = stops["row"] + 1
    stops = stops[last > 0]
    for stop in stops[["ph", "id", "pid", "tid", "ts"]].to_dict("records"):
        event = {"cat": "gradient", "name": "gradient", **stop}
        if stop["ph"] == "f":  # the arrow ends at the enclosing slice, not at the next one
            event["bp"] = "e"
        yield event


def _stops(ended: pd.DataFrame, sent: pd.DataFrame) -> pd.DataFrame:
    """The slices (`kind`, `key`) of each gradient (`row`): at most one message, the first."""
    delivered = sent.assign(message=sent.index)[sent["status"] == "delivered"]
    computations = ended[["row", "computed", "time"]]
    carried = delivered.merge(computations, left_on="gradient", right_on="row")
    after_computation = carried["sent"] >= carried["computed"]
    before_update = carried["arrived"] <= carried["time"]
    carried = carried[after_computation & before_update].drop_duplicates("row")
    applied = ended[ended["update"] >= 0]
    stops = [
        ended[["row", "computation"]].assign(kind=COMPUTING),
        carried[["row", "message"]].assign(kind=UP),
        carried[["row", "message"]].assign(kind=DOWN),
        applied[["row", "update"]].assign(kind=UPDATES),
    ]
    tables = []
    for stop, table in enumerate(stops):
        table.columns = ["row", "key", "kind"]
        tables.append(table.assign(stop=stop))
    return pd.concat(tables, ignore_index=True).astype({"row": "int64", "key": "int64"})
