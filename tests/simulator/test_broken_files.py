"""Files that are refused, in one line that names the key, as `broken_files.yaml` lists them."""

import re
from functools import partial

import pytest

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.mixing import matrix
from laggard.simulator.network.topology import Graph, TimeVarying
from laggard.simulator.timing.distributions import Trace
from tests.cases import yaml_table

TABLE = yaml_table(__file__, "broken_files.yaml")
READERS = {
    "graph of four nodes": ("Graph.file", lambda file: Graph(file=file).check(4)),
    "content of no known form": ("Graph.file", lambda file: Graph(file=file).edges),
    "shares of a digraph of three nodes": (
        "Graph.weight",
        lambda file: matrix("weights", Graph(file=file, directed=True), 0, 3),
    ),
    "steps of a graph of two nodes": ("TimeVarying.file", lambda file: TimeVarying(file).check(2)),
}


@pytest.fixture
def refusal(tmp_path):
    """Writes a file, and has it read: answers what is wrong with it."""

    def refused(content, read):
        path = tmp_path / "table.txt"
        if content is not None:
            path.write_bytes(content.replace("LONG", "x" * 200_000).encode("latin-1"))
        with pytest.raises(InvalidSettingError) as caught:
            read(str(path))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refused


@pytest.mark.parametrize(
    ("kind", "content"), [(kind, content) for kind in READERS for content in TABLE[kind]]
)
def test_file_without_graph_is_refused(kind, content, refusal):
    key, read = READERS[kind]
    assert refusal(content, read).startswith(f"{key}: ")


@pytest.mark.parametrize(("content", "settings", "reason"), TABLE["traces"])
def test_file_without_trace_is_refused(content, settings, reason, refusal):
    assert re.search(f"^Trace.*{reason}", refusal(content, partial(Trace, **settings)))
