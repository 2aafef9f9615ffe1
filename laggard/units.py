"""Units of time, size and bandwidth, in column names, in configs and in docstrings.

laggard computes in seconds, bytes and bytes per second. Bits are never taken for bytes: where a
spelling may mean either, it is refused.
"""

import re
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple

from laggard.docstrings import describe_keys

SECONDS = {
    "s": "1", "ms": "0.001", "us": "0.000001", "ns": "1e-9", "min": "60", "h": "3600",
    "day": "86400",
}  # fmt: skip
TIME_SPELLINGS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "msec": "ms", "msecs": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
    "usec": "us", "usecs": "us", "micros": "us", "microsecond": "us", "microseconds": "us",
    "µs": "us", "μs": "us", "µsec": "us", "μsec": "us",
    "nsec": "ns", "nsecs": "ns", "nanos": "ns", "nanosecond": "ns", "nanoseconds": "ns",
    "mins": "min", "minute": "min", "minutes": "min", "hour": "h", "hours": "h",
    "hr": "h", "hrs": "h", "days": "day",
}  # fmt: skip
DATA_UNIT = re.compile(
    r"(?P<prefix>[kmgt]?)(?P<binary>i?)(?P<base>bits?|bytes?|b)"
    r"(?P<second>ps|(/|_|_?per_?)s(ec|econd)?)?",
    re.IGNORECASE,
)
RATIO = re.compile(r"(.*)(/|(?<=[_ .-])per(?=[_ .-]))(.+?)", re.IGNORECASE)
"""A name such as `ms/batch`, `t / ms`, `images/s` or `seconds_per_step`."""
WORD_ENDS = re.compile(r"[_ .,:/-]+")
TIME_NOUNS = {"t", "time", "duration", "latency", "elapsed"}
RATES = {"throughput", "speed", "rate", "fps", "qps", "tps", "hz"}
"""Words of names whose numbers are no times, although they may have a unit of time."""
ALSO_WORDS = {"min": "minutes or a minimum", "us": "microseconds or a word", "ns": "ns or a word"}
"""Units of time that are words too -> what they may mean."""
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
QUANTITIES = {"s": "time", "bytes": "size", "bytes/s": "bandwidth", "operations/s": "speed"}
"""The quantity of each of laggard's own units; a docstring says `(s)`, `(bytes)` or `(bytes/s)`."""
UNIT_IN_DOCSTRING = re.compile(rf"(?:^|\s)\(({'|'.join(QUANTITIES)})[,;)]")
OWN_UNITS = {"time": "seconds", "size": "bytes", "bandwidth": "bytes/s", "speed": "operations/s"}
EXPECTED_FORMS = {
    "time": "a number (seconds), or text with its unit, as 10 ms",
    "size": "a number (bytes), or text with its unit, as 25 MB",
    "bandwidth": "a number (bytes/s), or text with its unit, as 10 Gbit/s",
    "speed": "a number (operations/s)",
}
NUMBER_AND_UNIT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(\D.*?)\s*", re.I)

TimeUnit = Literal["s", "ms", "us", "ns"]
BandwidthUnit = Literal["bytes/s", "kB/s", "MB/s", "GB/s", "kbit/s", "Mbit/s", "Gbit/s"]
"""Units that a key names for the numbers of a table."""


class AmbiguousUnitError(ValueError):
    """A spelling that may mean bits or bytes, minutes or a minimum, or a time or a rate."""


class Unit(NamedTuple):
    """A unit: its name, and the factor to laggard's own unit."""

    name: str
    factor: Decimal


def unit_named(text: str, quantity: str) -> Unit | None:
    """The unit of a quantity that `text` spells, else None.

    Raises:
        AmbiguousUnitError: it may mean bits or bytes.

    Example:
        >>> unit_named("msec", "time").name, unit_named("Gbps", "bandwidth").name
        ('ms', 'Gbit/s')
        >>> unit_named("ms", "size"), unit_named("MiB", "size").factor
        (None, Decimal('1048576'))
    """
    if quantity != "time":
        return _data_unit(text, quantity)
    for spelling in (text, text.lower()):
        name = TIME_SPELLINGS.get(spelling, spelling)
        if name in SECONDS:
            return Unit(name, Decimal(SECONDS[name]))
    return None


def _data_unit(text: str, quantity: str) -> Unit | None:
    """The unit of a size or a bandwidth; a bandwidth may omit `/s`."""
    match = DATA_UNIT.fullmatch(text)
    if match is None or (quantity == "size" and match["second"]) or quantity == "speed":
        return None
    prefix, base = match["prefix"].lower(), match["base"]
    is_bits = base.lower().startswith("bit")
    if len(base) == 1:
        is_bits = base == "b"
        # `Mbps` and `mbps` are megabits everywhere, `MB` megabytes; `mb`, `mb/s` and `MBPS` either
        is_rate = (match["second"] or "") == "ps"
        looks_careless = text.islower() if is_bits else text.isupper() and match["second"]
        if looks_careless and not (is_bits and is_rate):
            names = f"{_name(prefix, '', True, quantity)} or {_name(prefix, '', False, quantity)}"
            raise AmbiguousUnitError(f"{text} may be {names}")
    if is_bits and quantity == "size":
        return None
    base = 1024 if match["binary"] else 1000
    factor = Decimal(base) ** POWERS[prefix]
    if is_bits:
        factor /= 8
    return Unit(_name(prefix, match["binary"].lower(), is_bits, quantity), factor)


