"""Faults that distributed SGD is prone to: each is planted in the product, and `laggard verify` must find it."""

import inspect
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

import pytest

from experiments.verify import finding_by_finding

BROKEN = ("AttributeError", "NameError", "SyntaxError", "TypeError", "UnboundLocalError")  # the fault is broken itself
kept: dict[Any, Any] = {}  # what a planted fault remembers


@dataclass(frozen=True)
class Fault:
    """A function of the product some of whose source says something else, and the check that must fail then.

    Attributes:
        check: `family.check`.
        place: of the function, `module:name` within `simulator`.
        edits: what the source says, each of them once, and what it is to say.
    """

    check: str
    place: str
    edits: Mapping[str, str]

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the function with the fault in the place of the right one."""
        module, _, name = f"simulator.{self.place}".partition(":")
        *path, name = name.split(".")
        owner = reduce(getattr, path, module := import_module(module))
        function = vars(owner)[name]
        plain = function.fget if isinstance(function, property) else function
        source = textwrap.dedent(inspect.getsource(plain))
        for right, wrong in self.edits.items():
            assert source.count(right) == 1, f"{self.place} does not say once: {right}"
            source = source.replace(right, wrong)
        names = {**plain.__globals__, "kept": kept}
        exec(compile(source, "<fault>", "exec"), names)
        if not path:  # others have imported it by its name
            monkeypatch.setattr(function, "__code__", names[name].__code__)
        monkeypatch.setattr(owner, name, names[name])


FAULTS = {
    # optimisers
    "SGD climbs": Fault("rules.optimizers", "rules.optimizers:SGD.step", {"gradient * cast(-lr": "gradient * cast(lr"}),
    "heavy ball is damped": Fault(
        "rules.optimizers", "rules.optimizers:SGD.step", {"state + gradient": "state + 0.1 * gradient"}
    ),
    "Nesterov looks not ahead": Fault(
        "rules.optimizers", "rules.optimizers:Nesterov.step", {"(gradient + momentum * velocity)": "velocity"}
    ),
    "Adagrad forgets": Fault(
        "rules.optimizers", "rules.optimizers:Adagrad.step", {"state + gradient": "0.9 * state + gradient"}
    ),
    "RMSProp without the root": Fault(
        "rules.optimizers", "rules.optimizers:RMSProp.step", {"squares.sqrt()": "squares"}
    ),
    "Adam's bias stays": Fault("rules.optimizers", "rules.optimizers:Adam.step", {"-lr / (1 - state.power1)": "-lr"}),
    "AdamW's decay has no learning rate": Fault(
        "rules.optimizers", "rules.optimizers:AdamW.step", {"lr * self.weight_decay": "self.weight_decay"}
    ),
    # compensations
    "DC-ASGD-a lacks the root": Fault(
        "rules.exact_hessian", "rules.compensations:DCASGDa.correct", {"(squares + 1e-7).sqrt()": "(squares + 1e-7)"}
    ),
    "DC-ASGD-c's backup is an alias of the live weights": Fault(
        "rules.exact_hessian",
        "rules.compensations:DCASGDc.correct",
        {"weights - gradient.weights": "weights - weights"},
    ),
    "DC-ASGD-c's backup is another worker's": Fault(
        "pseudo_code.compensations",
        "rules.compensations:DCASGDc.correct",
        {"gradient.weights": "(kept.get('last', weights), kept.update(last=gradient.weights))[0]"},
    ),
    "DC-ASGD-a has one mean square for all workers": Fault(
        "pseudo_code.compensations",
        "rules.rule:Rule.update",
        {"EVERYBODY if self.compensation.shared else gradient.worker": "-1"},
    ),
    "DC-ASGD moves the wrong way": Fault(
        "rules.exact_hessian",
        "rules.compensations:DCASGDc.correct",
        {"weights - gradient.weights": "gradient.weights - weights"},
    ),
    "once-stale gradients count half": Fault(
        "pseudo_code.compensations",
        "rules.damping:Staleness.weight",
        {"max(1, gradient.staleness)": "(1 + gradient.staleness)"},
    ),
    "delay-adaptive bounds from below": Fault(
        "pseudo_code.compensations", "rules.damping:DelayAdaptive.weight", {"at_least_one(": "min(1.0, "}
    ),
    "gap-aware multiplies by the gap": Fault(
        "pseudo_code.compensations",
        "rules.compensations:GapAware.correct",
        {"typical / (typical + gap)": "(typical + gap) / typical"},
    ),
    "1/N counts twice": Fault(
        "rules.damping", "rules.damping:OneOverN.weight", {"1 / self.workers": "1 / self.workers**2"}
    ),
    "fresh gradients are compensated": Fault(
        "rules.one_worker",
        "rules.damping:Staleness.weight",
        {"max(1, gradient.staleness)": "(1 + gradient.staleness) / 2"},
    ),
    # the asynchronous server
    "momentum is kept at the workers": Fault(
        "pseudo_code.optimizer_at_the_server",
        "algorithms.asynchronous:AsyncPS.server",
        {
            "taken =": "node.kept = {}; taken =",
            "weights, state = self.rule.update": "weights, node.kept[worker] = self.rule.update",
            "gathered, state, combine": "gathered, node.kept.get(worker, state), combine",
        },
    ),
    "the server answers before it applies": Fault(
        "staleness.asynchronous",
        "algorithms.asynchronous:AsyncPS.server",
        {"yield node.work(node.apply_seconds)": "node.send(worker, node.weights); fetch = False"},
    ),
    "what is accumulated is averaged": Fault(
        "asynchronous.downpour", "algorithms.asynchronous:AsyncPS.server", {", combine=total": ""}
    ),
    "a replica pushes a gradient twice": Fault(
        "asynchronous.downpour", "algorithms.asynchronous:AsyncPS.worker", {"accrued = []": "accrued = accrued[-1:]"}
    ),
    "a fetch is due after every push": Fault(
        "staleness.downpour", "algorithms.asynchronous:AsyncPS.worker", {", step % self.n_fetch == 0": ", True"}
    ),
    "a barrier lets workers through": Fault(
        "asynchronous.lock_step", "algorithms.asynchronous:AsyncPS.admitted", {"<= rounds": "<= rounds + 1"}
    ),
    # groups of gradients, and bounds
    "k_async takes a worker twice": Fault(
        "staleness.in_groups",
        "algorithms.k_async:KAsync.server",
        {
            "gathered.append(gradient)": "gathered.append(gradient); node.send(worker, node.weights)",
            "node.send(contribution.worker, node.weights)": "pass",
        },
    ),
    "soft_sync's contributors wait": Fault(
        "staleness.in_groups",
        "algorithms.k_async:SoftSync.server",
        {
            "node.send(worker, node.weights)": "node.held = [*getattr(node, 'held', []), worker]; "
            "[node.send(held, node.weights) for held in node.held if not gathered]; "
            "node.held = node.held if gathered else []"
        },
    ),
    "soft_sync's K-th contributor reads too early": Fault(
        "staleness.in_groups",
        "algorithms.k_async:SoftSync.server",
        {
            "yield node.work(node.apply_seconds)": "old = node.weights",
            "node.send(worker, node.weights)": "node.send(worker, old if gradient and not gathered else node.weights)",
        },
    ),
    "ssp is a step too generous": Fault(
        "asynchronous.lock_step",
        "algorithms.stale_synchronous:SSP.server",
        {"slowest + self.bound": "slowest + self.bound + 1"},
    ),
    "ringmaster applies what is just too stale": Fault(
        "asynchronous.ringmaster",
        "algorithms.ringmaster:Ringmaster.server",
        {"staleness >= self.threshold": "staleness > self.threshold"},
    ),
    "Rennala applies the late": Fault(
        "staleness.synchronous",
        "algorithms.k_batch_sync:KBatchSync.server",
        {"gradient.staleness > 0": "gradient.staleness > 3"},
    ),
    "Rennala takes one more": Fault(
        "times.groups", "algorithms.k_batch_sync:KBatchSync.server", {"== self.gradients": "== self.gradients + 1"}
    ),
    # the synchronous server
    "gradients are added up": Fault(
        "parameter_server.large_batch", "rules.rule:Rule.update", {"(combine or mean)(corrected)": "sum(corrected)"}
    ),
    "the late are applied": Fault(
        "staleness.synchronous", "algorithms.synchronous:SyncPS.server", {"staleness > 0": "staleness > 9"}
    ),
    "the late are not cancelled": Fault(
        "times.first_k_cancelled",
        "algorithms.synchronous:SyncPS.server",
        {"if self.cancel else gathered": "if False else gathered"},
    ),
    "weights are added as if they were updates": Fault(
        "local_steps.what_is_averaged",
        "algorithms.synchronous:SyncPS.merge",
        {'self.average == "weights"': 'self.average == "updates"'},
    ),
    "buffers are forgotten": Fault(
        "local_steps.what_is_averaged", "algorithms.synchronous:SyncPS.worker", {"if self.reset:": "if True:"}
    ),
    "a shard is sent whole gradients": Fault(
        "local_steps.sharded", "shards:Shards.push", {"size / len(self._parts)": "size"}
    ),
    # steps of the workers' own
    "local SGD steps once more": Fault(
        "local_steps.local_sgd",
        "algorithms.local_sgd:LocalSGD.worker",
        {"range(self.local_steps)": "range(self.local_steps + 1)"},
    ),
    "DiLoCo's outer step goes the wrong way": Fault(
        "local_steps.local_sgd", "algorithms.local_sgd:DiLoCo.merge", {"weights - average": "average - weights"}
    ),
    "the centre does not move": Fault(
        "local_steps.elastic",
        "algorithms.easgd:EASGD.server",
        {"total([node.weights, *moves.values()])": "node.weights"},
    ),
    "a worker moves twice": Fault(
        "local_steps.elastic", "algorithms.easgd:EASGD.worker", {"before - move": "before - move - move"}
    ),
    "a token has no step": Fault(
        "local_steps.tokens", "algorithms.sync_replicas:SyncReplicas.server", {"token < node.version": "False"}
    ),
    "too few tokens": Fault(
        "local_steps.tokens",
        "algorithms.sync_replicas:SyncReplicas.server",
        {"max(replicas, node.workers)": "replicas"},
    ),
    # delays
    "a delay is one too long": Fault(
        "delayed.plain", "algorithms.delayed:Delayed.worker", {"step + delay": "step + delay + 1"}
    ),
    "a delay is forgotten": Fault(
        "delayed.with_momentum", "algorithms.delayed:Delayed.worker", {"step + delay": "step"}
    ),
    # collectives
    "a ring skips a chunk": Fault(
        "collectives.same_as_a_server", "collectives.circles:ring", {"partial + chunks[theirs]": "partial"}
    ),
    "a ring sends whole models": Fault(
        "collectives.times",
        "collectives.circles:ring",
        {'chunks[mine], (tag, "gather", step), 1 / workers': 'chunks[mine], (tag, "gather", step), 1'},
    ),
    "a cube adds in another order": Fault(
        "collectives.same_as_a_server", "collectives.hypercube:recursive_doubling", {"value + theirs": "value + value"}
    ),
    "a tree forgets a child": Fault(
        "collectives.same_as_a_server",
        "collectives.tree:tree",
        {"value = value + part": "value = value if child % 2 else value + part"},
    ),
    # gossip
    "push-sum ignores w": Fault("gossip.push_sum", "algorithms.push_sum:SGP.model", {"x / node.weight": "x"}),
    "a share is sent whole": Fault(
        "gossip.conserved", "algorithms.push_sum:SGP.push", {"(parts[share], share * w)": "(x, share * w)"}
    ),
    "a gradient is applied to z": Fault(
        "gossip.conserved",
        "algorithms.push_sum:SGP.overlapped",
        {"self.rule.update(x,": "self.rule.update(node.weights,"},
    ),
    "rows add up to 1 where columns must": Fault(
        "gossip.push_sum", "mixing:uniform", {"_degree(topology, sender": "_degree(topology, receiver"}
    ),
    "weights are those of a star on every graph": Fault(
        "gossip_methods.matrices", "mixing:metropolis", {"1 / (1 + max(degrees))": "1 / workers"}
    ),
    "D-PSGD steps from the wrong side": Fault(
        "gossip_methods.matrices",
        "algorithms.gossip:DPSGD.worker",
        {'self.order == "combine_then_adapt"': 'self.order != "combine_then_adapt"'},
    ),
    "D-PSGD averages without itself": Fault(
        "gossip.conserved", "algorithms.gossip:DPSGD.combine", {"mixing.own * node.weights": "0.0 * node.weights"}
    ),
    "D-PSGD sends after it computed": Fault(
        "gossip_times.seconds_per_step",
        "algorithms.gossip:DPSGD.worker",
        {"node.compute(node.weights)": "node.compute(node.weights); yield node.work(0.5)"},
    ),
    "an average is not atomic": Fault(
        "gossip.pairwise",
        "algorithms.pairwise:ADPSGD.answer",
        {"mine = node.weights": "mine = node.weights; yield node.send(asker, None, tag='wait', size=0)"},
    ),
    "the asked averages twice": Fault(
        "gossip.pairwise", "algorithms.pairwise:ADPSGD.answer", {"(theirs - mine) / 2": "(theirs - mine)"}
    ),
    "overlap waits for its own exchange": Fault(
        "gossip_times.seconds_per_step",
        "algorithms.push_sum:SGP.overlapped",
        {
            "step - pushed >= self.overlap": "True",
            "exchange, pushed = exchange + 1, step": "exchange, pushed = exchange + 1, step; yield node.work(0.1)",
        },
    ),
    "an exponential graph has wrong hops": Fault(
        "gossip.push_sum", "topology.regular:Exponential.hops", {"2**k": "2**k + 1"}
    ),
    # pipelines
    "the backward pass uses the newest weights": Fault(
        "pipelines.weight_stashing",
        "stages:Carriage.backward",
        {"reads)": "node._world.nodes[rank].weights for rank in range(node.workers)])", "joined(": "joined(["},
    ),
    "PipeDream is flushed": Fault(
        "pipelines.weight_stashing",
        "algorithms.pipedream:PipeDream.worker",
        {"range(node.workers - node.rank)": "range(1)"},
    ),
    "a pipeline has one micro-batch more in flight": Fault(
        "pipelines.bubble", "algorithms.pipeline:GPipe.warm_up", {"return self.micro_batches": "return 1"}
    ),
    "2BW has one version": Fault(
        "pipelines.two_versions",
        "algorithms.pipedream:PipeDream2BW.worker",
        {"before if fresh else node.weights": "node.weights"},
    ),
    # networks
    "messages are half as large": Fault("networks.alone", "wires:Wires.carry", {"size, route": "size / 2, route"}),
    "latency is paid twice": Fault("networks.alone", "wires:Wires.carry", {"+ latency": "+ 2 * latency"}),
    "cards are half duplex": Fault(
        "networks.full_duplex", "wires:Wires._between", {'(("down", end), cards[1])': '(("up", end), cards[1])'}
    ),
    "a queue forgets what it serves": Fault(
        "networks.gather_and_scatter", "sharing:FifoSharing._enter", {"max(now, link.free)": "now"}
    ),
    "fair sharing does not notice arrivals": Fault(
        "networks.latecomer", "sharing:FairSharing._group", {"return here": "return Hub(self._env, link)"}
    ),
    "a link of one's own is as fast as the level": Fault(
        "networks.two_cards", "sharing.hub:Hub._balance", {"< self._shared(count)": "< 0"}
    ),
    "every tenth message is lost": Fault(
        "engine.it gets on",
        "wires:Wires.carry",
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
        "laws:Durations.next",
        {"self._block.pop()": "self._block.pop() + 1e-3 * kept.setdefault(id(self), len(kept))"},
    ),
    "a slow worker is as fast as the others": Fault(
        "times.one_slow_worker", "slowdowns:stretched", {"if not slowdowns": "if slowdowns"}
    ),
    "cancelled work goes on": Fault(
        "times.first_k_cancelled", "events:Work.cancel", {"self.node.cancelled(self)": "pass"}
    ),
    # arithmetic
    "gradients are those of other weights": Fault(
        "engine.deferred = immediate evaluation",
        "pool:GradientPool._evaluate",
        {"gradient.weights for gradient": "gradient.weights + 1e-9 * len(gradients) for gradient"},
    ),
    "members of an ensemble are mixed": Fault(
        "engine.ensemble = single runs",
        "rules.optimizers:SGD.step",
        {"* state + gradient": "* state.mean(0) + gradient"},
    ),
    "weights are changed in place": Fault(
        "engine.weights are values", "rules.rule:Rule.step", {"weights = weights + (": "weights.data += ("}
    ),
    "a global random stream": Fault(
        "engine.the same seed is the same run",
        "node:Node.compute",
        {"self._durations.next()": "self._durations.next() * __import__('random').random()"},
    ),
    "staleness counts the gradient's own update": Fault(
        "staleness.asynchronous", "gradients:Read.staleness", {"- self.version_read": "- self.version_read + 1"}
    ),
}


@pytest.fixture
def forgetful():
    """Nothing that the product has worked out once is kept from before a fault to after it, or back."""
    caches = [
        value
        for name, module in list(sys.modules.items())
        if name.startswith("simulator")
        for value in vars(module).values()
        if hasattr(value, "cache_clear")
    ]
    forget = [cache.cache_clear for cache in caches] + [kept.clear]
    for call in forget:
        call()
    yield
    for call in forget:
        call()


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name, monkeypatch, forgetful):
    fault = FAULTS[name]
    fault.plant(monkeypatch)
    found = finding_by_finding(*fault.check.split(".", 1))
    seen = next((finding for finding in found if not finding.holds), None)
    assert seen is not None, "it went unseen"
    assert not any(broken in seen.statement for broken in BROKEN), seen.statement
