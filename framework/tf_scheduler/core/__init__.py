"""Scheduler decisions: pure functions over the model, without clock, I/O or log.

`scheduler.handle` is the entry point: (state, event, now, new_id) -> Decision.
"""
