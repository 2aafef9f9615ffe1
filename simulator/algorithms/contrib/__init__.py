"""Methods of a single paper, one per file.

Each passes `check_algorithm` and the identities that its definition promises, and names its source.
None has a notebook, a figure or a claim that the simulator depends on.
"""
