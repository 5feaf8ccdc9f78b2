"""Verbs: pure functions over the model. No clock, no ids, no I/O, no log.

`scheduler.handle` is the one door: (state, event, now, new_id) -> Decision.
"""
