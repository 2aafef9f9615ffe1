"""Faults that distributed SGD is prone to: each is planted in the product, and `laggard verify` must find it."""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from experiments.verify import findings
from simulator.algorithms.asynchronous import AsyncPS
from simulator.algorithms.delayed import Delayed
from simulator.algorithms.easgd import EASGD
from simulator.algorithms.k_async import KAsync, SoftSync
from simulator.algorithms.k_batch_sync import KBatchSync
from simulator.algorithms.local_sgd import DiLoCo, LocalSGD
from simulator.algorithms.pipedream import PipeDream, PipeDream2BW
from simulator.algorithms.pipeline import GPipe
from simulator.algorithms.ringmaster import Ringmaster
from simulator.algorithms.stale_synchronous import SSP
from simulator.algorithms.sync_replicas import SyncReplicas
from simulator.algorithms.synchronous import SyncPS
from simulator.collectives import circles, hypercube, tree
from simulator.events import Work
from simulator.gradients import Gradient, GradientPool
from simulator.laws import Durations
from simulator.node import Node
from simulator.rules import optimizers
from simulator.rules.compensations import DCASGDa, DCASGDc, GapAware
from simulator.rules.damping import DelayAdaptive, OneOverN, Staleness
from simulator.rules.optimizers import SGD, Adagrad, Adam, AdamW, Nesterov, RMSProp
from simulator.rules.rule import Rule
from simulator.shards import Shards
from simulator.sharing import FairSharing, FifoSharing
from simulator.slowdowns import stretched
from simulator.stages import Carriage
from simulator.wires import Wires

BROKEN = ("AttributeError", "NameError", "SyntaxError", "TypeError", "UnboundLocalError")  # the fault is broken itself
kept: dict[Any, Any] = {}  # what a planted fault remembers


