"""Roles given as plain generator functions of a node."""

from laggard.simulator import Algorithm, Cluster, Stop, simulate


def run(worker, server=None, workers=2, stop=None, **more):
    """Simulate roles given as plain generator functions of a node."""

    class Made(Algorithm):
        pass

    Made.worker = lambda self, node: worker(node)
    if server is not None:
        Made.server = lambda self, node: server(node)
    cluster = more.pop("cluster", None) or Cluster(workers=workers)
    return simulate(cluster, Made(), more.pop("task", None), stop=stop or Stop(time=100.0), **more)
