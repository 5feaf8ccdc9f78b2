"""Run, supervise and follow local schedulers for `local run` and `local install`."""
