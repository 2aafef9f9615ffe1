"""Real runs: processes of torch.distributed on this machine, and the simulated cluster that takes their times."""


class RealRunError(RuntimeError):
    """A process of a real run died, failed or hung."""
