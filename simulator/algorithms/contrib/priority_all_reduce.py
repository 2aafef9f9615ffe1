"""All-reduce SGD in slices: slices of the front layers are summed first."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.slicing import Sliced, SliceQueue, forward_by_layers
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Positive
from laggard.simulator.learning.promises import Later, Promise, concatenate

COMPUTED, FREE, ORDER, SUM, GRADIENT = "computed", "free", "order", "sum", "gradient"
"""The tags of messages between the roles of `PriorityAllReduce`."""


@dataclass(frozen=True)
class PriorityAllReduce(Reducing, Sliced):
    """All-reduce SGD in slices: slices of the front layers are summed first, and the forward pass
    of a layer waits only for its own slices.

        w <- w - lr (1/P) sum_j g_j(w)

    at every node. The weights are those of `all_reduce`, bit for bit; the times differ. A layer is
    cut into slices of at most c bytes. While the nodes compute, they sum one slice after another by
    a collective, which is never interrupted.

    All nodes must sum the same slice next, or they would wait for each other forever. The first
    node is the coordinator, as in Horovod. Every node tells it which layers it has computed.
    Whenever the coordinator is free, it considers the slices that all nodes have computed, and
    names one of the front-most layer. Both messages have no bytes. So no node waits inside a
    collective for a gradient that is not computed, however slow a node is. There is no deadlock:
    forward passes wait for sums, and backward passes wait for nothing.

    The times, for P equal nodes and layers l = 1 .. L from the front:

        e = max(r + alpha, e of the one before) + alpha + R(c)
        F_l = max(F_{l-1}, x_l of the step before) + f_l,    B_L = F_L + b_L,    B_l = B_{l+1} + b_l

    A slice is computed at r and summed at e; the one before is the slice that was named before it.
    R(c) is the time in which P nodes sum c bytes (`all_reduce`), and alpha the latency. The last
    slice of layer l is summed at x_l. The passes of layer l take f_l and b_l seconds: the forward
    pass ends at F_l, and the backward pass at B_l.

    The coordinator begins a collective alpha before the others. Where sends are complete when their
    bytes have left, one node therefore ends alpha before e. It is the coordinator in a ring of two,
    with halving and doubling, and with a server. There it names the next slice alpha earlier.

    On a free network a step takes f + b for the sums f and b of the f_l and b_l; with uneven nodes
    it takes as long as the slowest. With one layer in one slice a step takes 2 alpha longer than
    `all_reduce`.

    In a ring with alpha = 0 or `rendezvous`, a collective ends at all nodes at once. The network is
    then busy at the same times in any order. So with constant latencies and slowdowns no update
    comes later than with `order: fifo`, whatever the nodes and slices. In a tree, or with a server
    over queues (`sharing: fifo`), nodes end at different times, and a single update may come later.

    Attributes:
        slice_bytes: c (bytes); null sums whole layers. ByteScheduler has 1,000,000 parameters. A
            layer has 4,096 slices at most.
        order: the slice that is summed first: a slice of the front-most layer, or with `fifo` the
            slice computed first.
        collective, ring_slices, servers: the collective that sums a slice, as in `all_reduce`.
        backward: the time of a backward pass in forward passes; layers share both by their work.

    Source: Peng et al. (2019), SOSP (ByteScheduler); the coordinator: Horovod,
    horovod/common/controller.h.
    """

    slice_bytes: Positive | None = 4_000_000.0

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        both = [self.worker, self.exchange]
        coordinators = [0]
        if self.on_crash == "shrink":
            coordinators = list(range(workers))  # the lowest rank that is up coordinates
        roles = {rank: both for rank in range(workers)}
        return roles | {rank: [*both, self.coordinate] for rank in coordinators}

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """The pairs of the collective, and of the first node and all others, both ways."""
        yield from super().links(workers)
        yield from (pair for rank in range(1, workers) for pair in ((0, rank), (rank, 0)))

    def worker(self, node: Node) -> Role:
        """Compute gradients; the forward pass of a layer waits for its sums."""
        layers, first = self.layers(node), True
        while True:
            seconds = node.duration()
            batch = node.batch()
            wait = None if first else partial(await_sums, node)
            started = yield from forward_by_layers(node, layers, seconds, wait)
            first = False
            own = Later()  # slices of it are summed before all of it is computed
            node.put(own, GRADIENT)
            for layer in reversed(layers):
                yield node.work(share=layer.backward, of=seconds)
                if layer.number == 0:
                    gradient = node.promise(node.weights, batch, started)
                    own.become(gradient)
                    node.put(gradient, GRADIENT)
                first_node = node.members[0]
                if node.rank == first_node:
                    node.put(layer.number, COMPUTED)
                else:
                    node.send(first_node, layer.number, COMPUTED, size=0)

    def coordinate(self, node: Node) -> Role:
        """Whenever the first node is free, name the next slice among the slices that all nodes have
        computed.
        """
        if node.rank != node.members[0]:
            return
        layers = self.layers(node)
        waiting = SliceQueue(self.order)
        computed = Counter[int]()
        for turn in count():
            yield node.receive(FREE)
            # All that has arrived is taken first: it may be more urgent than what waits.
            while not waiting or node.arrived(COMPUTED):
                _, number = yield node.receive(COMPUTED)
                computed[number] += 1
                # The count goes on over all steps: at a multiple, all nodes have computed it in
                # this one.
                if computed[number] % len(node.members) == 0:
                    for piece in range(layers[number].slices):
                        waiting.put(number, (number, piece))
            named = waiting.take()
            for rank in node.members[1:]:
                node.send(rank, named, (ORDER, turn), size=0)
            node.put(named, (ORDER, turn))

    def exchange(self, node: Node) -> Role:
        """Sum the slices of a gradient, one after another in order, then update the model."""
        collective = self.collective_of(node.group_size)
        params = node.weights.shape[1]
        state = node.state or self.rule.init(node.weights)
        slices = {
            (layer.number, piece): collective.of_bucket(layer.slice_columns(piece), layer.size)
            for layer in self.layers(node)
            for piece in range(layer.slices)
        }
        turns = count()
        while True:
            _, own = yield node.receive(GRADIENT)  # a placeholder: the gradient is not computed yet
            totals: dict[tuple[int, int], Promise] = {}
            while len(totals) < len(slices):
                turn = next(turns)
                if node.rank == node.members[0]:
                    node.put(None, FREE)
                _, named = yield node.receive((ORDER, turn))
                part = slices[named]
                totals[named] = yield from part.reduce(node, own[part.columns], params, turn)
                # before the last SUM is announced: it lets the next forward pass read the new model
                if len(totals) == len(slices):
                    _, gradient = yield node.receive(GRADIENT)
                    total = concatenate([totals[one] for one in slices])
                    state = self.step(node, gradient, total, state)
                node.put(None, (SUM, named[0]))


def await_sums(node: Node, layer: int, slices: int) -> Role:
    """Wait until `slices` slices of layer `layer` are summed."""
    for _ in range(slices):
        yield node.receive((SUM, layer))
