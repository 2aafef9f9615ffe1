"""The fastest of several backends is kept, one for each size of call; those that fail are passed
over.
"""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models.backends import choice as table
from laggard.models.backends.choice import Fastest, choose
from laggard.models.backends.chunked import Chunked
from laggard.models.backends.threads import Threads


class Watch:
    """A clock that stands still but for what a backend takes."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


class Timed:
    """A backend that takes `start + each * models` seconds."""

    lanes = 5

    def __init__(self, name, watch, start=0.0, each=0.0, failure=None):
        self.name, self.watch, self.start, self.each, self.failure = (
            name,
            watch,
            start,
            each,
            failure,
        )
        self.calls = 0

    def gradients(self, weights, x, y, index):
        if self.failure is not None:
            raise self.failure
        self.calls += 1
        self.watch.seconds += self.start + self.each * len(weights)
        return weights.clone(), weights[:, 0]

    def outputs(self, weights, x):
        return self.name


def raced(**settings):
    watch = Watch()
    made = {name: Timed(name, watch, **given) for name, given in settings.items()}
    return Fastest({name: lambda name=name: made[name] for name in made}, watch), made


def ask(fastest, models, batch=4):
    weights = torch.rand(models, 3)
    gradients, losses = fastest.gradients(weights, None, None, torch.zeros(models, batch))
    assert torch.equal(gradients, weights)
    assert torch.equal(losses, weights[:, 0])


def test_each_size_of_call_gets_its_own_winner():
    fastest, made = raced(
        slow={"start": 9.0}, launch={"start": 1.0, "each": 0.001}, rows={"each": 0.1}
    )
    ask(fastest, 2)
    assert fastest.name == "rows"
    ask(fastest, 1000)
    assert fastest.name == "launch, rows"
    calls = {name: backend.calls for name, backend in made.items()}
    ask(fastest, 3)
    ask(fastest, 900)
    assert {name: backend.calls - calls[name] for name, backend in made.items()} == {
        "slow": 0,
        "launch": 1,
        "rows": 1,
    }
    assert fastest.lanes == 5


@pytest.mark.parametrize(("preparation", "winner"), [(50.0, "plain"), (10.0, "recorded")])
def test_what_a_recording_costs_is_charged(preparation, winner):
    """1 s a call and a hundredth of the recording, against 1.2 s a call."""
    fastest, made = raced(recorded={"start": 1.0}, plain={"start": 1.2})
    made["recorded"].preparation = preparation
    ask(fastest, 2)
    assert fastest.name == winner


def test_another_mini_batch_is_another_race():
    fastest, made = raced(one={"start": 1.0}, other={"start": 2.0})
    ask(fastest, 2, batch=4)
    calls = made["other"].calls
    ask(fastest, 2, batch=8)
    assert made["other"].calls > calls


def test_what_is_hopeless_is_not_timed_as_often():
    _, made = race = raced(good={"start": 1.0}, close={"start": 2.0}, hopeless={"start": 100.0})
    ask(race[0], 2)
    assert made["hopeless"].calls < made["close"].calls


def test_a_backend_that_fails_is_passed_over():
    fastest, _ = raced(broken={"failure": RuntimeError("no compiler")}, works={"start": 3.0})
    ask(fastest, 2)
    assert fastest.name == "works"
    assert fastest.outputs(torch.zeros(1, 3), None) == "works"


def test_where_all_fail_the_last_says_why():
    fastest, _ = raced(
        one={"failure": RuntimeError("first")}, other={"failure": torch.OutOfMemoryError("last")}
    )
    with pytest.raises(torch.OutOfMemoryError, match="last"):
        ask(fastest, 2)


def test_an_evaluation_before_any_gradient_is_the_first_one_s():
    fastest, _ = raced(one={}, other={})
    assert fastest.outputs(torch.zeros(1, 3), None) == "one"
    assert fastest.name == "auto"


def test_auto_is_threads_on_a_cpu_and_a_race_on_a_gpu(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    module = nn.Sequential(nn.Linear(3, 2))
    assert isinstance(choose("auto", module, cross_entropy, cpu, threads=1), Threads)
    assert isinstance(choose("unfold-graphs", module, cross_entropy, gpu), Chunked)
    monkeypatch.setattr(table, "Fastest", lambda candidates, clock: list(candidates))
    assert choose("auto", module, cross_entropy, gpu) == [
        "unfold-graphs",
        "vmap-graphs",
        "unfold",
        "vmap",
    ]
    odd = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))
    assert choose("auto", odd, cross_entropy, gpu) == ["vmap-graphs", "vmap"]
