"""Metrics of the scheduler for Prometheus, StatsD and the DC/OS SDK's tools."""
