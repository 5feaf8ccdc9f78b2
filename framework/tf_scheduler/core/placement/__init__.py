"""Placement of gangs on offers: pure, deterministic, and with a reason for every refusal.

Modules: `agents` (offers and demands), `constraints` (rules of one demand), `search` (agent of each task), `matching`
(resources of each task, reasons).
"""
