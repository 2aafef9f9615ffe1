"""What messages cross: cards, links, topologies, and how transfers share them. Nothing here sees a
tensor.
"""