def _name(prefix: str, binary: str, is_bits: bool, quantity: str) -> str:
    if prefix != "k" or binary:
        prefix = prefix.upper()
    base = "bit" if is_bits else "B"
    per = "/s" if quantity == "bandwidth" else ""
    return f"{prefix}{binary}{base}{per}"


def unit_in_name(name: str, quantity: str) -> tuple[str, Unit | None]:
    """The name of a column without its unit, and that unit.

    It stands in brackets, at the end, alone, or of times as a word of the name or above `per`:
    `duration_ms`, `durationMs`, `time (us)`, `t [s]`, `ms`, `time_ms_mean`, `ms/batch`.

    Raises:
        AmbiguousUnitError: the unit may mean bits or bytes, or minutes or a minimum, or the name
            may denote a rate.

    Example:
        >>> unit_in_name("durationMs", "time")[0], unit_in_name("from", "time")
        ('duration', ('from', None))
    """
    match = re.fullmatch(r"(.*?)\s*[(\[]\s*([^()\[\]]+?)\s*[)\]]", name)
    if match is not None:
        unit = unit_named(match[2], quantity)
        if unit is None and quantity == "time":
            unit = _time_in_ratio(match[2])
        if unit is not None:
            return match[1].strip(), unit
    if quantity == "time":
        unit = _time_in_ratio(name)
        if unit is not None:
            return name, unit
    # a unit may itself have underscores, as bytes_per_s, or capitals, as Gbps
    for start in (0, *(found.end() for found in re.finditer(r"[_ .,:-]+|[a-z](?=[A-Z])", name))):
        unit = unit_named(re.sub("[ .-]", "_", name[start:]), quantity)
        if unit is not None:
            base = name[:start].rstrip("_ .,:-")
            if unit.name == "min" and name[start:].casefold() == "min":
                raise AmbiguousUnitError(f"{name} may be {ALSO_WORDS['min']}")
            return base, unit
    if quantity == "time":
        return name, _time_among_words(name)
    return name, None


def _time_in_ratio(name: str) -> Unit | None:
    """The unit in a ratio such as `ms/batch` or `t / ms`; None for a name without such a ratio.

    Raises:
        AmbiguousUnitError: as `images/s`, it may be a rate.
    """
    match = RATIO.fullmatch(name)
    if match is None:
        return None
    above = match[1].strip(" _.-")
    per = match[2]
    below = match[3].strip(" _.-")
    noun = WORD_ENDS.split(above)[-1]
    unit_below = unit_named(WORD_ENDS.split(below)[0], "time")
    if unit_below is None:
        return _time_in_ratio(above) or unit_named(noun, "time")
    if per == "/" and noun.casefold() in TIME_NOUNS:
        return unit_below
    raise AmbiguousUnitError(f"{name} may be a rate")


def _time_among_words(name: str) -> Unit | None:
    """The unit of time that is a word of a name; None where there is none.

    Raises:
        AmbiguousUnitError: the name has several units, a unit that is also a word, or the unit of a
            rate.
    """
    words = [word for word in WORD_ENDS.split(re.sub("(?<=[a-z])(?=[A-Z])", "_", name)) if word]
    rates = [word for word in words if word.casefold() in RATES]
    if rates:
        raise AmbiguousUnitError(f"{rates[0]} in {name} is the unit of a rate")
    units = set[Unit]()
    for word in words:
        # a single letter is a name more often than a unit, and `second` often counts
        if len(word) == 1 or word.casefold() == "second":
            continue
        unit = unit_named(word, "time")
        if unit is not None:
            units.add(unit)
    if len(units) > 1:
        names = " or ".join(sorted(unit.name for unit in units))
        raise AmbiguousUnitError(f"{name} may be in {names}")
    for unit in units:
        if unit.name in ALSO_WORDS:
            raise AmbiguousUnitError(f"{unit.name} in {name} may be {ALSO_WORDS[unit.name]}")
        return unit
    return None


def read_quantity(text: str, quantity: str) -> float:
    """The number in a text with its unit, in laggard's own unit.

    Raises:
        ValueError: it is not a number with a unit of this quantity, or the unit is ambiguous.

    Example:
        >>> read_quantity("10 ms", "time"), read_quantity("1 Gbit/s", "bandwidth")
        (0.01, 125000000.0)
    """
    match = NUMBER_AND_UNIT.fullmatch(text)
    unit = None
    refusal = f"expected {EXPECTED_FORMS[quantity]}, got {text!r:.80}"
    if match is not None:
        try:
            unit = unit_named(match[2], quantity)
        except AmbiguousUnitError as error:
            raise ValueError(f"{refusal}: {error}") from None
    if match is None or unit is None:
        raise ValueError(refusal)
    return float(Decimal(match[1]) * unit.factor)


@cache
def quantities_of(*recipes: Any) -> dict[str, str]:
    """The quantity that each argument measures, for arguments whose docstring names a unit."""
    quantities = {}
    for key, meaning in describe_keys(*recipes).items():
        match = UNIT_IN_DOCSTRING.search(meaning)
        if match is not None:
            quantities[key] = QUANTITIES[match[1]]
    return quantities
