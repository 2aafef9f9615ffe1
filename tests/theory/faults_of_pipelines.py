"""Faults of asynchronous pipelines."""

from functools import partial
from typing import Any

from laggard.simulator.algorithms import delayed, staging
from laggard.simulator.algorithms.contrib.async_pipelines import AsyncPipelines
from tests.faults import Replaced, on_spoilt, settings
from tests.theory import test_asynchronous_pipelines, test_pipelines
from tests.theory.faults_of_servers import before_its_update


def in_step(right):
    """A server that waits for the gradients of all replicas, as in a synchronous method."""

    def server(self, own):
        state, pushed = self.rule.init(own.weights), dict[int, Any]()
        while True:
            worker, pieces = yield own.receive()
            pushed[worker] = pieces
            if len(pushed) == self.replicas:
                for pieces in filter(None, pushed.values()):
                    weights, state = self.rule.update(own.weights, pieces, state)
                    own.apply(weights, pieces)
                for worker in pushed:
                    own.send(worker, own.weights)
                pushed = {}

    return server


def one_gradient(right):
    """Stages whose server applies the last of their micro-batches alone."""

    def make_passes(self, *given):
        *others, last = yield from right(self, *given)
        for piece in others:
            piece.drop()
        return [last]

    return make_passes


def waiting_for_all(right):
    """Stages that begin a mini-batch when all stages of the replica have their parameters."""

    def worker(self, own):
        depth, stage, server = (
            self.depth(own.workers),
            self.stage(own),
            self.owner(own.rank, own.workers),
        )
        first = own.rank - own.rank % depth
        others = [rank for rank in range(first, first + depth) if rank != own.rank]
        own.send(server, None, size=0)
        while True:
            _, weights = yield own.receive()
            for other in others:
                own.send(other, None, tag="ready", size=0)
            for _ in others:
                yield own.receive("ready")
            pieces = yield from stage.make_passes(weights, self.micro_batches, self.micro_batches)
            own.send(server, pieces, size=stage.size)

    return worker


PIPELINES = {
    "delays of stages are in the other order": (
        Replaced(delayed.DelayedStages, "worker", settings(delays=lambda self: self.delays[::-1])),
        test_pipelines.test_delays_of_stages_match_pipedream,
    ),
    "delays of stages are longer by one": (
        Replaced(
            delayed.DelayedStages,
            "worker",
            settings(delays=lambda self: [delay + 1 for delay in self.delays]),
        ),
        test_pipelines.test_equal_delays_of_stages_are_a_delay,
    ),
    "a stage's server answers before it applies": (
        Replaced(AsyncPipelines, "server", on_spoilt(before_its_update)),
        partial(test_asynchronous_pipelines.test_one_replica_equals_flushed_pipeline, "gpipe"),
    ),
    "replicas of a pipeline wait for each other": (
        Replaced(AsyncPipelines, "server", in_step),
        test_asynchronous_pipelines.test_slow_stage_delays_own_replica_only,
    ),
    "a stage pushes its last micro-batch alone": (
        Replaced(staging.Carriage, "make_passes", one_gradient),
        partial(test_asynchronous_pipelines.test_stages_match_loop_over_recorded_order, "momentum"),
    ),
    "the answer to a stage has the whole model": (
        Replaced(
            AsyncPipelines,
            "server",
            on_spoilt(lambda own: {"send": lambda to, content, size: own.send(to, content)}),
        ),
        partial(
            test_asynchronous_pipelines.test_one_replica_waits_for_its_servers, "1f1b", (1, 5, 1, 9)
        ),
    ),
    "a replica waits for the parameters of all its stages": (
        Replaced(AsyncPipelines, "worker", waiting_for_all),
        partial(
            test_asynchronous_pipelines.test_one_replica_waits_for_its_servers,
            "gpipe",
            (1, 5, 1, 9),
        ),
    ),
}
