"""Sources of secret values and delivery to executors; values are not stored."""
