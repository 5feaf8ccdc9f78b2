"""Faults: which ones in which order, what they cost by the evidence, and the page that tells it. Pure."""
