"""History of runs: record, store, compare and reproduce."""
