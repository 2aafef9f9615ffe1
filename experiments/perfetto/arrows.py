"""The arrows of a trace: a gradient's way from its computation over the links to the update that it made part of."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from experiments.perfetto.slices import COMPUTING, DOWN, UP, UPDATES


def arrows(slices: pd.DataFrame, fates: pd.DataFrame, sent: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The flow events of all gradients, in order of time (ns); each is in the midst of the slice that it belongs to."""
    ways = _ways(fates, sent)
    ways = ways.merge(slices[["kind", "key", "pid", "tid", "start", "end"]], on=["kind", "key"])
    ways["ts"] = (ways["start"] + ways["end"]) // 2
    ways = ways.sort_values(["ts", "stop"], kind="stable")
    of = ways.groupby("row")
    place, last = of.cumcount(), of["row"].transform("size") - 1
    ways["ph"] = np.where(place == 0, "s", np.where(place == last, "f", "t"))
    ways = ways[last > 0]
    for row, ph, pid, tid, ts in zip(*(ways[name].tolist() for name in ("row", "ph", "pid", "tid", "ts")), strict=True):
        ends = {"bp": "e"} if ph == "f" else {}
        yield {"ph": ph, "cat": "gradient", "name": "gradient", "id": row + 1, "pid": pid, "tid": tid, "ts": ts, **ends}


def _ways(fates: pd.DataFrame, sent: pd.DataFrame) -> pd.DataFrame:
    """The slices, by `kind` and `key`, at which each gradient (`row`) stops: one message, the first after it."""
    carried = sent.assign(message=sent.index)[sent["status"] == "delivered"]
    carried = carried.merge(fates[["row", "computed", "time"]], left_on="gradient", right_on="row")
    carried = carried[(carried["sent"] >= carried["computed"]) & (carried["arrived"] <= carried["time"])]
    carried = carried.drop_duplicates("row")
    applied = fates[fates["update"] >= 0]
    stops = [
        (fates["row"], fates["computation"], COMPUTING),
        (carried["row"], carried["message"], UP),
        (carried["row"], carried["message"], DOWN),
        (applied["row"], applied["update"], UPDATES),
    ]
    tables = [
        pd.DataFrame({"row": row, "key": key, "kind": kind, "stop": stop})
        for stop, (row, key, kind) in enumerate(stops)
    ]
    return pd.concat(tables, ignore_index=True).astype({"row": "int64", "key": "int64"})
