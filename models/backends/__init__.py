"""Ways to take the gradients of many models at once, with the same result: threads, and batched
calls for a GPU.
"""

BACKEND_NAMES = (
    "auto",
    "threads",
    "unfold",
    "vmap",
    "unfold-graphs",
    "vmap-graphs",
    "unfold-compile",
    "vmap-compile",
    "unfold-compile-graphs",
    "vmap-compile-graphs",
)
"""What a config may name; `choice` makes them."""
