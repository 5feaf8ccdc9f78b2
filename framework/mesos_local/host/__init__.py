"""Processes, ports, locks and errors of this machine."""
