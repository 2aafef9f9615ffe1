"""Numbers with units: the same run in any unit, bits never for bytes, and errors that name units."""

import random
import warnings
from string import Template

import pytest
from pydantic import ValidationError

from laggard import Cluster, ConfigError, InvalidSettingError, Network, Stop, load
from laggard.experiments.config.cluster import ClusterPart
from laggard.experiments.config.config import digest_of
from laggard.experiments.config.listing import MAPPINGS, SECTIONS
from laggard.experiments.config.schema import part
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.groups import Trunk
from laggard.simulator.timing.distributions import Constant, Trace
from laggard.units import OWN_UNITS, AmbiguousUnitError, quantities_of, read_quantity, unit_named

CONFIG = """
cluster:
  workers: 2
  compute: {law: gamma, mean: $MEAN, cv: 0.3}
  slowdowns: [{worker: 0, at: $AT, back: $BACK}]
  apply_seconds: $APPLY
  network: {bandwidth: $BANDWIDTH, latency: $LATENCY, message_bytes: $SIZE}
task: {model: timing}
stop: {time: $TIME}
"""
PLAIN = {
    "MEAN": "0.035", "AT": "0.1", "BACK": "120", "APPLY": "0.0007", "BANDWIDTH": "1.25e8",
    "LATENCY": "1.1e-5", "SIZE": "25e6", "TIME": "5400",
}  # fmt: skip
UNITS = [
    {
        "MEAN": "35 ms", "AT": "100ms", "BACK": "2 min", "APPLY": ".7 ms", "BANDWIDTH": "1 Gbit/s",
        "LATENCY": "11us", "SIZE": "25MB", "TIME": "1.5 h",
    },
    {
        "MEAN": "35e3 usec", "AT": "1e8 ns", "BACK": "120 seconds", "APPLY": "700 µs",
        "BANDWIDTH": "1000 Mbps", "LATENCY": "11000 ns", "SIZE": "25000 kB", "TIME": "90 minutes",
    },
    {"BANDWIDTH": "125 MB/s", "SIZE": "25000000 bytes", "TIME": "5400s"},
]  # fmt: skip


def config(tmp_path, values):
    path = tmp_path / "toy.yaml"
    path.write_text(Template(CONFIG).substitute(PLAIN | values))
    return load(path)


@pytest.mark.parametrize("values", UNITS)
def test_config_in_other_units_is_the_same_run(values, tmp_path):
    plain = config(tmp_path, {})
    other = config(tmp_path, values)
    assert other.as_dict() == plain.as_dict()
    assert digest_of(other) == digest_of(plain)


def test_numbers_of_a_list_have_units(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(Template(CONFIG).substitute(PLAIN))
    lists = ("[40 ms, 2]", "[0.04, 2 s]", "[0.04, 2]")
    one, *others = (
        digest_of(load(path, f"algorithm={{name: mindflayer, patience: {each}}}")) for each in lists
    )
    assert others == [one, one]


def test_number_in_another_unit_is_rounded_once():
    rng = random.Random(0)
    for _ in range(1000):
        number = rng.randrange(10**6)
        assert read_quantity(f"{number} ms", "time") == number / 1000
        assert read_quantity(f"{number / 1000} us", "time") == float(f"{number}e-9")
        assert read_quantity(f"{number} kbit/s", "bandwidth") == 125 * number


@pytest.mark.parametrize(
    ("text", "quantity"),
    [("mb/s", "bandwidth"), ("MBPS", "bandwidth"), ("GB/S", "bandwidth"), ("gb", "bandwidth"),
     ("kb", "size"), ("mb", "size")],
)  # fmt: skip
def test_bits_are_never_taken_for_bytes(text, quantity):
    with pytest.raises(AmbiguousUnitError, match=r"bit.* or .*B"):
        unit_named(text, quantity)


def parts_with_units():
    parts = {ClusterPart, *(part(recipe) for recipe in (Card, SlowLink, Hosts, Trunk))}
    for choice in SECTIONS.values():
        parts |= set(choice.parts.values())
    for mapping in MAPPINGS.values():
        parts |= set(mapping)
    for model in parts:
        for key, quantity in quantities_of(*model.describes, model.recipe).items():
            if key in model.model_fields and key != "compute":
                yield pytest.param(model, key, OWN_UNITS[quantity], id=f"{model.__name__}.{key}")


@pytest.mark.parametrize(("model", "key", "unit"), sorted(parts_with_units(), key=lambda p: p.id))
def test_error_of_a_quantity_names_its_unit(model, key, unit):
    for value in ("fast", True, [None], "10", "10 parsecs"):
        with pytest.raises(ValidationError) as caught:
            model.model_validate({key: value})
        (error,) = [error for error in caught.value.errors() if error["loc"] == (key,)]
        assert f"({unit})" in str(error["ctx"]["error"])


def test_most_quantities_are_tried():
    assert len(list(parts_with_units())) > 60


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Constant("10 ms"), r"Constant\.mean: .*seconds"),
        (lambda: Constant(-1.0), r"Constant\.mean: .*seconds"),
        (lambda: Network(bandwidth="1 Gbit/s"), r"Network\.bandwidth: .*bytes/s"),
        (lambda: Cluster(2, apply_seconds="1 ms"), r"Cluster\.apply_seconds: .*seconds"),
        (lambda: Stop(time="1 h"), r"Stop\.time: .*seconds"),
    ],
)
def test_python_error_names_the_unit(make, named):
    with pytest.raises(InvalidSettingError, match=f"^{named}"):
        make()


