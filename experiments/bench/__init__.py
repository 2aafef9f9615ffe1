"""How fast laggard is: ratios, each measured in alternation with what it is held against."""

MEASURES = ("gradients", "ensemble", "clock", "network", "recording", "sweep", "shares")
"""The measures, a file each, in the order in which they are taken."""
