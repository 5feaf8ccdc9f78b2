"""HTTP API of the scheduler, with the paths, keys and codes of the DC/OS SDK."""
