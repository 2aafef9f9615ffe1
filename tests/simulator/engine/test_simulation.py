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
    KAsync,
    KBatchSync,
    KSync,
    Network,
    Rule,
    SoftSync,
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
ALGORITHMS = {
    "async": AsyncPS(Rule(lr=0.02)),
    "sync": SyncPS(Rule(lr=0.1)),
    "backup": KSync(Rule(lr=0.1), wait_for=3),
    "cancel": KSync(Rule(lr=0.1), wait_for=3, cancel=True),
    "k-batch": KBatchSync(Rule(lr=0.1), gradients=7),
    "k-async": KAsync(Rule(lr=0.05), wait_for=3),
    "soft": SoftSync(Rule(lr=0.05), gradients=3),
}
each = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cluster": 3}, r"cluster: expected Cluster\(workers, law\), got 3"),
        (
            {"algorithm": AsyncPS},
            r"algorithm: expected an algorithm, as AsyncPS\(Rule\(\)\), got <class",
        ),
        ({"task": "mnist"}, "task: expected a task, .* got 'mnist'"),
        ({"task": Timing}, "task: expected a task, .* got <class"),
        ({"stop": 5}, "stop: expected Stop.*, got 5"),
        ({"evaluate": 1}, "evaluate: expected Evaluate.*, got 1"),
    ],
)
def test_an_argument_of_another_kind_is_named(changed, said):
    given = {
        "cluster": CLUSTER,
        "algorithm": AsyncPS(Rule()),
        "task": Timing(),
        "stop": Stop(updates=3),
    }
    with pytest.raises(TypeError, match=f"^simulate: {said}"):
        simulate(**given | changed)


@each
def test_every_gradient_and_message_is_accounted_for(algorithm):
    outcome = simulate(CLUSTER, algorithm, Quadratic(noise=0.1), stop=Stop(updates=300))
    started, *fates = outcome.gradients.values()
    assert sum(fates) == started
    assert outcome.gradients["in flight"] <= 2 * CLUSTER.workers
    sent, *ends = outcome.messages.values()
    assert sum(ends) == sent
    assert len(outcome.updates["time"]) == sum(fates) - outcome.gradients["in flight"]
    for fate in ("applied", "dropped", "cancelled"):
        assert (outcome.updates["status"] == fate).sum() == outcome.gradients[fate]
    assert (np.diff(outcome.updates["time"]) >= 0).all()
    assert (outcome.updates["staleness"] >= 0).all()
    computed = outcome.updates["computed"]
    ended = ~np.isnan(computed)
    assert (computed[ended] >= outcome.updates["started"][ended]).all()
    assert (computed[ended] <= outcome.updates["time"][ended]).all()
    assert ended.sum() <= outcome.progress.gradients <= started


@each
def test_a_workers_time_adds_up(algorithm):
    outcome = simulate(CLUSTER, algorithm, stop=Stop(updates=200))
    spent = outcome.workers
    total = spent["computing"] + spent["sending"] + spent["waiting"] + spent["down"]
    np.testing.assert_allclose(total, outcome.progress.time)


@each
def test_the_same_seed_is_the_same_run_and_another_is_not(algorithm):
    runs = [
        simulate(CLUSTER, algorithm, Quadratic(noise=0.1), stop=Stop(updates=50), seed=s)
        for s in (4, 4, 5)
    ]
    assert torch.equal(runs[0].weights, runs[1].weights)
    for column in runs[0].updates:
        np.testing.assert_array_equal(runs[0].updates[column], runs[1].updates[column])
    assert not torch.equal(runs[0].weights, runs[2].weights)
    assert runs[0].progress.time != runs[2].progress.time


