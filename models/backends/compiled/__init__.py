"""The gradient of a chain of known layers as one compiled call, without the interpreter's lock."""
