"""Ways to compute the gradients of many models at once: threads, and batched calls for a GPU."""

BACKEND_NAMES = (
    "auto",
    "threads",
    "unfold",
    "vmap",
    "unfold-graphs",
    "vmap-graphs",
)
"""What a config may name; `choice` makes them."""
