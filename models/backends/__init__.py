"""Ways to compute the gradients of many models at once: threads, and batched calls for a GPU."""

BACKEND_NAMES = (
    "auto",
    "threads",
    "unfold",
    "vmap",
    "unfold-graphs",
    "vmap-graphs",
)
"""The names of backends in a config; `choice` makes them."""

COMPILED = "compiled"
"""The name of the arithmetic of compiled gradients in a manifest; their compiler follows."""
UNCOMPILED = "autograd, since compiling failed"
"""The arithmetic of a network that laggard compiles where it can."""
