"""Evaluations of a simulation: their models and their times."""

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from laggard.simulator.engine.machine import Machine
from laggard.simulator.engine.stopping import MAX_EVALUATIONS, Evaluate
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.weights import mean, mean_of_slices
from laggard.simulator.recording.metrics import Learning

if TYPE_CHECKING:
    from laggard.simulator.engine.simulation import Simulation


class Evaluations:
    """Evaluates the model of an algorithm: a server's, or the mean of the live nodes'.

    Args:
        models: the nodes that hold a model, or a slice of one.
        slices: the slice of the model on each node, where no node holds the whole model.
    """

    def __init__(
        self,
        simulation: "Simulation",
        learning: Learning,
        evaluate: Evaluate,
        accuracy: float | None,
        models: Sequence[Machine],
        slices: Mapping[int, slice],
    ) -> None:
        self._simulation = simulation
        self._learning = learning
        self._evaluate = evaluate
        self._accuracy = accuracy
        self._models = models
        self._slices = slices
        self._periods = 0

    def model(self) -> Tensor:
        """The mean of the models of live nodes, or the nodes' slices side by side."""
        if not self._learning.learns:
            return torch.empty(self._models[0].weights.shape)
        if self._slices:
            return mean_of_slices(
                [(self._slices[node.rank], node.weights) for node in self._models]
            )
        return mean([node.weights for node in self._live()])

    def evaluate(self) -> None:
        """Evaluate the present model, and end the run if it has the accuracy or has diverged."""
        nodes: Sequence[Machine] = ()
        if len(self._models) > 1 and not self._slices:
            nodes = self._live()
        simulation = self._simulation
        progress = simulation.progress()
        bytes_sent = simulation.bytes_sent()
        self._learning.evaluate(self.model(), progress, bytes_sent, nodes)
        # While events are replayed, measures are zeros and end nothing.
        if simulation.snapshots is not None and simulation.snapshots.replays:
            return
        if self._learning.all_diverged:
            simulation.end("diverged")
        elif self._accuracy is not None and self._learning.all_reached(self._accuracy):
            simulation.end("accuracy")

    def evaluate_periodically(self) -> None:
        """Evaluate now and at every further multiple of the period, if there is one."""
        if self._evaluate.every_seconds is None:
            return
        self.evaluate()
        self._periods += 1
        if self._periods > MAX_EVALUATIONS:
            expected = f"a period of which a run has at most {MAX_EVALUATIONS:,}"
            got = self._evaluate.every_seconds
            raise InvalidSettingError("Evaluate", "every_seconds", expected, got)
        # A multiple of the period, not the last moment and a period: roundings would add up.
        moment = self._periods * self._evaluate.every_seconds
        self._simulation.env.at_moment(moment, self.evaluate_periodically)

    def _live(self) -> Sequence[Machine]:
        """The nodes that are up and take part; all if none is."""
        members: Container[int] = self._simulation.members
        up = [node for node in self._models if node.incarnation % 2 == 0]
        return [node for node in up if node.rank < 0 or node.rank in members] or self._models
