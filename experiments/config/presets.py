"""Clusters by name: `cluster: {preset: dgx1-v100, workers: 16}`; whatever else is said there
replaces the preset's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import create_model

from laggard.experiments.config.errors import ConfigError, format_value, unknown_name
from laggard.experiments.config.schema import Described

LAN, INFINIBAND = 5e-5, 5e-6
"""Seconds: of a message over Ethernet, and over InfiniBand or between the GPUs of one machine."""
K80, P100, V100 = 1.28e12, 5.40e12, 8.13e12
"""Operations a second: of ResNet-50's 24.7e9 an image, at 52, 219 and 330 images a second."""


class Preset(NamedTuple):
    """What is known of a cluster.

    Attributes:
        says: what it is.
        source: where its numbers are from.
        cluster: keys of `cluster`.
    """

    says: str
    source: str
    cluster: Mapping[str, Any]


def _machines(bandwidth: float, latency: float, inner: float, speed: float) -> dict[str, Any]:
    """Machines of eight GPUs."""
    hosts = {"size": 8, "bandwidth": inner, "latency": INFINIBAND}
    return {
        "compute": {"law": "constant", "mean": 1.0, "speed": speed},
        "network": {"bandwidth": bandwidth, "latency": latency, "hosts": hosts},
    }


PRESETS: Mapping[str, Preset] = {
    "10gbe": Preset(
        "a card of 10 Gb/s each, 50 us",
        "nominal speed; the latency is usual for TCP in one rack",
        {"network": {"bandwidth": 1.25e9, "latency": LAN}},
    ),
    "25gbe": Preset(
        "a card of 25 Gb/s each, 50 us",
        "nominal speed; the latency is usual for TCP in one rack",
        {"network": {"bandwidth": 3.125e9, "latency": LAN}},
    ),
    "100g-ib": Preset(
        "a card of 100 Gb/s each, 5 us",
        "nominal speed of InfiniBand EDR; the latency is usual for it",
        {"network": {"bandwidth": 1.25e10, "latency": INFINIBAND}},
    ),
    "aws-p2.8xlarge": Preset(
        "machines of eight K80 on PCIe, 10 Gb/s each",
        "TensorFlow benchmarks (2017): 52 images/s of ResNet-50; PCIe 3.0 x16 by its specification",
        _machines(1.25e9, LAN, 1.575e10, K80),
    ),
    "dgx1-p100": Preset(
        "machines of eight P100 on NVLink, 4 x 100 Gb/s each",
        "TensorFlow benchmarks (2017): 219 images/s of ResNet-50; NVLink 1.0, 4 x 20 GB/s, by its specification",
        _machines(5e10, INFINIBAND, 8e10, P100),
    ),
    "dgx1-v100": Preset(
        "machines of eight V100 on NVLink, 4 x 100 Gb/s each",
        "PyTorch, benchmarks/distributed/ddp: 330 images/s of ResNet-50; NVLink 2.0, 6 x 25 GB/s, by its specification",
        _machines(5e10, INFINIBAND, 1.5e11, V100),
    ),
    "aws-p3dn": Preset(
        "machines of eight V100 on NVLink, 100 Gb/s each",
        "as dgx1-v100, with the nominal speed of p3dn.24xlarge's network",
        _machines(1.25e10, LAN, 1.5e11, V100),
    ),
    "two-sites": Preset(
        "sites of eight workers at 10 Gb/s, joined by 1 Gb/s and 30 ms",
        "an example; not measured",
        {
            "network": {
                "bandwidth": 1.25e8,
                "latency": 0.03,
                "hosts": {"size": 8, "bandwidth": 1.25e9, "latency": LAN},
            }
        },
    ),
}


def expand_preset(document: Mapping[str, Any]) -> dict[str, Any]:
    """`cluster` with the keys of its preset, where it names one; its own keys count.

    Raises:
        ConfigError: nothing is called so.
    """
    own = dict(document)
    name = own.pop("preset", None)
    if name is None:
        return own
    if not isinstance(name, str):
        raise ConfigError("preset", f"expected a name, got {format_value(name)}")
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return _merge(PRESETS[name].cluster, own)


def describe_preset(preset: Preset) -> type[Described]:
    """A preset as an entry of a table, with the keys that it sets."""
    said = f"{preset.says[0].upper()}{preset.says[1:]}: `{_as_yaml(preset.cluster)}`."
    text = f"{said}\n\nSource: {preset.source}."
    described: type[Described] = create_model("PresetPart", __base__=Described, __doc__=text)
    described.settings = frozenset()
    return described


def _as_yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_yaml(own)}" for key, own in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key
        for key in over
        if isinstance(over[key], Mapping) and isinstance(under.get(key), Mapping)
    }
    return {**under, **over, **{key: _merge(under[key], over[key]) for key in both}}
