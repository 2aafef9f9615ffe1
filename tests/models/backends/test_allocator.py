"""Memory that a gradient frees is there for the next one."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
from resource import RUSAGE_SELF, getrusage
import torch
from torch.nn.functional import cross_entropy
from laggard.models import ResNet
from laggard.models.backends.threads import Threads
from laggard.models.flat import flatten

module = ResNet(8, "group").build((3, 32, 32), 10)
weights = flatten(module.parameters()).detach().repeat(2, 1)
x, y, index = torch.randn(64, 3, 32, 32), torch.randint(10, (64,)), torch.arange(64).view(2, 32)
backend = Threads(module, cross_entropy, threads=1)

def faults(calls):
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        backend.gradients(weights, x, y, index)
    return getrusage(RUSAGE_SELF).ru_minflt - before

faults(4)
print(faults(2) / 4)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_gradient_asks_system_for_no_more_memory():
    """A subprocess measures it with the default allocator; a gradient took 5,000 to 6,000 page
    faults.
    """
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert float(answer.stdout) < 500
