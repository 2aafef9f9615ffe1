"""The reference says what there is: each key of a config, who heeds it, and each column of each
table.
"""

import re
import sys
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from pydantic import ValidationError

from laggard import load, simulate, summary, sweep
from laggard.experiments.config.config import parse
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.listing import config_schema, limits_of_keys
from laggard.experiments.config.parts import (
    ALGORITHM,
    COMPENSATION,
    LEARNING,
    SCHEDULE,
    NamedChoice,
)
from laggard.experiments.config.task import DATASET
from laggard.simulator import ALGORITHMS
from laggard.simulator.errors import Positive, Settings
from tests.documents import ROOT

sys.path.insert(0, str(ROOT / "docs"))  # as the site does
equations, reference, rendering = map(import_module, ("equations", "reference", "rendering"))

PHYSICAL = re.compile(
    r"_seconds$|_bytes$|bandwidth$|latency$|^(mean|shift|start|end|at|back|time|uptime)$"
)


def keys_of(schema):
    """The keys of a config: in which part, its name, and its schema; but for those that name the
    part.
    """
    for part, said in {"Config": schema, **schema["$defs"]}.items():
        yield from (
            (part, key, each)
            for key, each in said.get("properties", {}).items()
            if "const" not in each
        )


KEYS = list(keys_of(config_schema()))


