"""Rules over several options, each a function that yields problems."""
