"""What the engine does when work ends and when a message arrives: the first callbacks of these
events.
"""

from collections.abc import Sequence
from itertools import pairwise

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.recording.trace import BUSY, SENDING
from laggard.simulator.timing.events import BucketReady, Message, Work
from laggard.simulator.timing.slowdowns import apply_slowdowns


def end_work(work: Work) -> None:
    """End `work`: its node is free, and the role that waits for it goes on."""
    node, gradient = work.node, work._value
    now = node._env._now
    if node._work is work:
        node.spent[BUSY] += now - node._since
        node._since, node._work = now, None
    if gradient is not None:
        gradient.computed = now
        counters = node._counters
        counters.computed += 1
        if counters.computed >= counters.most_computed:
            node._world.end("gradients")
    if work.role is not None:
        work.role.resume(gradient)


def start_buckets(work: Work, seconds: float, ready: Sequence[float]) -> Work:
    """Let buckets of the gradient of `work`, which has just begun, be there before its end; return
    `work`.

    Args:
        seconds: what the work takes at full speed.
        ready: the shares of it after which each bucket is there, the last of which is 1: the end of
            the work itself.

    Raises:
        InvalidSettingError: the shares do not rise to 1.
    """
    if not (
        ready[0] > 0 and ready[-1] == 1 and all(one <= other for one, other in pairwise(ready))
    ):
        expected = "shares > 0 of the mini-batch's work that do not fall, the last of them 1"
        raise InvalidSettingError("compute", "buckets", expected, list(ready))
    node, buckets = work.node, []
    for share in ready[:-1]:
        bucket = BucketReady(work, BUCKET_READY)
        node._env.after_work(
            apply_slowdowns(share * seconds, node._env._now, node._slowdowns), bucket
        )
        buckets.append(bucket)
    work.buckets = (*buckets, work)
    return work


def end_bucket(bucket: BucketReady) -> None:
    """Let the role that waits for `bucket` go on; its node stays busy."""
    if bucket.role is not None:
        bucket.role.resume(bucket._value)


def deliver(message: Message) -> None:
    """Give `message`, which has arrived, to its receiver; the role that waits for its arrival goes
    on.
    """
    sender, mailbox = message.sender, message.receiver.mailbox
    sender._outgoing -= 1
    if not sender._outgoing and sender._work is None and sender._since != sender._env._now:
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
    if (
        message.lives == (message.sender.life, message.receiver.life)
        and message.receiver.life % 2 == 0
    ):
        recoveries = message.sender._world.recoveries
        if recoveries is not None:
            recoveries.delivered(message)
        deliver(message)
    else:
        waiting.clear()
        message.callbacks = []
        message.lose()


WORK_ENDS, BUCKET_READY, MESSAGE_ARRIVES = (end_work,), (end_bucket,), (deliver,)
