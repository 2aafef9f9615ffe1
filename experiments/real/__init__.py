"""Real runs: processes of torch.distributed on this machine, and clusters to simulate, with the
times measured.
"""


class RealRunError(RuntimeError):
    """A process of a real run died, failed or hung."""
