"""Clusters by name: `cluster: {preset: dgx1-v100, workers: 16}`.

A preset is a file `configs/presets/NAME.yaml` with keys of `cluster`. Its first comments say what
it describes and where its numbers are from. Keys beside `preset` replace those of the file.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import create_model

from laggard.experiments.config.errors import ConfigError, format_value, unknown_name
from laggard.experiments.config.plain import parse_yaml
from laggard.experiments.config.schema import Described

FOLDER = "presets"
PRESETS: Mapping[str, Path] = {
    path.stem: path for path in sorted(Path(str(files("laggard") / "examples" / FOLDER)).iterdir())
}


def expand_preset(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """`cluster` with the keys of the preset that it names; its other keys override them.

    Raises:
        ConfigError: the preset is unknown.
    """
    overrides = dict(cluster)
    name = overrides.pop("preset", None)
    if name is None:
        return overrides
    if not isinstance(name, str):
        raise ConfigError("preset", f"expected a name, got {format_value(name)}")
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    text = PRESETS[name].read_text(encoding="utf-8")
    return _merge(parse_yaml(text, str(PRESETS[name])), overrides)


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**base, **overrides}
    for key, value in overrides.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            merged[key] = _merge(base[key], value)
    return merged


def describe_preset(path: Path) -> type[Described]:
    """A part without keys, whose docstring is the text of a preset's file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    summary, source = (line.removeprefix("# ") for line in lines[:2])
    keys = ", ".join(line.partition("#")[0].strip() for line in lines[2:])
    text = f"{summary.rstrip('.')}: `{keys}`.\n\n{source}"
    preset: type[Described] = create_model("PresetPart", __base__=Described, __doc__=text)
    preset.settings = frozenset()
    return preset
