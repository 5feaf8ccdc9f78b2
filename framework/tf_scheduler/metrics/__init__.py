"""What the scheduler counts and measures, for Prometheus, StatsD and the DC/OS SDK's tools."""