def test_no_event_time_depends_on_what_is_learnt():
    timing = simulate(
        CLUSTER, ALGORITHMS["async"], Timing(batch=1, epoch=1000), stop=Stop(updates=100)
    )
    learning = simulate(
        CLUSTER, ALGORITHMS["async"], Quadratic(noise=1.0), stop=Stop(updates=100), ensemble=3
    )
    np.testing.assert_array_equal(timing.updates["time"], learning.updates["time"])


def durations_of(workers, algorithm):
    cluster = Cluster(workers=workers, compute=Gamma(1.0, 0.6))
    updates = simulate(cluster, algorithm, stop=Stop(time=60.0)).updates
    return {
        r: (updates["computed"] - updates["started"])[updates["worker"] == r][:20]
        for r in range(workers)
    }


def test_a_ninth_worker_or_another_algorithm_leaves_compute_times_as_they_were():
    eight, nine = (durations_of(P, AsyncPS(Rule())) for P in (8, 9))
    synchronous = durations_of(8, SyncPS(Rule()))
    for rank in range(8):
        np.testing.assert_allclose(eight[rank], nine[rank])
        np.testing.assert_allclose(eight[rank], synchronous[rank])


class Noted(Quadratic):
    """A quadratic that keeps the mini-batches it deals, by rank."""

    def batches(self, rank, rngs):
        self.dealt = getattr(self, "dealt", {})
        self.dealt[rank] = []
        for batch in super().batches(rank, rngs):
            self.dealt[rank].append(batch)
            yield batch


def test_a_ninth_worker_leaves_the_mini_batches_of_the_first_eight_as_they_were():
    tasks = {}
    for P in (8, 9):
        tasks[P] = Noted(noise=1.0)
        simulate(
            Cluster(workers=P, compute=Exponential(1.0)),
            AsyncPS(Rule()),
            tasks[P],
            stop=Stop(time=20.0),
        )
    for rank in range(8):
        assert len(tasks[8].dealt[rank]) > 5
        assert all(
            torch.equal(a, b)
            for a, b in zip(tasks[8].dealt[rank], tasks[9].dealt[rank], strict=True)
        )


def test_a_cluster_seed_moves_times_alone_and_learning_seeds_move_learning_alone():
    task, algorithm = Quadratic(noise=1.0, jitter=1.0), ALGORITHMS["sync"]

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


def test_after_the_limit_nothing_counts():
    """An algorithm that applies several times without waiting stops in the midst of it."""

    class Greedy(Delayed):
        def worker(self, node):
            while True:
                gradient = yield node.compute(node.weights)
                for _ in range(5):
                    node.apply(node.weights - 1.0, [gradient])

    outcome = simulate(Cluster(workers=1), Greedy(Rule()), Quadratic(), stop=Stop(updates=7))
    assert outcome.progress.updates == 7
    assert float(outcome.weights) == 1.0 - 7.0


def test_what_happens_at_the_last_instant_still_happens():
    outcome = simulate(
        Cluster(workers=4, compute=Constant(1.0)), AsyncPS(Rule()), stop=Stop(time=3.0)
    )
    assert outcome.progress.updates == 12


