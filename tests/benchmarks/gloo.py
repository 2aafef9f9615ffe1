"""Compares collectives of gloo with simulated ones, on a network whose latency is known.

Each rank is a process in a network namespace of its own, with a TUN device. This process forwards
their packets: a packet leaves its sender at the set bandwidth and arrives one latency later. It
needs Linux, root, `ip` and idle cores:

    python -m tests.benchmarks.gloo
"""

import ctypes
import fcntl
import heapq
import multiprocessing
import os
import select
import struct
import subprocess
import sys
import time
from datetime import timedelta
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist

from laggard import AllReduce, Cluster, Network, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Constant

BANDWIDTH = 2.5e7
LATENCIES = (0.005, 0.02)
SIZES = (4_000, 1_000_000)
LATE = 0.5
REPETITIONS = 5
MTU = 65_000
"""Large, so that the first window of TCP is larger than a message."""
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
DESTINATION = 19
"""The last byte of the receiver's address in an IPv4 packet."""


def namespace(rank):
    return f"laggard{os.getpid()}n{rank}"


def command(*words):
    subprocess.run(list(map(str, words)), check=True)


def open_device(rank):
    """A TUN device in the namespace of a rank, as a file of packets."""
    name = f"lag{rank}"
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    command("ip", "netns", "add", namespace(rank))
    command("ip", "link", "set", name, "netns", namespace(rank))
    inside = ("ip", "-n", namespace(rank))
    command(*inside, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", name)
    command(*inside, "link", "set", name, "mtu", MTU, "up")
    command(*inside, "link", "set", "lo", "up")
    return device


def forward(devices, latency, ended):
    """Deliver packets, each after those before it from its sender, until `ended` is set."""
    free = dict.fromkeys(devices, 0.0)
    order = count()
    waiting = []
    while not ended.is_set():
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, packet = heapq.heappop(waiting)
            receiver = packet[DESTINATION] - 1
            if packet[0] >> 4 == 4 and 0 <= receiver < len(devices):
                os.write(devices[receiver], packet)
        pause = min(0.05, waiting[0][0] - now) if waiting else 0.05
        ready, _, _ = select.select(devices, [], [], max(pause, 0.0))
        for device in ready:
            packet = os.read(device, MTU + 100)
            free[device] = max(free[device], time.monotonic()) + len(packet) / BANDWIDTH
            heapq.heappush(waiting, (free[device] + latency, next(order), packet))


def rank_main(rank, ranks, results):
    """Measure a rank: the seconds of sends, and of all-reduces."""
    with Path(f"/run/netns/{namespace_of_parent(rank)}").open("rb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.setns(file.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
    os.environ["GLOO_SOCKET_IFNAME"] = f"lag{rank}"
    torch.set_num_threads(1)
    limit = timedelta(seconds=120)
    store = dist.TCPStore("10.77.0.1", 29500, ranks, rank == 0, limit)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
    measured = {}
    if ranks == 2:
        for late in (0, 1):
            measured["send", late] = least(lambda late=late: exchange(rank, late))
    for size in SIZES:
        tensor = torch.zeros(size // 4)
        measured["sum", size] = least(lambda tensor=tensor: seconds(dist.all_reduce, tensor))
    results.put((rank, measured))
    dist.barrier()
    dist.destroy_process_group()


def namespace_of_parent(rank):
    return f"laggard{os.getppid()}n{rank}"


def least(measure):
    """The shortest of several measurements, after a first one that opens connections."""
    times = []
    for _ in range(REPETITIONS + 1):
        dist.barrier()
        time.sleep(0.2)  # a barrier ends at different times
        times.append(measure())
    return min(times[1:])


def seconds(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def exchange(rank, late):
    """Seconds of rank 0 in a send to rank 1, of which `late` begins `LATE` seconds later."""
    tensor = torch.zeros(1000, dtype=torch.uint8)
    if rank == late:
        time.sleep(LATE)
    if rank == 0:
        return seconds(dist.send, tensor, 1)
    return seconds(dist.recv, tensor, 0)


def measure(ranks, latency):
    """(what, bytes) -> seconds of rank 0, and those of the last rank for sums."""
    context = multiprocessing.get_context("fork")
    devices = [open_device(rank) for rank in range(ranks)]
    try:
        ended, results = context.Event(), context.Queue()
        processes = [
            context.Process(target=rank_main, args=(rank, ranks, results), daemon=True)
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        forwarder = context.Process(target=forward, args=(devices, latency, ended), daemon=True)
        forwarder.start()
        measured = dict(results.get(timeout=300) for _ in processes)
        for process in processes:
            process.join()
        ended.set()
        forwarder.join()
    finally:
        for rank, device in enumerate(devices):
            os.close(device)
            command("ip", "netns", "del", namespace(rank))
    sums = {("sum", size): max(times["sum", size] for times in measured.values()) for size in SIZES}
    sends = {key: value for key, value in measured[0].items() if key[0] == "send"}
    return sums | sends


def simulated(ranks, latency, size):
    """Seconds of an all-reduce in a simulated ring."""
    network = Network(bandwidth=BANDWIDTH, latency=latency, message_bytes=size)
    cluster = Cluster(ranks, Constant(1.0), network=network)
    outcome = simulate(cluster, AllReduce(Rule(lr=0.1)), stop=Stop(updates=4))
    return outcome.progress.time / 4 - 1.0


def show(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main():
    show("| ranks | latency (ms) | bytes | gloo (ms) | simulated (ms) |")
    show("| ---: | ---: | ---: | ---: | ---: |")
    sends = []
    for latency in LATENCIES:
        for ranks in (2, 4, 8):
            measured = measure(ranks, latency)
            for size in SIZES:
                times = [measured["sum", size], simulated(ranks, latency, size)]
                shown = " | ".join(f"{1e3 * time:.1f}" for time in times)
                show(f"| {ranks} | {1e3 * latency:g} | {size} | {shown} |")
            sends += [(latency, late, measured["send", late]) for late in (0, 1) if ranks == 2]
    for latency, late, duration in sends:
        name = "receiver" if late else "sender"
        show(f"{1e3 * latency:g} ms, {name} {LATE} s late: sent after {1e3 * duration:.1f} ms")


if __name__ == "__main__":
    main()
