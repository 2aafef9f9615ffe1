"""What a node is doing, computing, sending, waiting or down, and for how long; crashes and
returns.
"""

from typing import TYPE_CHECKING

from laggard.simulator.engine.mailbox import Mailbox
from laggard.simulator.engine.node import Node
from laggard.simulator.recording.trace import BUSY, DOWN, SENDING, WAITING
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.events import Message, Work

if TYPE_CHECKING:
    from laggard.simulator.engine.simulation import Simulation


class NodeState(Node):
    """What a node is doing.

    Attributes:
        life: how often it has crashed and returned; odd while it is down.
        mailbox: messages not received yet, and receives that wait for a message.
        spent: seconds busy, sending, waiting, down; waiting is what is left at the end.
    """

    life: int
    mailbox: Mailbox
    spent: list[float]
    _world: "Simulation"
    _env: Clock
    _work: Work | None
    _outgoing: int
    _since: float

    def cancelled(self, work: Work) -> None:
        """Interrupt `work`: the node is free, and the event of its end is cancelled."""
        if self._work is work:
            self._spend(BUSY)
            self._work = None
            self._env.cancel(work)

    def lost(self, message: Message) -> None:
        """Record that one of the node's messages is lost, and gradients with it."""
        if message.lives[0] == self.life:
            self._outgoing -= 1
            if not self._outgoing and self._work is None:
                self._spend(SENDING)
        self._world.lost(message)

    @property
    def idle(self) -> bool:
        """Whether it is up and computes nothing."""
        return self._work is None and self.life % 2 == 0

    def crash(self) -> None:
        """Go down: what it computes is cancelled, its mailbox is empty, and its receives wait no
        longer.
        """
        if self._work is not None:
            self._work.cancel()
        if self._outgoing:
            self._spend(SENDING)
        self._outgoing, self._since = 0, self._env.now
        self.mailbox.clear()
        self.life += 1

    def revive(self) -> None:
        """Come back, with the model that it had."""
        self._spend(DOWN)
        self.life += 1

    def close(self) -> None:
        """Count the time up to now."""
        if self.life % 2 or self._work is not None or self._outgoing:
            self._spend(DOWN if self.life % 2 else BUSY if self._work is not None else SENDING)
        self.spent[WAITING] = max(
            0.0, self._env.now - self.spent[BUSY] - self.spent[SENDING] - self.spent[DOWN]
        )

    def _spend(self, state: int) -> None:
        """Add the time since the node entered `state`, one of busy, sending and down."""
        now = self._env._now
        self.spent[state] += now - self._since
        self._since = now
