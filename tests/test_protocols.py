"""What users hand over in Python: an object that lacks a member is refused before the first event."""

import re

import pytest
import torch

from laggard import Algorithm, Cluster, InvalidSettingError, Network, Rule, Stop, simulate
from laggard.errors import members_of
from laggard.experiments.config.listing import SECTIONS
from laggard.models import MLP, ByLabel, Dataset, Partition, Quadratic, Supervised, synthetic
from laggard.simulator import AsyncPS, Star, Task, Timing
from laggard.simulator.learning.rules import (
    Chained,
    ClipNorm,
    Constant,
    DCASGDc,
    Nesterov,
)
from laggard.simulator.learning.rules.clipping import Clip
from laggard.simulator.learning.rules.damping import Compensation
from laggard.simulator.learning.rules.optimizers import Optimizer
from laggard.simulator.learning.rules.schedules import Schedule
from laggard.simulator.learning.task import EqualLayer, Layer
from laggard.simulator.network.topology import Ring, Topology
from laggard.simulator.timing.distributions import Distribution, Gamma, Scaled
from laggard.simulator.timing.failures import ServerCrash
from laggard.simulator.timing.slowdowns import Factor, Slowdown

BLOBS = synthetic(samples=40)
STEPS = Stop(updates=3)


def train(rule=None, task=None, cluster=None):
    return simulate(cluster or Cluster(2), AsyncPS(rule or Rule()), task or Quadratic(), stop=STEPS)


class Layered(Quadratic):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def layers(self):
        return [self.layer]


EXAMPLES = {
    Optimizer: Nesterov(),
    Schedule: Constant(),
    Compensation: DCASGDc(),
    Clip: ClipNorm(1.0),
    Distribution: Gamma(1.0, 0.3),
    Slowdown: Factor(0, factor=2.0),
    Topology: Star(),
    Task: Quadratic(),
    Layer: EqualLayer("one", 10, 1.0, 1.0),
    Partition: ByLabel(),
    Dataset: BLOBS,
}
HANDED = {
    "Rule.optimizer": (Optimizer, lambda item: train(Rule(optimizer=item))),
    "Rule.schedule": (Schedule, lambda item: train(Rule(schedule=item))),
    "Chained.schedules.0": (Schedule, lambda item: train(Rule(schedule=Chained([item])))),
    "Rule.compensation": (Compensation, lambda item: train(Rule(compensation=item))),
    "Rule.clip": (Clip, lambda item: train(Rule(clip=item))),
    "Cluster.compute": (Distribution, lambda item: train(cluster=Cluster(2, item))),
    "Cluster.apply_seconds": (
        Distribution,
        lambda item: train(cluster=Cluster(2, apply_seconds=item)),
    ),
    "Network.latency": (
        Distribution,
        lambda item: train(cluster=Cluster(2, network=Network(latency=item))),
    ),
    "Network.server_latency": (
        Distribution,
        lambda item: train(cluster=Cluster(2, network=Network(server_latency=item))),
    ),
    "ServerCrash.uptime": (
        Distribution,
        lambda item: train(cluster=Cluster(2, server_crashes=[ServerCrash(uptime=item)])),
    ),
    "Scaled.law": (Distribution, lambda item: train(cluster=Cluster(2, Scaled(item, 2.0)))),
    "Cluster.slowdowns.0": (Slowdown, lambda item: train(cluster=Cluster(2, slowdowns=[item]))),
    "Network.topology": (
        Topology,
        lambda item: train(cluster=Cluster(2, network=Network(topology=item))),
    ),
    "simulate.task": (Task, lambda item: train(task=item)),
    "Timing.network.0": (Layer, lambda item: train(task=Timing(network=[item]))),
    "Task.layers.0": (Layer, lambda item: train(task=Layered(item))),
    "Supervised.partition": (
        Partition,
        lambda item: Supervised(MLP().build, BLOBS, 4, partition=item, workers=2),
    ),
    "Supervised.dataset": (Dataset, lambda item: Supervised(MLP().build, item, 4)),
}
CASES = [(place, member) for place in HANDED for member in members_of(HANDED[place][0])]


def copy_of(example, kind, without=""):
    """An object of no class of laggard's with the members of `example`, but for one of them."""
    members = {name: getattr(example, name) for name in members_of(kind) if name != without}
    members["__hash__"] = None if without == "__hash__" else object.__hash__
    return type("Lacking", (), members)()


@pytest.mark.parametrize(("place", "member"), CASES)
def test_object_without_a_member_is_refused(place, member):
    kind, hand_over = HANDED[place]
    item = copy_of(EXAMPLES[kind], kind, member)
    with pytest.raises(InvalidSettingError, match=rf"^{re.escape(place)}: .* member {member}\b"):
        hand_over(item)


@pytest.mark.parametrize("place", HANDED)
def test_object_with_all_members_is_accepted(place):
    kind, hand_over = HANDED[place]
    hand_over(copy_of(EXAMPLES[kind], kind))


@pytest.mark.parametrize("place", HANDED)
def test_class_in_place_of_an_object_is_refused(place):
    kind, hand_over = HANDED[place]
    with pytest.raises((InvalidSettingError, TypeError), match=place.replace(".", ".*")):
        hand_over(type(EXAMPLES[kind]))


def test_every_kind_of_plugin_is_tried():
    kinds = {kind for choice in SECTIONS.values() for kind in choice.kinds}
    protocols = {kind for kind in kinds if getattr(kind, "_is_protocol", False)}
    # networks reach Python as functions; a class of torch has all of them
    names = {kind.__name__ for kind in protocols - set(EXAMPLES)}
    assert names == {"Network", "TorchModule"}


def test_compensation_without_shared_has_state_per_worker():
    compensation = copy_of(DCASGDc(strength=0.5), Compensation)
    assert not hasattr(compensation, "shared")
    usual = train(Rule(compensation=DCASGDc(strength=0.5)))
    assert torch.equal(train(Rule(compensation=compensation)).weights, usual.weights)


def test_method_without_a_worker_is_refused():
    class Idle(Algorithm):
        rule = Rule()

    with pytest.raises(InvalidSettingError, match=r"^Idle\.worker: expected a generator"):
        simulate(Cluster(2, network=Network(topology=Ring())), Idle(), stop=STEPS)


@pytest.mark.parametrize(("field", "value"), [("network", 3), ("loss", "cross_entropy")])
def test_part_that_cannot_be_called_is_refused(field, value):
    arguments = {"network": MLP().build, "dataset": BLOBS, "batch": 4}
    with pytest.raises(InvalidSettingError, match=rf"^Supervised\.{field}: expected"):
        Supervised(**arguments | {field: value})
