"""A run's id depends on what its result depends on, and on nothing else."""

import json
from pathlib import Path

import pytest

from laggard import ConfigError, load, run, sweep
from laggard.experiments.config import cluster, parts, task
from laggard.experiments.config.config import DEFAULTS_VERSION, IGNORED, Config, digest_of, parse
from laggard.experiments.config.document import examples
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.schema import part

TRACE = "cluster.compute={law: trace, file: times.csv}"
RING, COMPLETE = "0 1\n1 2\n2 0\n", "0 1\n1 0\n1 2\n2 1\n2 0\n0 2\n"
GRAPH = [
    "algorithm={name: dpsgd, mixing: uniform}",
    "cluster.network={topology: graph, file: edges.edgelist, directed: true}",
]


def write_times(folder, seconds):
    folder.mkdir(exist_ok=True)
    (folder / "times.csv").write_text("seconds\n" + f"{seconds}\n" * 10)
    return folder


@pytest.mark.parametrize(
    ("name", "before", "after", "overrides"),
    [
        ("times.csv", "seconds\n1.0\n", "seconds\n9.0\n", [TRACE]),
        ("edges.edgelist", RING, COMPLETE, GRAPH),
    ],
)
def test_edited_file_makes_another_run(
    ran, tmp_path, monkeypatch, name, before, after, overrides,
) :  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(before)
    first = ran(*overrides)
    (tmp_path / name).write_text(after)
    second = ran(*overrides)
    assert first.path != second.path
    assert (first.manifest["mileage"], first.manifest["messages"]) != (
        second.manifest["mileage"],
        second.manifest["messages"],
    )
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / name).rename(tmp_path / "elsewhere" / f"other{Path(name).suffix}")
    again = [override.replace(name, str(moved)) for override in overrides]
    assert ran(*again).manifest == second.manifest


def test_file_names_are_relative_to_their_config(toy, tmp_path, monkeypatch):
    """Two folders hold files of the same name."""
    write_times(tmp_path, 1.0)
    monkeypatch.chdir(write_times(tmp_path / "here", 9.0))
    said = toy().rename(tmp_path / "said.yaml")
    said.write_text(
        said.read_text().replace(
            "{law: gamma, mean: 0.01, cv: 0.3}", "{law: trace, file: times.csv}"
        )
    )
    swept = "sweep: {cluster.compute: [{law: trace, file: times.csv}], cluster.workers: [2]}"
    variant = "sweep: {times: {a: {cluster.compute.law: trace, cluster.compute.file: times.csv}}}"
    plain = "cluster: {workers: 2}\n" + toy().read_text().partition("\n")[2].partition("\n")[2]
    found = {}
    for name, config in {
        "file": load(said),
        "override": load(said, "cluster.compute.file=times.csv"),
        "override of a part": load(said, TRACE),
        "sweep": load(toy(swept, text=plain)),
        "sweep in an override": load(
            toy(text=plain), "sweep.cluster.compute=[{law: trace, file: times.csv}]"
        ),
        "variant": load(toy(variant, text=plain)),
        "mapping": parse(
            {
                "task": {"model": "timing"},
                "cluster": {"compute": {"law": "trace", "file": "times.csv"}},
            }
        ),
    }.items():
        found[name] = runs(config)[0].config.cluster.compute.build().mean
    assert {name for name, mean in found.items() if mean == 1.0} == {"file", "sweep", "variant"}
    assert {name for name, mean in found.items() if mean == 9.0} == found.keys() - {
        "file",
        "sweep",
        "variant",
    }


def test_sweep_over_files_is_labelled_by_their_names(toy, tmp_path, monkeypatch):
    for name, seconds in (("one", 1.0), ("two", 2.0), ("three", 2.0)):
        write_times(tmp_path / name, seconds)
    path = toy()
    path.write_text(
        path.read_text().replace("{law: gamma, mean: 0.01, cv: 0.3}", "{law: trace, file: x.csv}")
    )
    lists = "sweep: {cluster.compute.file: [one/times.csv, two/times.csv]}"
    path.write_text(path.read_text() + lists)
    monkeypatch.chdir("/")
    one, two = sweep(load(path), tmp_path / "out")
    assert [one.labels, two.labels] == [
        {"cluster.compute.file": f"{name}/times.csv"} for name in ("one", "two")
    ]
    assert 1.5 * one.metrics["time"].max() < two.metrics["time"].max()
    path.write_text(path.read_text().replace("one/", "three/"))
    with pytest.raises(ConfigError, match="is the same run as"):
        load(path)


def test_file_changed_after_load_is_refused(
    toy,
    tmp_path,
    monkeypatch,
    mistake,
):
    monkeypatch.chdir(write_times(tmp_path, 1.0))
    config = load(toy(), TRACE)
    stored = run(config, tmp_path / "out").path / "config.yaml"
    write_times(tmp_path, 9.0)
    with pytest.raises(ValueError, match=r"file: expected a file whose SHA-256 is \w{64}, got"):
        run(config, tmp_path / "other")
    said = mistake("run", stored)
    assert said.startswith(f"{stored}: cluster.compute.file: expected a file whose SHA-256 is ")
    write_times(tmp_path, 1.0)
    monkeypatch.chdir("/")
    assert RunSpec(load(stored)).digest == RunSpec(config).digest
    monkeypatch.chdir(tmp_path)
    (tmp_path / "times.csv").unlink()
    assert "cluster.compute.file: expected a file that can be read, got" in mistake(
        "run", toy(), TRACE
    )


