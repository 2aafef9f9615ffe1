"""Networks at random, and what a message crosses in them by the definition of their parts."""

import itertools

import networkx as nx

from laggard.simulator import Network, Star
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.groups import Groups, Trunk, Trunks
from laggard.simulator.network.topology import CompleteWithServers

WORKERS = 8
SPEEDS = [0.5, 1.0, 2.0, 3.5, 8.0]


def random_network(rng):
    """A network of eight workers and two servers with finite bandwidths, of any parts that can be
    together.
    """
    topology = Star() if rng.integers(2) else CompleteWithServers()
    given = {"topology": topology, "bandwidth": speed(rng), "latency": float(rng.choice([0, 0.25]))}
    kind = rng.choice(["groups", "hosts", "colocated", "cards"])
    if kind == "groups":
        return Network(**given, **random_groups(rng, topology))
    if kind == "hosts":
        hosts = Hosts(int(rng.choice([1, 2, 4])), speed(rng), latency=0.5)
        return Network(**given, server_bandwidth=maybe(rng), hosts=hosts)
    given["cards"] = random_cards(rng)
    given["wiring"] = str(rng.choice(["cards", "pairs"]))
    if kind == "colocated":
        return Network(**given, colocated=True)
    links = random_links(rng, topology)
    return Network(**given, server_bandwidth=maybe(rng), links=links)


def random_groups(rng, topology):
    """Groups in a random connected graph of switches, with servers at one of them, and hosts, or
    cards and links.
    """
    count = int(rng.choice([1, 2, 4, 8]))
    names = [*range(count), "x", "y"]
    tree = nx.random_labeled_tree(len(names), seed=int(rng.integers(1000)))
    edges = {frozenset(edge) for edge in tree.edges}
    for _ in range(rng.integers(3)):
        edges.add(frozenset(rng.choice(len(names), 2, replace=False).tolist()))
    trunks = []
    for a, b in map(sorted, edges):
        latency = float(rng.choice([0, 0.5]))
        trunks.append(Trunk([names[a]], names[b], maybe(rng), latency=latency))
    groups = Groups(count, trunks=trunks, servers=names[rng.integers(len(names))])
    if count < WORKERS and rng.integers(2):
        return {"groups": groups, "hosts": Hosts(2, speed(rng))}
    return {"groups": groups, "cards": random_cards(rng), "links": random_links(rng, topology)}


def speed(rng):
    return float(rng.choice(SPEEDS))


def maybe(rng):
    return speed(rng) if rng.integers(3) else None


def random_cards(rng):
    chosen = rng.choice(WORKERS, rng.integers(4), replace=False).tolist()
    return [Card(worker, speed(rng)) for worker in chosen]


def joined(topology):
    """The pairs of nodes that may send to each other."""
    pairs = itertools.permutations(range(-2, WORKERS), 2)
    return [pair for pair in pairs if topology.joins(*pair, WORKERS)]


def random_links(rng, topology):
    pairs = [pair for pair in joined(topology) if pair[0] < pair[1]]
    chosen = rng.choice(len(pairs), rng.integers(4), replace=False).tolist()
    return [SlowLink(*pairs[index], speed(rng), both=bool(rng.integers(2))) for index in chosen]


def crossed(network, sender, receiver):
    """The bandwidths of the links between two nodes, by name, and the latency."""
    hosts, latency = network.hosts, network.latency
    if hosts and min(sender, receiver) >= 0 and sender // hosts.size == receiver // hosts.size:
        inner = {(sender, "inner"): hosts.bandwidth, (receiver, "inner in"): hosts.bandwidth}
        return inner, hosts.latency
    ends = machine(network, sender), machine(network, receiver)
    if ends[0] == ends[1]:
        return {}, 0.0
    cards = [card(network, rank) for rank in (sender, receiver)]
    private = {}
    for link in network.links:
        if ends in link.pairs:
            private[ends] = link.bandwidth
    if network.wiring == "pairs":
        return private or {ends: min(cards)}, latency
    links = {(ends[0], "up"): cards[0], **private, (ends[1], "down"): cards[1]}
    for hop, trunk in trunks_between(network, sender, receiver):
        latency += trunk.latency
        if trunk.bandwidth:
            links["trunk", *hop] = trunk.bandwidth
    return links, latency


def machine(network, rank):
    """What has the card of a node."""
    if network.hosts and rank >= 0:
        return f"host {rank // network.hosts.size}"
    return -1 - rank if network.colocated and rank < 0 else rank


def card(network, rank):
    """The bandwidth of a node's card."""
    own = {card.worker: card.bandwidth for card in network.cards}
    if rank >= 0:
        return own.get(rank, network.bandwidth)
    if network.colocated:
        return own.get(-1 - rank, network.bandwidth)
    return network.server_bandwidth or network.bandwidth


def trunks_between(network, sender, receiver):
    """The trunks that a message crosses, with their ends in its direction."""
    groups = network.groups
    if groups is None:
        return []
    size = WORKERS // groups.count
    ends = [groups.servers if rank < 0 else rank // size for rank in (sender, receiver)]
    trunks = {frozenset((*trunk.switches, trunk.to)): trunk for trunk in groups.trunks}
    hops = itertools.pairwise(Trunks(network, WORKERS).path(*ends))
    return [(hop, trunks[frozenset(hop)]) for hop in hops]
