"""Sources of secret values, and the service that delivers them to executors; values are never kept."""
