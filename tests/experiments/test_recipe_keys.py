"""Weight decay, clipping, schedules in a list and losses, as configs say them."""

import pytest
import torch

from laggard import load, run
from laggard.experiments.config.config import digest_of
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import runs
from laggard.models import Augmentation, CrossEntropyLoss
from laggard.simulator.learning.rules import Chained, ClipNorm, ClipValue, Step, WarmUp

CONFIG = """\
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.3}}
task: {model: logistic, dataset: {name: synthetic, samples: 40}, batch: 4, loss: {smoothing: 0.1, regularizer: 0.01}}
learning:
  momentum: 0.5
  weight_decay: 0.1
  clip: {norm: 0.5}
  schedule: [{name: warmup, length: 0.5}, {name: step, at: [1, 2], factor: 0.5}]
stop: {updates: 30}
"""
LEANING = """
from dataclasses import dataclass
from laggard.simulator.learning.rules import SGD

@dataclass(frozen=True)
class Shrinking(SGD):
    '''Decoupled: w also shrinks by weight_decay w.'''
    weight_decay: float = 0.0

    def step(self, gradient, state, weights, lr):
        change, state = super().step(gradient, state, weights, lr)
        return change - self.weight_decay * weights, state
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(CONFIG)
    return path


def test_config_builds_its_rule_and_loss(config):
    loaded = load(config)
    rule = loaded.learning.build()
    assert (rule.weight_decay, rule.clip) == (0.1, ClipNorm(0.5))
    assert rule.schedule == Chained([WarmUp(0.5), Step(at=[1.0, 2.0], factor=0.5)])
    assert loaded.task.loss.build() == CrossEntropyLoss(smoothing=0.1, regularizer=0.01)
    assert load(config, "learning.clip={value: 2}").learning.build().clip == ClipValue(2.0)


def test_stored_config_has_the_same_id(config, tmp_path):
    result = run(load(config), tmp_path / "out")
    assert (
        runs(load(result.path / "config.yaml"))[0].folder(tmp_path / "out").name == result.path.name
    )


def test_optimiser_may_define_its_weight_decay(config, module):
    module("leaning", LEANING)
    plain = "learning={optimizer: %s, weight_decay: 0.3}"
    for name in ("adamw", "'leaning:Shrinking'"):
        rule = load(config, plain % name).learning.build()
        assert (rule.optimizer.weight_decay, rule.weight_decay) == (0.3, 0.0)
    assert load(config, plain % "adam").learning.build().weight_decay == 0.3
    assert (
        load(config, "learning={optimizer: adamw}").learning.build().optimizer.weight_decay == 0.01
    )


def test_augmentation_is_for_images_only(config):
    images = (
        "task={model: mlp, dataset: {name: synthetic_images, samples: 40, size: 8}, batch: 4}",
    )
    plain, given = (
        load(config, *images),
        load(config, *images, "task.augment={crop: 2, flip: true}"),
    )
    assert given.task.augment.build() == Augmentation(crop=2, flip=True)
    assert (
        given.task.task(workers=3, seed=0, device="cpu", backend="auto", threads=1)._variants == 50
    )
    assert digest_of(load(config, *images, "task.augment={crop: 0, flip: false}")) == digest_of(
        plain
    )
    assert digest_of(given) != digest_of(plain)


DROPPING = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape: tuple = (20,), classes: int = 4, p: float = 0.5):
        super().__init__(nn.Linear(shape[0], 8), nn.Tanh(), nn.Dropout(p), nn.Linear(8, classes))

class Noisy(Net):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5)
"""


def test_network_may_have_dropout_modules_only(config, module, tmp_path):
    module("dropping", DROPPING)
    task = "task={model: 'dropping:%s', dataset: {name: synthetic, samples: 40}, batch: 4, p: %s}"
    first, second, plain = (
        run(
            load(config, task % ("Net", p), f"threads={threads}"), tmp_path / f"out{threads}"
        ).weights
        for p, threads in ((0.5, 1), (0.5, 2), (0.0, 1))
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, plain)
    with pytest.raises(
        ConfigError, match=r"Noisy draws random numbers in its forward pass, .* by nn\.Dropout"
    ):
        runs(load(config, task % ("Noisy", 0.5)))
