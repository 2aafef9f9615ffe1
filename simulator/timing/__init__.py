"""Virtual time: clock, events, slowdowns, random streams and distributions. Nothing here
imports torch.
"""