@pytest.mark.parametrize(
    ("evaluate", "axis", "expected"),
    [
        (Evaluate(), "epoch", [0.0, 1.0, 2.0, 2.5]),
        (Evaluate(every_epochs=0.5), "epoch", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
        (Evaluate(every_updates=20), "updates", [0, 20, 40, 50]),
        (Evaluate(every_seconds=4.0), "time", [0.0, 4.0, 8.0, 12.0, 12.5]),
        (Evaluate(every_seconds=0.1), "time", [k * 0.1 for k in range(126)]),
    ],
)
def test_evaluations_come_at_the_start_every_period_and_at_the_end(evaluate, axis, expected):
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


def test_evaluation_reads_models_after_all_events_of_an_instant():
    cluster = Cluster(workers=4, compute=Constant(1.0))
    outcome = simulate(
        cluster,
        AsyncPS(Rule(lr=0.01)),
        Quadratic(),
        stop=Stop(updates=20),
        evaluate=Evaluate(every_updates=3),
    )
    assert outcome.metrics["updates"].tolist() == [0, 4, 8, 12, 16, 20]


def test_train_loss_is_the_mean_over_the_gradients_applied_since_the_last_evaluation():
    losses = []

    class Listening(Quadratic):
        def gradients(self, weights, batches):
            gradients, values = super().gradients(weights, batches)
            losses.extend(values.flatten().tolist())
            return gradients, values

    outcome = simulate(
        Cluster(workers=1),
        Delayed(Rule(lr=0.1)),
        Listening(),
        stop=Stop(updates=9),
        evaluate=Evaluate(every_updates=4),
    )
    measured = outcome.metrics["train_loss"]
    assert np.isnan(measured[0])
    np.testing.assert_allclose(
        measured[1:], [np.mean(losses[:4]), np.mean(losses[4:8]), np.mean(losses[8:])], rtol=1e-6
    )


def test_rows_are_a_member_each():
    lr = torch.tensor([[0.1], [0.2], [0.4]], dtype=torch.float64)
    outcome = simulate(
        Cluster(workers=1), Delayed(Rule(lr=lr)), Quadratic(), stop=Stop(updates=2000), ensemble=3,
    )  # fmt: skip
    assert outcome.metrics["member"].tolist() == [0, 1, 2] * 3
    final = outcome.metrics["test_loss"][-3:]
    np.testing.assert_allclose(final, 0.5 * (1 - lr.numpy().ravel()) ** 4000, atol=1e-30)


def test_a_member_that_diverges_is_marked_where_it_does():
    lr = torch.tensor([[0.1], [1e30]], dtype=torch.float64)
    cluster = Cluster(workers=1, compute=Constant(0.5))
    outcome = simulate(
        cluster, Delayed(Rule(lr=lr)), Quadratic(), stop=Stop(updates=1500), ensemble=2
    )
    assert outcome.diverged[0] is None
    # w_1 is about -1e30, whose loss 1e60 / 2 is beyond single precision: seen by the second
    # gradient
    assert outcome.diverged[1] == (2.0, 1.0)
    assert outcome.reached == "updates"


def test_where_every_node_has_a_model_a_member_diverges_after_a_share_of_an_update():
    lr = torch.tensor([[0.1], [1e30]], dtype=torch.float64)
    cluster = Cluster(workers=4, compute=Constant(0.5))
    outcome = simulate(cluster, DPSGD(Rule(lr=lr)), Quadratic(), stop=Stop(updates=100), ensemble=2)
    assert outcome.diverged[1] == (1.25, 1.0)  # the first node's second update, after four quarters


def test_a_simulation_ends_when_every_member_has_diverged():
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


def test_denormals_are_zero_in_a_step_of_the_optimizer_and_nowhere_else():
    Watched.seen, outside = [], []
    run = {
        "stop": Stop(updates=3),
        "watch": lambda progress: outside.append(torch.tensor(1e-40).mul(1.0).item()),
    }
    simulate(Cluster(workers=1), AsyncPS(Rule(Watched(), lr=0.1)), Quadratic(dim=2), **run)
    assert Watched.seen == [0.0] * 3
    assert min(*outside, torch.tensor(1e-40).mul(1.0).item()) > 0


@pytest.mark.parametrize("before", [False, True])
def test_after_a_step_denormals_are_what_they_were_before_it_even_if_it_fails(before):
    torch.set_flush_denormal(before)
    try:
        with pytest.raises(ValueError, match="of the optimiser"), flush_denormals():
            raise ValueError("of the optimiser")
        assert (torch.tensor(1e-40).mul(1.0).item() == 0) == before
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("size", [5e-324, 2.2250738585072014e-308, 1e-300])
def test_messages_of_hardly_any_bytes_arrive(size):
    network = Network(bandwidth=1e4, message_bytes=size)
    outcome = simulate(
        Cluster(4, network=network), SyncPS(Rule(lr=0.1)), Quadratic(dim=2), stop=Stop(updates=5)
    )
    assert outcome.progress.updates == 5


def test_watching_sees_every_update():
    seen = []
    simulate(
        Cluster(workers=2),
        AsyncPS(Rule()),
        stop=Stop(updates=5),
        watch=lambda progress: seen.append(progress),
    )
    assert [progress.updates for progress in seen] == [1, 2, 3, 4, 5]


def test_a_schedule_in_epochs_is_the_samples_applied():
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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Stop(), "at least one of epochs, updates, gradients, time"),
        (lambda: Stop(updates=0), "updates: expected a number > 0"),
        (
            lambda: Evaluate(every_epochs=1, every_updates=2),
            "every_updates: expected none beside every_epochs",
        ),
        (lambda: Cluster(workers=0), "workers"),
        (lambda: Cluster(workers=2.5), "workers: expected a whole number >= 1, got 2.5"),
        (lambda: Delayed(Rule(), delay=1.5), "delay: expected a whole number"),
        (
            lambda: simulate(Cluster(1), Delayed(Rule()), stop=Stop(updates=1), ensemble=0),
            "one member or more",
        ),
        (
            lambda: simulate(
                Cluster(1), Delayed(Rule()), stop=Stop(updates=1), ensemble=3, learning_seeds=[1, 2]
            ),
            "as many as learning_seeds",
        ),
        (lambda: KSync(Rule(), wait_for=0), "wait_for"),
        (lambda: Delayed(Rule(), delay=-1), "delay"),
        (lambda: SoftSync(Rule(), gradients=0), "gradients"),
        (lambda: KBatchSync(Rule(), gradients=0), "gradients"),
        (lambda: KAsync(Rule(), wait_for=0), "wait_for"),
        (
            lambda: KAsync(Rule(), wait_for=9).check(Cluster(workers=8)),
            "at most workers = 8, or the server would wait for ever",
        ),
        (
            lambda: KSync(Rule(), wait_for=9).check(Cluster(workers=8)),
            "at most workers = 8, or the server would wait for ever",
        ),
        (lambda: Delayed(Rule()).check(Cluster(workers=8)), "delay = 7 stands for 8 workers"),
    ],
)
def test_settings_at_odds_are_refused(wrong, message):
    with pytest.raises(InvalidSettingError, match=message):
        wrong()


