"""Accounts, limits, evaluations, seeds."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    DPSGD,
    AsyncPS,
    Cluster,
    Delayed,
    Evaluate,
    InvalidSettingError,
    KSync,
    Network,
    Rule,
    Stop,
    SyncPS,
    Timing,
    simulate,
)
from laggard.simulator.learning.rules import SGD, WarmUp
from laggard.simulator.learning.rules.rule import flush_denormals
from laggard.simulator.recording.trace import Trace
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma

CLUSTER = Cluster(
    workers=5,
    compute=Gamma(1.0, 0.6),
    network=Network(bandwidth=50.0, latency=0.01, message_bytes=2.0),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cluster", 3),
        ("algorithm", AsyncPS),
        ("task", "mnist"),
        ("task", Timing),
        ("stop", 5),
        ("evaluate", 1),
    ],
)
def test_argument_of_another_kind_is_named(name, value):
    arguments = {"cluster": CLUSTER, "algorithm": AsyncPS(Rule()), "stop": Stop(updates=3)}
    with pytest.raises(TypeError, match=f"^simulate: {name}: expected"):
        simulate(**arguments | {name: value})


class Noted(Quadratic):
    """A quadratic that keeps the mini-batches it draws, by rank."""

    def batches(self, rank, rngs):
        self.drawn = getattr(self, "drawn", {})
        self.drawn[rank] = []
        for batch in super().batches(rank, rngs):
            self.drawn[rank].append(batch)
            yield batch


def test_extra_worker_changes_no_mini_batch_of_others():
    tasks = {P: Noted(noise=1.0) for P in (8, 9)}
    for P, task in tasks.items():
        simulate(Cluster(P, Exponential(1.0)), AsyncPS(Rule()), task, stop=Stop(time=20.0))
    for rank in range(8):
        eight, nine = (tasks[P].drawn[rank] for P in (8, 9))
        assert len(eight) > 5
        assert torch.equal(torch.stack(eight), torch.stack(nine))


def test_seeds_of_cluster_and_learning_are_independent():
    task, algorithm = Quadratic(noise=1.0, jitter=1.0), SyncPS(Rule(lr=0.1))

    def run(cluster_seed, learning_seed):
        cluster = Cluster(workers=3, compute=Exponential(1.0), seed=cluster_seed)
        return simulate(
            cluster, algorithm, task, stop=Stop(updates=20), learning_seeds=[learning_seed]
        )

    first, times, learning = run(1, 1), run(2, 1), run(1, 2)
    assert torch.equal(first.weights, times.weights), "synchronous updates do not care when"
    assert first.progress.time != times.progress.time
    assert first.progress.time == learning.progress.time
    assert not torch.equal(first.weights, learning.weights)


@pytest.mark.parametrize(
    ("stop", "reached", "value"),
    [
        (Stop(updates=37), "updates", 37),
        (Stop(epochs=0.5), "epochs", 0.5),
        (Stop(gradients=40), "gradients", 40),
        (Stop(time=9.0), "time", 9.0),
        (Stop(time=1e6, updates=11), "updates", 11),
    ],
)
@pytest.mark.parametrize("law", [Constant(1.0), Exponential(1.0)])
def test_limits_are_exact(stop, reached, value, law):
    outcome = simulate(
        Cluster(workers=4, compute=law),
        AsyncPS(Rule(lr=0.01)),
        Quadratic(batch=2, epoch=100),
        stop=stop,
    )
    assert outcome.reached == reached
    assert getattr(outcome.progress, reached) == pytest.approx(value, abs=1e-9)
    assert (
        outcome.metrics["updates"][-1] == outcome.progress.updates == outcome.gradients["applied"]
    )


def test_updates_after_limit_are_not_counted():
    """An algorithm that applies several times without waiting stops between them."""

    class Greedy(Delayed):
        def worker(self, node):
            while True:
                gradient = yield node.compute(node.weights)
                for _ in range(5):
                    node.apply(node.weights - 1.0, [gradient])

    outcome = simulate(Cluster(workers=1), Greedy(Rule()), Quadratic(), stop=Stop(updates=7))
    assert outcome.progress.updates == 7
    assert float(outcome.weights) == 1.0 - 7.0


@pytest.mark.parametrize(
    ("evaluate", "axis", "expected"),
    [
        (Evaluate(), "epoch", [0.0, 1.0, 2.0, 2.5]),
        (Evaluate(every_epochs=0.5), "epoch", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
        (Evaluate(every_updates=20), "updates", [0, 20, 40, 50]),
        (Evaluate(every_updates=12.5), "updates", [0, 13, 25, 38, 50]),
        (Evaluate(every_seconds=4.0), "time", [0.0, 4.0, 8.0, 12.0, 12.5]),
        (Evaluate(every_seconds=0.1), "time", [k * 0.1 for k in range(126)]),
    ],
)
def test_evaluations_come_every_period_and_at_end(evaluate, axis, expected):
    cluster = Cluster(workers=1, compute=Constant(0.25))
    outcome = simulate(
        cluster,
        AsyncPS(Rule(lr=0.01)),
        Quadratic(batch=5, epoch=100),
        stop=Stop(updates=50),
        evaluate=evaluate,
    )
    np.testing.assert_allclose(outcome.metrics[axis], expected)
    np.testing.assert_allclose(outcome.metrics["samples"], 5 * outcome.metrics["updates"])


def test_evaluation_comes_after_all_events_of_instant():
    cluster = Cluster(workers=4, compute=Constant(1.0))
    outcome = simulate(
        cluster,
        AsyncPS(Rule(lr=0.01)),
        Quadratic(),
        stop=Stop(updates=20),
        evaluate=Evaluate(every_updates=3),
    )
    assert outcome.metrics["updates"].tolist() == [0, 4, 8, 12, 16, 20]


def test_train_loss_is_mean_since_last_evaluation():
    losses = []

    class Listening(Quadratic):
        def gradients(self, weights, batches):
            gradients, values = super().gradients(weights, batches)
            losses.extend(values.flatten().tolist())
            return gradients, values

    stop, evaluate = Stop(updates=9), Evaluate(every_updates=4)
    outcome = simulate(Cluster(1), Delayed(Rule(lr=0.1)), Listening(), stop=stop, evaluate=evaluate)
    first, *measured = outcome.metrics["train_loss"]
    assert np.isnan(first)
    means = [np.mean(losses[start : start + 4]) for start in (0, 4, 8)]
    np.testing.assert_allclose(measured, means, rtol=1e-6)


def test_metrics_have_row_for_each_member():
    lr = torch.tensor([[0.1], [0.2], [0.4]], dtype=torch.float64)
    outcome = simulate(
        Cluster(workers=1), Delayed(Rule(lr=lr)), Quadratic(), stop=Stop(updates=400), ensemble=3,
    )  # fmt: skip
    assert outcome.metrics["member"].tolist() == [0, 1, 2] * 2
    final = outcome.metrics["test_loss"][-3:]
    np.testing.assert_allclose(final, 0.5 * (1 - lr.numpy().ravel()) ** 800, atol=1e-30)


def test_diverged_member_is_marked():
    lr = torch.tensor([[0.1], [1e30]], dtype=torch.float64)
    cluster = Cluster(workers=1, compute=Constant(0.5))
    outcome = simulate(
        cluster, Delayed(Rule(lr=lr)), Quadratic(), stop=Stop(updates=20), ensemble=2
    )
    assert outcome.diverged[0] is None
    # w_1 is about -1e30, whose loss 1e60 / 2 is beyond single precision: seen by the second
    # gradient
    assert outcome.diverged[1] == (2.0, 1.0)
    assert outcome.reached == "updates"


def test_member_of_gossip_diverges_within_update():
    lr = torch.tensor([[0.1], [1e30]], dtype=torch.float64)
    cluster = Cluster(workers=4, compute=Constant(0.5))
    outcome = simulate(cluster, DPSGD(Rule(lr=lr)), Quadratic(), stop=Stop(updates=100), ensemble=2)
    assert outcome.diverged[1] == (1.25, 1.0)  # the first node's second update, after four quarters


def test_run_ends_when_all_members_diverged():
    outcome = simulate(
        Cluster(workers=1), Delayed(Rule(lr=1e30)), Quadratic(), stop=Stop(epochs=50)
    )
    assert outcome.reached == "diverged"
    assert outcome.progress.epochs == 1


class Watched(SGD):
    """SGD that notes what 1e-40 is while it steps."""

    def step(self, *given):
        self.seen.append(torch.tensor(1e-40).mul(1.0).item())
        return super().step(*given)


def test_denormals_are_zero_only_in_optimizer():
    Watched.seen, outside = [], []
    run = {
        "stop": Stop(updates=3),
        "watch": lambda progress: outside.append(torch.tensor(1e-40).mul(1.0).item()),
    }
    simulate(Cluster(workers=1), AsyncPS(Rule(Watched(), lr=0.1)), Quadratic(dim=2), **run)
    assert Watched.seen == [0.0] * 3
    assert min(*outside, torch.tensor(1e-40).mul(1.0).item()) > 0


@pytest.mark.parametrize("before", [False, True])
def test_denormals_are_restored_after_failed_step(before):
    torch.set_flush_denormal(before)
    try:
        with pytest.raises(ValueError, match="of the optimiser"), flush_denormals():
            raise ValueError("of the optimiser")
        assert (torch.tensor(1e-40).mul(1.0).item() == 0) == before
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("size", [5e-324, 2.2250738585072014e-308, 1e-300])
def test_messages_of_few_bytes_arrive(size):
    network = Network(bandwidth=1e4, message_bytes=size)
    outcome = simulate(
        Cluster(4, network=network), SyncPS(Rule(lr=0.1)), Quadratic(dim=2), stop=Stop(updates=5)
    )
    assert outcome.progress.updates == 5


def test_watch_sees_every_update():
    seen = []
    simulate(
        Cluster(workers=2),
        AsyncPS(Rule()),
        stop=Stop(updates=5),
        watch=lambda progress: seen.append(progress),
    )
    assert [progress.updates for progress in seen] == [1, 2, 3, 4, 5]


def test_schedule_counts_samples_applied():
    """Half of the warm-up's learning rate at half of its epochs, with two gradients an update."""
    rule = Rule(lr=1.0, schedule=WarmUp(length=1.0))
    task = Quadratic(batch=25, epoch=100, curvature=1e-9)
    outcome = simulate(
        Cluster(workers=2),
        SyncPS(rule),
        task,
        stop=Stop(updates=2),
        evaluate=Evaluate(every_updates=1),
    )
    moved = -np.diff(outcome.metrics["distance"])
    assert moved == pytest.approx([0.0, 0.5e-9], abs=1e-7)


@pytest.mark.parametrize("more", [{"ensemble": 0}, {"ensemble": 3, "learning_seeds": [1, 2]}])
def test_ensemble_that_does_not_fit_is_refused(more):
    with pytest.raises(InvalidSettingError, match="ensemble"):
        simulate(Cluster(1), Delayed(Rule()), stop=Stop(updates=1), **more)


def test_empty_trace_has_its_columns():
    assert set(Trace(Clock()).columns()) >= {"time", "worker", "staleness", "status"}


def test_cancelled_workers_get_update_once():
    """The server does not answer a worker again whose gradient was in flight at the update."""
    P, updates = CLUSTER.workers, 200
    outcome = simulate(CLUSTER, KSync(Rule(), wait_for=3, cancel=True), stop=Stop(updates=updates))
    arrived = outcome.gradients["applied"] + outcome.gradients["dropped"]
    assert outcome.gradients["dropped"] > 5
    announced, news = P, P * (1 + updates)
    assert 0 <= outcome.messages["sent"] - announced - news - arrived <= P
