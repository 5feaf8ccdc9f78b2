"""Construct the parts of the scheduler process from options, and connect them."""
