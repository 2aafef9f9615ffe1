"""A report as text: for a terminal while it is taken, and as the tables that the README shows."""

from collections.abc import Sequence
from itertools import groupby

from experiments.bench.report import Entry, Ratio, Report

TITLES = {
    "gradients": "Gradients of 16 workers, over those of the best plain loop",
    "ensemble": "One run of E members, over E runs one after another",
    "clock": "Cycles without learning, over bare SimPy's timeouts",
    "network": "Messages under fair sharing, over bare SimPy's timeouts",
    "recording": "Memory of recorded updates, over what ten million in 1 GiB may take",
    "sweep": "A grid of 24 runs on all cores, over one process",
    "shares": "Where the time of `laggard run` goes",
}
SPEEDS = {"clock": "cycles/s", "network": "messages/s"}


def line(entry: Entry) -> str:
    """An entry in one line."""
    where = ", ".join(f"{name} {value}" for name, value in entry.case.items())
    found = cell(entry) + (f" ({entry.note})" if entry.note and entry.ratio else "")
    return f"{entry.measure}: {where}: {found}"


def cell(entry: Entry) -> str:
    """What was found, as a table shows it: the median and the range, with the speed behind it where that says more."""
    if entry.ratio is None:
        return entry.note
    if entry.measure == "shares":
        return f"{100 * entry.ratio.median:.1f} %"
    speed = entry.rates.get(SPEEDS.get(entry.measure, ""))
    found = spread(entry.ratio)
    return found if speed is None else f"{amount(speed)}/s, {found}"


def spread(ratio: Ratio) -> str:
    """`1.31 (1.22 to 1.40)`; the median alone where there was one round."""
    median, least, most = (amount(number) for number in (ratio.median, ratio.least, ratio.most))
    return median if ratio.rounds == 1 else f"{median} ({least} to {most})"


def amount(number: float) -> str:
    """A number to three digits, large ones with commas."""
    if abs(number) >= 100:
        digits = len(str(int(abs(number))))
        return f"{round(number, 3 - digits):,.0f}"
    return f"{number:.2g}" if abs(number) < 0.1 else f"{number:.2f}" if abs(number) < 10 else f"{number:.1f}"


def as_markdown(report: Report) -> str:
    """Where and when it was taken, and a table a measure: rows and columns are those of its cases."""
    tables = [tabulated(list(entries)) for _, entries in groupby(report.entries, key=lambda entry: entry.measure)]
    return "\n\n".join([heading(report), *tables]) + "\n"


def heading(report: Report) -> str:
    """The machine, the date, and what the figures are."""
    machine = report.machine
    memory = "" if machine.memory_gib is None else f", {machine.memory_gib:.0f} GiB"
    busy = f", load {' and '.join(f'{load:.1f}' for load in machine.load)} before and after" if machine.load else ""
    device = "" if machine.device == "cpu" else f", {machine.device}"
    where = f"{machine.cores} cores ({machine.processor}, {machine.capability}){memory}{device}, {machine.system}"
    taken = f"Taken {report.date[:10]}{' with --quick' * report.quick} in {report.seconds / 60:.0f} min"
    return (
        f"{taken} on {where}{busy}; torch {report.versions['torch']}, Python {report.versions['python']}; "
        f"{report.data}. Medians of ratios measured in alternation, and their ranges."
    )


def tabulated(entries: Sequence[Entry]) -> str:
    """The entries of one measure as a Markdown table."""
    row, column = entries[0].case
    rows, columns = (list(dict.fromkeys(entry.case[key] for entry in entries)) for key in (row, column))
    cells = {(entry.case[row], entry.case[column]): cell(entry) for entry in entries}
    head = [f"{row} \\ {column}", *(f"{value:,}" if isinstance(value, int) else value for value in columns)]
    body = [[str(name), *(cells.get((name, value), "") for value in columns)] for name in rows]
    lines = [head, ["---"] * len(head), *body]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"**{TITLES[entries[0].measure]}**\n\n{table}"


def against(now: Report, then: Report) -> str:
    """What has changed between two reports, a line for each case that both have measured."""
    before = {(entry.measure, *entry.case.items()): entry for entry in then.entries}
    lines = [f"against {then.date[:10]}, {then.machine.cores} cores ({then.machine.processor}), {then.machine.device}:"]
    for entry in now.entries:
        other = before.get((entry.measure, *entry.case.items()))
        if other is None or entry.ratio is None or other.ratio is None or not other.ratio.median:
            continue
        change = entry.ratio.median / other.ratio.median - 1
        certain = ", ranges apart" if entry.ratio.apart(other.ratio) else ""
        where = ", ".join(f"{name} {value}" for name, value in entry.case.items())
        found = f"{spread(other.ratio)} -> {spread(entry.ratio)}: {change:+.0%}{certain}"
        lines.append(f"{entry.measure}: {where}: {found}")
    return "\n".join(lines if lines[1:] else [*lines, "no case in common"])
