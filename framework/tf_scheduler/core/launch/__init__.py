"""Launch of tasks: ClusterSpec, environment, payload and secrets."""
