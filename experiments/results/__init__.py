"""Results: folders written and read, tables over runs and members, statistics over seeds."""
