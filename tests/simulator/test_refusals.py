"""What the simulator does not take: a config names the key, as `refusals.yaml` lists it."""

from dataclasses import replace
from pathlib import Path

import pytest

from laggard import ConfigError, load
from laggard.simulator import ALGORITHMS, InvalidSettingError, Network, Rule
from laggard.simulator.errors import limits_of
from laggard.simulator.network.changes import Change
from tests.cases import yaml_table

TABLE = yaml_table(__file__, "refusals.yaml")
ROWS = [row for rows in TABLE.values() for row in rows.items()]
CONFIG = "cluster: {workers: 8}\ntask: {model: timing}\nstop: {updates: 4}\n"


@pytest.mark.parametrize(("overrides", "key"), ROWS)
def test_refusal_names_the_key(overrides, key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    with pytest.raises(ConfigError) as caught:
        load("config.yaml", *overrides.split("; "))
    assert str(caught.value).startswith(f"config.yaml: {key}: expected ")


METHODS = [method(Rule()) for method in ALGORITHMS.values()]


@pytest.mark.parametrize(
    "settings", [Network(), Change(latency=1.0), *METHODS], ids=lambda each: type(each).__name__
)
def test_other_choices_and_fractions_are_refused_in_python(settings):
    """In a config the types of the keys have refused them before."""
    wrong = {}
    for key, choices, limits in limits_of(type(settings)):
        if choices:
            wrong[key] = "none of them"
        elif limits is not None and limits.whole:
            wrong[key] = 2.5
    for key, value in wrong.items():
        with pytest.raises(InvalidSettingError, match=f"{key}: expected"):
            replace(settings, **{key: value})
