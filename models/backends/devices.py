"""Which hardware there is."""

import torch


def find_device(name: str) -> torch.device:
    """The device called `name`; "auto" takes the GPU where there is one.

    Raises:
        ValueError: an unknown name, or "cuda" where torch sees no GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {name!r}: expected 'auto', 'cpu' or 'cuda'")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device = 'cuda', but torch sees no GPU here: use 'auto' or 'cpu', or install a CUDA torch")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
