"""Questions about distributed SGD, answered by studies that anyone can redo."""
