"""What a run records: counters, a row per gradient and message, metrics, the outcome."""
