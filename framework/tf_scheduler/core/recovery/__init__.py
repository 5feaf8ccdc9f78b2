"""Statuses, causes of failures, relaunches, start-up timeout, reconciliation, maintenance and pod commands."""