def cells(text):
    """The rows of the tables of a page, without heading."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_key_is_listed_with_its_type():
    rows = cells("\n".join(reference.keys()))
    assert {row[0].strip("`") for row in rows} >= {key for _, key, _ in KEYS} - {"base", "scales"}
    assert len(rows) > 250
    assert [row for row in rows if not row[1] or not row[-1]] == []


def test_every_time_and_every_size_has_a_unit():
    # a factor, updates or epochs, and weights
    elsewhere = {
        ("WarmUpPart", "start"),
        ("StepPart", "at"),
        ("QuadraticPart", "shift"),
        ("TridiagonalPart", "shift"),
    }
    measured = [
        (part, key)
        for part, key, _ in KEYS
        if PHYSICAL.search(key) and (part, key) not in elsewhere
    ]
    lacking = [
        (part, key)
        for part, key, said in KEYS
        if (part, key) in measured and not reference.UNIT.search(said["description"])
    ]
    assert len(measured) > 50
    assert lacking == []


@dataclass(frozen=True)
class Sleepy(Settings):
    """Workers that oversleep.

    Attributes:
        by: how long (s), as
            long as it takes.
    """

    by: Positive = 2.0


def test_new_key_is_listed_with_unit_and_range():
    choice = NamedChoice.of("kind", {"sleepy": Sleepy}, "sleepy", Sleepy)
    lines = list(reference.section("sleepers (cluster.sleepers)", choice))
    assert "### sleepy" in lines
    assert "Workers that oversleep." in lines
    assert "| key | type | default | unit | range | what it says |" in lines
    assert "| `by` | number | `2.0` | s | > 0 | how long (s), as long as it takes. |" in lines


@pytest.mark.parametrize(
    ("line", "escaped"),
    [
        ("- 1 where n_push", r"\- 1 where n\_push"),
        ("2. of them", r"2\. of them"),
        ("-1 is the server", "-1 is the server"),
    ],
)
def test_line_with_a_sign_begins_no_list(line, escaped):
    assert reference.escape_line(line) == escaped


def test_aligned_lines_of_docstrings_are_kept():
    lines = [
        "Seconds:",
        "",
        "ring    2 P",
        "tree    log P",
        "for P nodes.",
        "",
        "Attributes:",
        "    start, end: (s).",
    ]
    kept = [
        "Seconds:",
        "",
        "",
        "::",
        "",
        "    ring    2 P",
        "    tree    log P",
        "",
        "for P nodes.",
        "",
    ]
    assert list(rendering.restructure(lines)) == [*kept, "Attributes:", "    start,end: (s)."]


def test_equations_are_typeset_and_tables_keep_their_alignment():
    class Part:
        """One sentence.

            a = b
            long  <- c
        then more.

            order    seconds
            any      1 / P
        """

    lines = list(reference.description(Part))  # type: ignore[arg-type]  # its docstring is all that counts
    assert [line for line in lines if line] == [
        "One sentence.",
        *("$$", "a = b", "$$"),
        *("$$", equations.latex_of("long  <- c"), "$$"),
        "then more.",
        "    order    seconds",
        "    any      1 / P",
    ]


@pytest.mark.parametrize(
    ("line", "latex"),
    [
        ("w <- w - lr (1/P) sum_i g_i(w)", r"w \leftarrow w - \text{ lr } \frac{1}{P} \sum_{i} g_{i}(w)"),
        ("w_{t+1} = g(w_read_k)", r"w_{t+1} = g(w_{\text{read},k})"),
        ("m_ij = sum_(k != j) m_ki", r"m_{ij} = \sum_{k \ne j} m_{ki}"),
        ("x_i^p <- keep x_i^p,  p = 1 .. F", r"x_{i}^p \leftarrow \text{ keep } x_{i}^p,\qquad p = 1 \ldots F"),
        ("e_k = max(r_k, e_{k-1}) + alpha", r"e_{k} = \max (r_{k}, e_{k-1}) + \alpha"),
        ("c_i <- mean of the g_i", r"c_{i} \leftarrow \text{ mean of the } g_{i}"),
        ("mean_i x_i - outer_lr d", r"\text{ mean}_{i} x_{i} - \text{ outer_lr } d"),
    ],
)  # fmt: skip
def test_equation_is_latex(line, latex):
    assert " ".join(equations.latex_of(line).split()) == latex


@pytest.mark.parametrize("name", ALGORITHM.parts)
def test_method_has_a_typeset_equation(name):
    assert "$$" in list(reference.description(ALGORITHM.parts[name]))


ENTRIES = [
    pytest.param(part, id=name)
    for choice in (ALGORITHM, LEARNING, COMPENSATION, SCHEDULE)
    for name, part in choice.parts.items()
    if not any(field.is_required() for field in part.model_fields.values())
]


@pytest.mark.parametrize("part", ENTRIES)
def test_number_outside_its_range_is_refused(part):
    beyond = {"minimum": -1.0, "exclusiveMinimum": 0.0, "maximum": 1.0, "exclusiveMaximum": 0.0}
    properties = reference.schema_of(part)["properties"]
    for key, limits in limits_of_keys(part).items():
        for word, limit in limits.items():
            value = limit + beyond[word] * max(1.0, abs(limit))
            with pytest.raises(ValidationError, match=rf"\.{key}: expected"):
                part.model_validate(
                    {key: int(value) if "integer" in str(properties[key]) else value}
                )


def test_data_sets_have_the_ranges_of_their_sizes():
    properties = reference.schema_of(DATASET.parts["synthetic"])["properties"]
    assert (properties["samples"]["minimum"], properties["samples"]["maximum"]) == (4, 10**6)


BASE = {
    "cluster": {
        "workers": 4,
        "compute": {"law": "uniform", "low": 1.0, "high": 2.0},
        "network": {"bandwidth": 1e6, "message_bytes": 1e5},
    },
    "task": {
        "model": "mlp",
        "hidden": [2, 2, 2],
        "dataset": {"name": "synthetic", "samples": 40},
        "batch": 2,
    },
    "stop": {"time": 45.0},
}
CRASH = {"at": 8.0, "restore_seconds": 1.0}
CHANGES = {
    "cluster.apply_seconds": {"cluster": {"apply_seconds": 0.3}},
    "cluster.receive_seconds": {"cluster": {"receive_seconds": 0.3}},
    # longer than a step takes, so that it delays the next receive even from a single client
    "cluster.reply_seconds": {"cluster": {"reply_seconds": 12.0}},
    "cluster.network.server_bandwidth": {"cluster": {"network": {"server_bandwidth": 2e5}}},
    "cluster.network.server_latency": {"cluster": {"network": {"server_latency": 0.3}}},
    "cluster.network.colocated": {"cluster": {"network": {"colocated": True}}},
    "cluster.server_crashes": {"cluster": {"server_crashes": [CRASH]}},
    "cluster.checkpoint": {
        "cluster": {"server_crashes": [CRASH], "checkpoint": {"every_updates": 1}}
    },
    "evaluate.nodes": {"evaluate": {"nodes": True}},
}


def outcome(method, changes):
    """What a method leaves behind; None where the config is refused."""
    document = {**BASE, "algorithm": method}
    document["cluster"] = {**BASE["cluster"], "workers": 1 if method.startswith("delayed") else 4}
    for key, value in changes.items():
        document[key] = {**document.get(key, {}), **value}
        if "network" in value:
            document[key]["network"] = {**BASE["cluster"]["network"], **value["network"]}
    try:
        (run,) = [RunSpec(parse(document), threads=1)]
        return simulate(**run.arguments())
    except (ConfigError, ValueError):
        return None


def traces(found):
    """What shows whether two runs differ: when what happened, and what was measured of nodes."""
    columns = [found.updates[name] for name in ("time", "worker", "computed")]
    others = [table[name] for table in (found.nodes, found.restores) for name in table]
    return [*columns, *others, np.array([*found.messages.values()])]


def differ(one, other):
    first, second = traces(one), traces(other)
    return len(first) != len(second) or not all(
        map(partial(np.array_equal, equal_nan=True), first, second)
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ALGORITHMS)
def test_page_names_methods_that_use_a_key(method):
    """A key that a method does not heed is refused, or changes nothing that happens."""
    named = {key: heeds for keys, heeds in reference.HEEDED.values() for key in keys}
    assert set(CHANGES) == set(named)
    plain, built = outcome(method, {}), parse({**BASE, "algorithm": method}).algorithm.build(4)
    assert plain is not None
    for key, changes in CHANGES.items():
        changed = outcome(method, changes)
        before = (
            outcome(method, {"cluster": {"server_crashes": [CRASH]}})
            if key == "cluster.checkpoint"
            else plain
        )
        heeds = changed is not None and before is not None and differ(changed, before)
        assert heeds == named[key](built), key


def columns_of_page():
    sections = re.split(r"^## ", (ROOT / "docs/tables.md").read_text(), flags=re.MULTILINE)[1:]
    return {
        section.split()[0]: [[row[0].strip("`"), *row[1:]] for row in cells(section)]
        for section in sections
    }


@pytest.mark.parametrize(
    ("config", "overrides", "absent"),
    [
        ("async_ps_server_crashes", ["record.messages=true"], {"test_accuracy", "consensus"}),
        ("dpsgd", ["evaluate.nodes=true", "stop.epochs=0.2"], {"distance"}),
    ],
)
def test_page_has_the_columns_of_the_tables(tmp_path, config, overrides, absent):
    results = sweep(
        load(ROOT / f"configs/methods/{config}.yaml", "sweep={}", *overrides), out=tmp_path
    )
    page = columns_of_page()
    final, result = set(results.final) - set(results.metrics), results[0]
    tables = {
        name: list(getattr(result, name))
        for name in ("metrics", "updates", "workers", "messages", "restores", "notes")
    }
    for name, columns in {**tables, "final": final}.items():
        assert {row[0] for row in page[name]} - set(columns) <= (
            absent if name == "metrics" else set()
        ), name
        assert set(columns) <= {row[0] for row in page[name]}, name
    assert set(result.nodes) in (set(), {row[0] for row in page["nodes"]})
    assert set(summary(results)) - {"method"} <= {row[0] for row in page["summary"]}


def test_columns_have_their_units():
    measured = (
        r"time|started|computed|computing|sending|waiting|down|sent|arrived|back|time_to_target"
    )
    for table, rows in columns_of_page().items():
        for column, unit, _ in rows:
            if table == "summary" and column == "waiting":  # a share
                continue
            assert (unit == "s") == bool(re.fullmatch(measured, column)), f"{table}: {column}"
            assert (unit == "bytes") == (column == "bytes"), f"{table}: {column}"
