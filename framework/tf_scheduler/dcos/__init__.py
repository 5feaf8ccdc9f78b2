"""DC/OS services that a scheduler uses: the login of a service account, and the secret store."""
