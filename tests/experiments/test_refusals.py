"""What a config may not hold: one line that names the key, as `refusals.yaml` lists it."""

import pytest

from laggard import ConfigError, load
from laggard.experiments.config.document import parse_yaml, put, text_of
from tests.cases import yaml_table
from tests.experiments.test_plugins import MINE, MODULES

REFUSALS = yaml_table(__file__, "refusals.yaml")
ROWS = [
    pytest.param(config, kind, override, named, id=f"{config}: {override}")
    for config, kinds in REFUSALS.items()
    for kind, rows in kinds.items()
    for override, named in rows.items()
]
BEGINNINGS = {
    "unknown": ("unknown key", "expected one of"),
    "missing": ("missing",),
    "expected": ("expected",),
    "other": ("",),
}


@pytest.fixture
def files(data, monkeypatch):
    """Writes a config of two workers beside files of every format."""
    monkeypatch.chdir(data)
    (data / "latin.txt").write_bytes("Größe".encode("latin-1") * 99)
    path = data / "config.yaml"
    path.write_text("cluster: {workers: 2}\nstop: {updates: 4}\n")
    return lambda: path


@pytest.fixture
def plugins(toy, module):
    """Writes the toy config beside a method and networks of the user's own."""
    module("mine", MINE)
    module("nets", MODULES)
    return toy


def refusal(path, *overrides):
    with pytest.raises(ConfigError) as caught:
        load(path, *overrides)
    return caught.value


@pytest.mark.parametrize(("config", "kind", "override", "named"), ROWS)
def test_refusal_names_the_key_in_one_line(
    config,
    kind,
    override,
    named,
    request,
):
    path = request.getfixturevalue(config)()
    error = refusal(path, *override.split("; "))
    key, suggestion = (named, None) if isinstance(named, str) else named
    assert str(error) == f"{path}: {key}: {error.problem}"
    assert "\n" not in error.problem
    assert error.problem.startswith(BEGINNINGS[kind])
    if suggestion is not None:
        assert error.problem.endswith(f"did you mean {suggestion}?")
    if kind == "expected":
        assert ", got " in error.problem


IN_A_FILE = [
    "learing.lr=1",
    "algorithm.name=sync_p",
    "cluster.slowdowns.0.start=2",
    "learning.lr='0.1'",
    "task={model: mlp, hidden: 3}",
    "learning.schedule=[{name: warmup, length: 2}, {name: step, at: [2, 1]}]",
    "algorithm={name: k_sync, wait_for: 17}",
    "task.dataset=synthetic",
]
"""Of each kind of problem, and of each place at which one is found."""


@pytest.mark.parametrize("override", IN_A_FILE)
def test_file_is_refused_like_its_override(stragglers, override):
    path = stragglers()
    key, _, value = override.partition("=")
    document = put(parse_yaml(path.read_text(), "here"), key, parse_yaml(value, "there"))
    as_override = refusal(path, override)
    path.write_text(text_of(document))
    assert str(refusal(path)) == str(as_override)


@pytest.mark.parametrize(
    "override",
    [
        "stop.time=5",
        "cluster.slowdowns=[{worker: 0, factor: 0.1}]",
        "cluster.compute={law: two_level_gamma, mean: 0.3, machine_cv: 0.5, batch_cv: 0.1}",
    ],
)
def test_time_out_that_some_client_meets_is_accepted(toy, override):
    """Without the override every client is too slow. With it, the run ends at a time, a slowdown
    makes a client faster, or some machines may be faster.
    """
    impossible = (
        "algorithm={name: fedavg, timeout: 0.5}",
        "cluster.compute={law: constant, mean: 0.1}",
    )
    assert "algorithm.timeout" in str(refusal(toy(), *impossible))
    assert load(toy(), *impossible, override).algorithm.name == "fedavg"
