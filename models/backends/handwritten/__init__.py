"""One model's gradient: handwritten for chains of known layers, by autograd for every other module."""

from laggard.models.backends.handwritten.chain import Autograd, Backpropagation, Chain, Loss, backpropagation

__all__ = ["Autograd", "Backpropagation", "Chain", "Loss", "backpropagation"]