def test_an_empty_trace_has_its_columns():
    assert set(Trace(Clock()).columns()) >= {"time", "worker", "staleness", "status"}


def test_late_gradients_are_dropped_and_never_applied():
    outcome = simulate(CLUSTER, ALGORITHMS["backup"], stop=Stop(updates=200))
    staleness, status = outcome.updates["staleness"], outcome.updates["status"]
    assert (staleness[status == "applied"] == 0).all()
    assert (staleness[status == "dropped"] > 0).all()
    assert (status == "dropped").sum() > 100


def test_under_cancellation_everyone_gets_the_news_of_an_update_once():
    """Also a worker whose gradient was under way when the update came: the server does not answer
    it again.
    """
    P, updates = CLUSTER.workers, 200
    outcome = simulate(CLUSTER, ALGORITHMS["cancel"], stop=Stop(updates=updates))
    arrived = outcome.gradients["applied"] + outcome.gradients["dropped"]
    assert outcome.gradients["dropped"] > 5
    announced, news = P, P * (1 + updates)
    assert 0 <= outcome.messages["sent"] - announced - news - arrived <= P


def test_members_start_where_their_seed_says():
    task = Quadratic(jitter=1.0)
    outcome = simulate(
        Cluster(workers=1), Delayed(Rule()), task, stop=Stop(updates=1), learning_seeds=[3, 4, 3]
    )
    start = outcome.metrics["distance"][:3]
    assert start[0] == start[2] != start[1]
