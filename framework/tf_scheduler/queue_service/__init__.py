"""A service of many jobs: a scheduler for each admitted job, in one process."""
