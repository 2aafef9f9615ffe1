"""Configs: their keys, grids, plugins, and the runs that they stand for."""
