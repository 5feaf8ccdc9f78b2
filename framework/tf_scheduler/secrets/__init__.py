"""Read secret values from their sources and send them to executors; store none."""
