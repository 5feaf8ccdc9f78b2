"""DC/OS services for a scheduler: service account login and the secret store."""
