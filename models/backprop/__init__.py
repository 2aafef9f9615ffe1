"""One model's gradient: written out for chains of well-known layers, by autograd for every other module."""

from models.backprop.autograd import Autograd, Backpropagation
from models.backprop.chain import Chain, backpropagation
from models.backprop.losses import Loss

__all__ = ["Autograd", "Backpropagation", "Chain", "Loss", "backpropagation"]
