"""The rules of the Trace Event Format that a trace of ours must keep, as a checker that answers
with what is broken.
"""

import json
from collections import defaultdict
from decimal import Decimal

PHASES = {"M", "X", "s", "t", "f", "C"}
NAMES = {
    "process_name": "name",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def broken(text):
    """What in a trace breaks the format; numbers are compared as they are written."""

    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    try:
        document = json.loads(text, parse_float=Decimal, parse_constant=refuse)
    except ValueError as error:
        return [str(error)]
    events = document["traceEvents"]
    problems = [f"{what}: {event}" for event in events if (what := _shape(event))]
    if problems:
        return problems
    moments = [event["ts"] for event in events if event["ph"] != "M"]
    if moments != sorted(moments):
        problems.append("not in order of time")
    return problems + _unnamed(events) + _overlaps(events) + _flows(events)


def _shape(event):
    """What is wrong with one event by itself."""
    if event.get("ph") not in PHASES:
        return "unknown phase"
    small = [
        event.get("pid"),
        *([event.get("tid")] if event["ph"] in "Xstf" or "tid" in event else []),
    ]
    if not all(type(number) is int and 0 < number < 2**31 for number in small):
        return "pid and tid are small positive integers"
    if not (isinstance(event.get("name"), str) and event["name"]):
        return "no name"
    if event["ph"] == "M":
        return (
            "metadata"
            if "ts" in event or NAMES.get(event["name"]) not in event.get("args", {})
            else ""
        )
    for number in ("ts", *["dur"] * (event["ph"] == "X")):
        if not isinstance(event.get(number), int | Decimal) or event[number] < 0:
            return f"{number} is no time"
    if event["ph"] == "C" and not all(
        isinstance(value, int | Decimal) for value in event["args"].values()
    ):
        return "a counter counts numbers"
    if event["ph"] in "stf" and type(event.get("id")) is not int:
        return "a flow has an id"
    return (
        "an end binds to the enclosing slice"
        if event["ph"] == "f" and event.get("bp") != "e"
        else ""
    )


def _unnamed(events):
    named = {
        (event["pid"], event.get("tid"))
        for event in events
        if event["name"] in ("process_name", "thread_name")
    }
    used = {(event["pid"], tid) for event in events for tid in {None, event.get("tid")}}
    tids = defaultdict(set)
    for pid, tid in used:
        tids[tid].add(pid)
    shared = [
        f"thread {tid} is in several processes"
        for tid, pids in tids.items()
        if tid is not None and len(pids) > 1
    ]
    return [f"track {track} has no name" for track in sorted(used - named, key=str)] + shared


def _overlaps(events):
    """Slices of one thread lie one after the other or one in the other."""
    problems, open_until = [], defaultdict(list)
    for event in sorted(
        (event for event in events if event["ph"] == "X"), key=lambda of: (of["ts"], -of["dur"])
    ):
        stack, end = open_until[event["tid"]], event["ts"] + event["dur"]
        while stack and stack[-1] <= event["ts"]:
            stack.pop()
        if stack and end > stack[-1]:
            problems.append(f"overlaps in part: {event}")
        stack.append(end)
    return problems


def _flows(events):
    """A flow begins once, ends once, never runs backwards, and each of its events lies in a slice
    of its thread.
    """
    slices, flows, problems = defaultdict(list), defaultdict(list), []
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] in "stf":
            flows[event["cat"], event["name"], event["id"]].append(event)
    for flow in flows.values():
        phases = "".join(event["ph"] for event in flow)
        if phases != "s" + "t" * (len(flow) - 2) + "f":
            problems.append(f"a flow of {phases}: {flow[0]}")
        for event in flow:
            if not any(
                start <= event["ts"] <= end for start, end in slices[event["pid"], event["tid"]]
            ):
                problems.append(f"bound to no slice: {event}")
    return problems