# ------------------------------------------------------------------------------------------
# defaults are left out

CONFIGS = examples()
LONG = ("networks/", "published/", "studies/")
"""Their many runs take seconds to validate, and have the same keys as others."""


def deciding(config):
    resolved = config.as_dict()
    for key in IGNORED:
        owner, _, name = key.rpartition(".")
        (resolved[owner] if owner else resolved).pop(name)
    return json.dumps({**resolved, "sweep": list(resolved["sweep"].items())}, sort_keys=True)


@pytest.mark.parametrize(
    "names",
    [
        [name for name in CONFIGS if not name.startswith(LONG)],
        pytest.param(list(CONFIGS), marks=pytest.mark.slow),
    ],
    ids=["short", "all"],
)
def test_digest_is_equal_for_equal_settings_only(names):
    every = [spec for name in names for spec in runs(load(CONFIGS[name]))]
    digests = {}
    for spec in every:
        digests.setdefault(spec.digest, set()).add(deciding(spec.config))
    assert all(len(meanings) == 1 for meanings in digests.values())
    assert len(digests) == len({deciding(spec.config) for spec in every}) > 100


def test_default_that_is_written_changes_no_digest(
    toy,
):
    plain = RunSpec(load(toy())).digest
    for key, standard, other in (
        ("algorithm", "{name: async_ps, shards: 1}", "{name: async_ps, shards: 2}"),
        ("algorithm", "async_ps", "sync_ps"),
        ("cluster.slowdowns", "[]", "[{worker: 0, factor: 2}]"),
        ("cluster.network", "{topology: auto, latency: 0.0}", "{topology: star}"),
        ("learning.compensation", "none", "dc_asgd_a"),
        ("learning.seed", "null", "0"),
        ("evaluate.nodes", "false", "true"),
        ("task.jitter", "0.5", "0.25"),
        ("seed", "0", "1"),
    ):
        assert RunSpec(load(toy(), f"{key}={standard}")).digest == plain, key
        assert RunSpec(load(toy(), f"{key}={other}")).digest != plain, key


def test_new_key_with_default_changes_no_digest(toy, monkeypatch):
    from dataclasses import dataclass, field

    from laggard.experiments.config import config as module
    from laggard.simulator import AsyncPS

    before = RunSpec(load(toy())).digest

    @dataclass(frozen=True)
    class Later(AsyncPS):
        patience: int | None = None
        weights: list[float] = field(default_factory=list)

    later = part(Later, "name", "async_ps", base=parts.AlgorithmPart, without=["rule"])
    monkeypatch.setitem(parts.ALGORITHM.parts, "async_ps", later)
    monkeypatch.setattr(module, "_defaults", {})
    after = load(toy())
    assert after.algorithm.patience is None
    assert RunSpec(after).digest == before
    assert RunSpec(load(toy(), "algorithm={name: async_ps, patience: 3}")).digest != before


def current_defaults():
    """The defaults of all keys, by group of keys; of a choice by entry too, as `ALGORITHM ssp`."""
    groups = {
        "Config": Config,
        "ClusterPart": cluster.ClusterPart,
        "StopPart": parts.StopPart,
        "EvaluatePart": parts.EvaluatePart,
        "AugmentationPart": task.AugmentPart,
    }
    for module in (cluster, parts, task):
        for name, choice in vars(module).items():
            if isinstance(choice, parts.NamedChoice):
                groups |= {f"{name} {entry}": group for entry, group in choice.parts.items()}
    return {name: _defaults(group) for name, group in sorted(groups.items())}


def _defaults(group):
    values = {}
    for key, field in group.model_fields.items():
        if not field.is_required():
            values[key] = field.get_default(call_default_factory=True)
    return json.loads(json.dumps(values))


DEFAULTS = Path(__file__).parent / "defaults.json"
STORED_DEFAULTS = json.loads(DEFAULTS.read_text())
"""By group of keys. An entry that is gone is of no account, and goes when they are written."""


@pytest.mark.parametrize("group", current_defaults())
def test_no_default_has_changed(group):
    """A digest leaves defaults out: if one changes, old results would be presented as new ones.

    Where a default must change, raise `DEFAULTS_VERSION` in `experiments/config/config.py`. Then,
    or for a new key or entry, `python -m tests.experiments.test_identity` writes all defaults.
    """
    assert current_defaults()[group] == STORED_DEFAULTS.get(group)


def test_version_of_defaults_is_part_of_ids(toy, monkeypatch):
    config = load(toy())
    before = digest_of(config)
    monkeypatch.setattr("laggard.experiments.config.config.DEFAULTS_VERSION", DEFAULTS_VERSION + 1)
    assert digest_of(config) != before


if __name__ == "__main__":
    lines = [
        f"{json.dumps(name)}: {json.dumps(values)}" for name, values in current_defaults().items()
    ]
    DEFAULTS.write_text("{\n " + ",\n ".join(lines) + "\n}\n")
