"""What the engine does when work ends and when a message arrives: the first callbacks of these events."""

from typing import TYPE_CHECKING

from laggard.simulator.recording.trace import BUSY, SENDING
from laggard.simulator.timing.events import Message, Work

if TYPE_CHECKING:
    from laggard.simulator.engine.machine import Machine


def end_work(work: Work) -> None:
    """End `work`: its node is free, and the role that waits for it goes on."""
    node, gradient = work.node, work._value
    now = node._env._now
    if node._work is work:
        node.spent[BUSY] += now - node._since
        node._since, node._work = now, None
    if gradient is not None:
        gradient.computed = now
        count_computed(node)
    if work.role is not None:
        work.role.resume(gradient)


def count_computed(node: "Machine") -> None:
    """Count a gradient that `node` has computed, and end the run at the limit on them."""
    counters = node._counters
    counters.computed += 1
    if counters.computed >= counters.most_computed:
        node._world.end("gradients")


def deliver(message: Message) -> None:
    """Give `message`, which has arrived, to its receiver; the role that waits for its arrival goes on."""
    sender, mailbox = message.sender, message.receiver.mailbox
    sender._outgoing -= 1
    if not sender._outgoing and sender._work is None:
        sender._spend(SENDING)
    sender._counters.delivered += 1
    if sender._log is not None:
        sender._log.delivered(message)
    receive = mailbox.first
    if receive is not None and receive.role is not None and message.tag is None and mailbox.plain:
        mailbox.first = None  # as `mailbox.deliver` does it, without the other cases
        receive.message, receive.callbacks = message, None
        receive._value = value = (sender.rank, message.content)
        receive.role.resume(value)
    else:
        mailbox.deliver(message)
    if message.role is not None:
        message.role.resume(message._value)


def deliver_or_lose(message: Message) -> None:
    """Deliver `message`, unless a crash has come between."""
    waiting, message.waiting = message.waiting, []
    if message.lives == (message.sender.life, message.receiver.life) and message.receiver.life % 2 == 0:
        deliver(message)
    else:
        waiting.clear()
        message.callbacks = []
        message.lose()


WORK_ENDS, MESSAGE_ARRIVES = (end_work,), (deliver,)
