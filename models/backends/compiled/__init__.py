"""The gradient of a network of known layers as one compiled call, without the interpreter's lock."""
