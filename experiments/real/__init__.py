"""Real runs on processes of torch.distributed, and simulated clusters calibrated on them."""


class RealRunError(RuntimeError):
    """A process of a real run died, failed or hung."""
