"""What commands say of configs that are fine but unlikely: `validation.yaml` lists the lines."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from laggard.experiments.cli import main
from tests.cases import yaml_table

TABLE = yaml_table(__file__, "validation.yaml")
ROWS = [
    (config, overrides, patterns)
    for config, table in TABLE.items()
    for overrides, patterns in table["rows"].items()
]
NETWORKS = [row for row in ROWS if row[0].startswith("networks")]


@pytest.fixture
def lines_of(tmp_path, capsys, monkeypatch):
    """Calls a command on a config of the table; answers the lines about it: output, then errors."""
    monkeypatch.chdir(tmp_path)
    for name, bandwidth in (("slow", 10), ("outage", 0)):
        rows = f"sender,receiver,from,to,bandwidth,latency\n,,1,2,{bandwidth},\n"
        (tmp_path / f"{name}.csv").write_text(rows)

    def call(command, config, overrides):
        Path("config.yaml").write_text(TABLE[config]["config"])
        words = [word for word in overrides.split("; ") if word]
        assert main([command, "config.yaml", *words]) == 0
        said = capsys.readouterr()
        start = "config.yaml: "
        return [
            line.removeprefix(start)
            for line in (said.out + said.err).splitlines()
            if line.startswith(start)
        ]

    return call


@pytest.mark.parametrize(("config", "overrides", "patterns"), ROWS)
def test_validate_says_what_is_unlikely(config, overrides, patterns, lines_of):
    warnings = [pattern for pattern in patterns if pattern.startswith("warning: ")]
    notes = [pattern for pattern in patterns if pattern not in warnings]
    expected = [*notes, "fine: *", *warnings]
    lines = lines_of("validate", config, overrides)
    assert len(lines) == len(expected)
    assert all(map(fnmatchcase, lines, expected)), lines


@pytest.mark.parametrize(("config", "overrides", "patterns"), NETWORKS)
def test_run_warns_of_implausible_networks(config, overrides, patterns, lines_of, drawn):
    warnings = lines_of("run", config, overrides)
    assert len(warnings) == len(patterns)
    assert all(map(fnmatchcase, warnings, patterns)), warnings
