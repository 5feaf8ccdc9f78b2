"""Decisions: pure functions over the model, without a clock, random ids, I/O or a log.

`scheduler.handle` is the entry point: (state, event, now, new_id) -> Decision.
"""
