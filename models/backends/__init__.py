"""Ways to take the gradients of many models at once, with the same result: threads, and batched calls for a GPU."""
