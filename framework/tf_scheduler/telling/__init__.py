"""The log: what each line is about, how it is written, and what must not be in it."""
