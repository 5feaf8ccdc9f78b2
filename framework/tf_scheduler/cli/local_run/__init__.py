"""`local run` and `local install`: schedulers on this machine, supervised and followed."""
