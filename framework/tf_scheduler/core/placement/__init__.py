"""Placement of gangs on offers: pure, deterministic, with reasons for refusals.

Modules: `agents` (offers and demands), `constraints` (rules of one demand), `search` (agent of each task), `matching`
(resources of each task, reasons).
"""