SLOWDOWNS, CHANGES = "cluster.slowdowns=[{%s}]", "cluster.network.changes={%s}"
TABLES = {
    "slowdowns": (
        (SLOWDOWNS % "file: table.csv", "worker,from,to,factor\n0,0.035,1.5,2\n1,2,,down\n"),
        (
            SLOWDOWNS % "file: table.csv",
            "worker,from_ms,until_ms,factor\n0,35,1500,2\n1,2000,,down\n",
        ),
        (
            SLOWDOWNS % "file: table.csv, unit: ms",
            "worker,from,to,factor\n0,35,1500,2\n1,2000,,down\n",
        ),
    ),
    "changes": (
        (
            CHANGES % "file: table.csv",
            "sender,receiver,from,to,bandwidth,latency\n0,*,0.035,1.5,12.5e6,\n1,*,0.1,,,0.7e-3\n",
        ),
        (
            CHANGES % "file: table.csv",
            "sender,receiver,start (ms),end [us],bandwidth_mbps,latency_ms\n"
            "0,*,35,1500000,100,\n1,*,100,,,.7\n",
        ),
        (
            CHANGES % "file: table.csv, unit: ms, bandwidth_unit: Mbit/s",
            "sender,receiver,from,to,bandwidth,latency\n0,*,35,1500,100,\n1,*,100,,,.7\n",
        ),
    ),
}
"""Overrides and tables: without units, with units in the names of columns, and in keys."""


@pytest.mark.parametrize("kind", TABLES)
def test_units_of_columns_and_keys_are_read(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config(tmp_path, {"AT": "0.2", "BACK": "0.3"})
    rows, reported = [], []
    for override, content in TABLES[kind]:
        (tmp_path / "table.csv").write_text(content)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cluster = load(tmp_path / "toy.yaml", override).build_cluster()
        reported.append(any("is read in ms" in str(warning.message) for warning in caught))
        recorded = cluster.slowdowns[0] if kind == "slowdowns" else cluster.network.changes
        rows.append(recorded.rows)
    assert rows[0] == rows[1] == rows[2]
    assert reported == [False, True, False]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("sender,receiver,from,from_ms,to,bandwidth,latency", "from and from_ms"),
        ("sender,receiver,from,to,bandwidth_MBPS,latency", "Mbit/s or MB/s"),
    ],
)
def test_two_readings_of_a_column_are_refused(columns, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config(tmp_path, {})
    cells = ",".join("1" for _ in columns.split(","))
    (tmp_path / "table.csv").write_text(f"{columns}\n{cells}\n")
    with pytest.raises(ConfigError, match=rf"changes\.file: .*{reason}"):
        load(tmp_path / "toy.yaml", CHANGES % "file: table.csv")


@pytest.mark.parametrize(
    ("key", "columns", "reason"),
    [
        ("unit: s", "from_ms,to_ms,bandwidth,latency", r"changes\.unit: .*ms"),
        ("unit: fortnight", "from,to,bandwidth,latency", r"changes\.unit: .*fortnight"),
        ("bandwidth_unit: GB/s", "from,to,bandwidth_Gbps,latency", r"changes\.bandwidth_unit: .*Gbit"),
        ("bandwidth_unit: mb", "from,to,bandwidth,latency", r"changes\.bandwidth_unit: .*mb"),
    ],
)  # fmt: skip
def test_unit_that_contradicts_its_column_is_refused(key, columns, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config(tmp_path, {})
    (tmp_path / "table.csv").write_text(f"sender,receiver,{columns}\n0,*,1,2,3,4\n")
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path / "toy.yaml", CHANGES % f"file: table.csv, {key}")


def test_trace_in_milliseconds_equals_trace_in_seconds(tmp_path):
    numbers = [random.Random(1).randrange(1, 10**5) for _ in range(200)]
    (tmp_path / "s.csv").write_text("seconds\n" + "\n".join(f"{n}e-3" for n in numbers))
    (tmp_path / "ms.csv").write_text("duration\n" + "\n".join(map(str, numbers)))
    plain, other = Trace(str(tmp_path / "s.csv")), Trace(str(tmp_path / "ms.csv"), unit="ms")
    assert plain.seconds.tolist() == other.seconds.tolist()
