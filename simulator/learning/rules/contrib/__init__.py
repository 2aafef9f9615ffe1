"""Optimisers and compensations of one paper."""
