"""Which backend "auto" is, by device and network."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models.backends.choice import choose
from laggard.models.backends.chunked import Chunked
from laggard.models.backends.threads import Threads

CHAIN = nn.Sequential(nn.Linear(3, 2))
OTHER = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))


def test_auto_is_threads_on_a_cpu():
    backend = choose("auto", CHAIN, cross_entropy, torch.device("cpu"), threads=1)
    assert isinstance(backend, Threads)


def test_auto_unfolds_known_chains_on_a_gpu():
    gpu = torch.device("cuda")
    for module, name in [(CHAIN, "unfold-graphs"), (OTHER, "vmap-graphs")]:
        backend = choose("auto", module, cross_entropy, gpu)
        assert isinstance(backend, Chunked)
        assert backend.name == name
