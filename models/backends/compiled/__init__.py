"""The gradient of a network of known layers in one compiled call without the interpreter's lock."""