@dataclass(frozen=True)
class Fault:
    """A function of the product some of whose source says something else, and the check that must fail then.

    Attributes:
        check: `family.check`.
        edits: what the source says, each of them once, and what it is to say.
    """

    check: str
    function: Callable[..., Any]
    edits: Mapping[str, str]

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the function with the fault in the place of the right one."""
        source = textwrap.dedent(inspect.getsource(self.function))
        for right, wrong in self.edits.items():
            assert source.count(right) == 1, f"{self.function.__qualname__} does not say once: {right}"
            source = source.replace(right, wrong)
        owner: Any = inspect.getmodule(self.function)
        names = {**vars(owner), "kept": kept}
        exec(compile(source, "<fault>", "exec"), names)
        *classes, name = self.function.__qualname__.split(".")
        if not classes:  # others have imported it by its name
            monkeypatch.setattr(self.function, "__code__", names[name].__code__)
        for part in classes:
            owner = getattr(owner, part)
        monkeypatch.setattr(owner, name, names[name])


FAULTS = {
    # optimisers
    "SGD climbs": Fault("rules.optimizers", SGD.step, {"gradient * cast(-lr": "gradient * cast(lr"}),
    "heavy ball is damped": Fault("rules.optimizers", SGD.step, {"state + gradient": "state + 0.1 * gradient"}),
    "Nesterov looks not ahead": Fault(
        "rules.optimizers", Nesterov.step, {"(gradient + momentum * velocity)": "velocity"}
    ),
    "Adagrad forgets": Fault("rules.optimizers", Adagrad.step, {"state + gradient": "0.9 * state + gradient"}),
    "RMSProp without the root": Fault("rules.optimizers", RMSProp.step, {"squares.sqrt()": "squares"}),
    "Adam's bias stays": Fault("rules.optimizers", Adam.step, {"-lr / (1 - state.power1)": "-lr"}),
    "AdamW's decay has no learning rate": Fault(
        "rules.optimizers", AdamW.step, {"lr * self.weight_decay": "self.weight_decay"}
    ),
    # compensations
    "DC-ASGD-a lacks the root": Fault(
        "rules.exact_hessian", DCASGDa.correct, {"(squares + 1e-7).sqrt()": "(squares + 1e-7)"}
    ),
    "DC-ASGD-c's backup is an alias of the live weights": Fault(
        "rules.exact_hessian", DCASGDc.correct, {"weights - gradient.weights": "weights - weights"}
    ),
    "DC-ASGD-c's backup is another worker's": Fault(
        "pseudo_code.compensations",
        DCASGDc.correct,
        {"gradient.weights": "(kept.get('last', weights), kept.update(last=gradient.weights))[0]"},
    ),
    "DC-ASGD-a has one mean square for all workers": Fault(
        "pseudo_code.compensations", Rule.update, {"EVERYBODY if self.compensation.shared else gradient.worker": "-1"}
    ),
    "DC-ASGD moves the wrong way": Fault(
        "rules.exact_hessian", DCASGDc.correct, {"weights - gradient.weights": "gradient.weights - weights"}
    ),
    "once-stale gradients count half": Fault(
        "pseudo_code.compensations", Staleness.weight, {"max(1, gradient.staleness)": "(1 + gradient.staleness)"}
    ),
    "delay-adaptive bounds from below": Fault(
        "pseudo_code.compensations", DelayAdaptive.weight, {"at_least_one(": "min(1.0, "}
    ),
    "gap-aware multiplies by the gap": Fault(
        "pseudo_code.compensations", GapAware.correct, {"typical / (typical + gap)": "(typical + gap) / typical"}
    ),
    "1/N counts twice": Fault("rules.damping", OneOverN.weight, {"1 / self.workers": "1 / self.workers**2"}),
    "fresh gradients are compensated": Fault(
        "rules.one_worker", Staleness.weight, {"max(1, gradient.staleness)": "(1 + gradient.staleness) / 2"}
    ),
    # the asynchronous server
    "momentum is kept at the workers": Fault(
        "pseudo_code.optimizer_at_the_server",
        AsyncPS.server,
        {
            "taken =": "node.kept = {}; taken =",
            "weights, state = self.rule.update": "weights, node.kept[worker] = self.rule.update",
            "gradients, state, combine": "gradients, node.kept.get(worker, state), combine",
        },
    ),
    "the server answers before it applies": Fault(
        "staleness.asynchronous",
        AsyncPS.server,
        {"yield node.work(node.apply_seconds)": "node.send(worker, node.weights); fetch = False"},
    ),
    "what is accumulated is averaged": Fault("parameter_server.downpour", AsyncPS.server, {", combine=total": ""}),
    "a replica pushes a gradient twice": Fault(
        "parameter_server.downpour", AsyncPS.worker, {"accrued = []": "accrued = accrued[-1:]"}
    ),
    "a fetch is due after every push": Fault(
        "staleness.downpour", AsyncPS.worker, {", step % self.n_fetch == 0": ", True"}
    ),
    "a barrier lets workers through": Fault(
        "parameter_server.lock_step", AsyncPS.admitted, {"<= rounds": "<= rounds + 1"}
    ),
    # groups of gradients, and bounds
    "k_async takes a worker twice": Fault(
        "staleness.in_groups",
        KAsync.server,
        {
            "gathered.append(gradient)": "gathered.append(gradient); node.send(worker, node.weights)",
            "node.send(contribution.worker, node.weights)": "pass",
        },
    ),
    "soft_sync's contributors wait": Fault(
        "staleness.in_groups",
        SoftSync.server,
        {
            "node.send(worker, node.weights)": "node.held = [*getattr(node, 'held', []), worker]; "
            "[node.send(held, node.weights) for held in node.held if not gathered]; "
            "node.held = node.held if gathered else []"
        },
    ),
    "soft_sync's K-th contributor reads too early": Fault(
        "staleness.in_groups",
        SoftSync.server,
        {
            "yield node.work(node.apply_seconds)": "early = node.weights",
            "node.send(worker, node.weights)": "node.send(worker, early if gradient and not gathered else node.weights)",
        },
    ),
    "ssp is a step too generous": Fault(
        "parameter_server.lock_step", SSP.server, {"slowest + self.bound": "slowest + self.bound + 1"}
    ),
    "ringmaster applies what is just too stale": Fault(
        "parameter_server.ringmaster", Ringmaster.server, {"staleness >= self.threshold": "staleness > self.threshold"}
    ),
    "Rennala applies the late": Fault(
        "staleness.synchronous", KBatchSync.server, {"gradient.staleness > 0": "gradient.staleness > 3"}
    ),
    "Rennala takes one more": Fault("times.groups", KBatchSync.server, {"== self.gradients": "== self.gradients + 1"}),
    # the synchronous server
    "gradients are added up": Fault(
        "parameter_server.large_batch", Rule.update, {"(combine or mean)(corrected)": "sum(corrected)"}
    ),
    "the late are applied": Fault("staleness.synchronous", SyncPS.server, {"staleness > 0": "staleness > 9"}),
    "the late are not cancelled": Fault(
        "times.first_k_cancelled", SyncPS.server, {"if self.cancel else gathered": "if False else gathered"}
    ),
    "weights are added as if they were updates": Fault(
        "local_steps.what_is_averaged", SyncPS.merge, {'self.average == "weights"': 'self.average == "updates"'}
    ),
    "buffers are forgotten": Fault("local_steps.what_is_averaged", SyncPS.worker, {"if self.reset:": "if True:"}),
    "a shard is sent whole gradients": Fault("local_steps.sharded", Shards.push, {"size / len(self._parts)": "size"}),
    # steps of the workers' own
    "local SGD steps once more": Fault(
        "local_steps.local_sgd", LocalSGD.worker, {"range(self.local_steps)": "range(self.local_steps + 1)"}
    ),
    "DiLoCo's outer step goes the wrong way": Fault(
        "local_steps.local_sgd", DiLoCo.merge, {"weights - average": "average - weights"}
    ),
    "the centre does not move": Fault(
        "local_steps.elastic", EASGD.server, {"total([node.weights, *moves.values()])": "node.weights"}
    ),
    "a worker moves twice": Fault("local_steps.elastic", EASGD.worker, {"mine - move": "mine - move - move"}),
    "a token has no step": Fault("local_steps.tokens", SyncReplicas.server, {"token < node.version": "False"}),
    "too few tokens": Fault("local_steps.tokens", SyncReplicas.server, {"max(replicas, node.workers)": "replicas"}),
    # delays
    "a delay is one too long": Fault("delayed.plain", Delayed.worker, {"step + delay": "step + delay + 1"}),
    "a delay is forgotten": Fault("delayed.with_momentum", Delayed.worker, {"step + delay": "step"}),
    # collectives
    "a ring skips a chunk": Fault(
        "collectives.same_as_a_server", circles.ring, {"partial + chunks[theirs]": "partial"}
    ),
    "a ring sends whole models": Fault(
        "collectives.times",
        circles.ring,
        {'chunks[mine], (tag, "gather", step), 1 / workers': 'chunks[mine], (tag, "gather", step), 1'},
    ),
    "a cube adds in another order": Fault(
        "collectives.same_as_a_server", hypercube.recursive_doubling, {"value + theirs": "value + value"}
    ),
    "a tree forgets a child": Fault(
        "collectives.same_as_a_server",
        tree.tree,
        {"value = value + part": "value = value if child % 2 else value + part"},
    ),
    # pipelines
    "the backward pass uses the newest weights": Fault(
        "pipelines.weight_stashing",
        Carriage.backward,
        {"reads)": "node._world.nodes[rank].weights for rank in range(node.workers)])", "joined(": "joined(["},
    ),
    "PipeDream is flushed": Fault(
        "pipelines.weight_stashing", PipeDream.worker, {"range(node.workers - node.rank)": "range(1)"}
    ),
    "a pipeline has one micro-batch more in flight": Fault(
        "pipelines.bubble", GPipe.warm_up, {"return self.micro_batches": "return 1"}
    ),
    "2BW has one version": Fault(
        "pipelines.two_versions", PipeDream2BW.worker, {"before if fresh else node.weights": "node.weights"}
    ),
    # networks
    "messages are half as large": Fault("networks.alone", Wires.carry, {"size, route": "size / 2, route"}),
    "latency is paid twice": Fault("networks.alone", Wires.carry, {"+ latency": "+ 2 * latency"}),
    "cards are half duplex": Fault(
        "networks.full_duplex", Wires._path, {'(("down", end), cards[1])': '(("up", end), cards[1])'}
    ),
    "a queue forgets what it serves": Fault(
        "networks.gather_and_scatter", FifoSharing._enter, {"max(now, link.free)": "now"}
    ),
    "fair sharing does not notice arrivals": Fault(
        "networks.latecomer", FairSharing.carry, {"self._rate(connected(flow.route))": "self._rate([flow])"}
    ),
    "every tenth message is lost": Fault(
        "engine.it gets on",
        Wires.carry,
        {
            "if self._plain:": "kept['sent'] = kept.get('sent', 0) + 1\n"
            "    if kept['sent'] % 10 == 0:\n"
            "        return\n"
            "    if self._plain:"
        },
    ),
    # the clock
    "durations are another worker's": Fault(
        "engine.common_random_numbers",
        Durations.next,
        {"self._block.pop()": "self._block.pop() + 1e-3 * kept.setdefault(id(self), len(kept))"},
    ),
    "a slow worker is as fast as the others": Fault(
        "times.one_slow_worker", stretched, {"if not slowdowns": "if slowdowns"}
    ),
    "cancelled work goes on": Fault("times.first_k_cancelled", Work.cancel, {"self.node.cancelled(self)": "pass"}),
    # arithmetic
    "gradients are those of other weights": Fault(
        "engine.deferred = immediate evaluation",
        GradientPool._evaluate,
        {"gradient.weights for gradient": "gradient.weights + 1e-9 * len(gradients) for gradient"},
    ),
    "members of an ensemble are mixed": Fault(
        "engine.ensemble = single runs",
        optimizers.running,
        {"(1 - decay, mean) * value": "(1 - decay, mean) * value.mean(0)"},
    ),
    "weights are changed in place": Fault(
        "engine.weights are values", Rule.step, {"weights = weights + (": "weights.data += ("}
    ),
    "a global random stream": Fault(
        "engine.the same seed is the same run",
        Node.compute,
        {"self._durations.next()": "self._durations.next() * __import__('random').random()"},
    ),
    "staleness counts the gradient's own update": Fault(
        "staleness.asynchronous", Gradient.staleness.fget, {"- self.version_read": "- self.version_read + 1"}
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name, monkeypatch):
    fault = FAULTS[name]
    kept.clear()
    fault.plant(monkeypatch)
    found = findings(*fault.check.split(".", 1))
    assert not all(finding.holds for finding in found), "it went unseen"
    errors = [finding.statement for finding in found if finding.measured != finding.measured]
    assert not any(broken in error for error in errors for broken in BROKEN), errors
