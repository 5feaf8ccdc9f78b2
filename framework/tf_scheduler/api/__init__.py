"""The scheduler's HTTP API: routes, and pure views of a state snapshot. Paths, keys and codes are the DC/OS SDK's."""
