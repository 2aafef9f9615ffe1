"""`laggard league`: which method should train on this cluster?

`setting` reads the cluster and the task, `entrants` finds the methods and their strongest forms,
`trials` chooses their rates within one budget, `scores` ranks them on other seeds, and `play` does
all of it; `words` and `page` present the outcome.
"""
