"""Which hardware there is, and the way to it."""

import torch
from torch import Tensor


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


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`; to a GPU by way of memory from which it is copied while the program goes on."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def describe(device: torch.device) -> str:
    """The device, and of a GPU its name: `cpu`, or `cuda (NVIDIA ...)`."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
