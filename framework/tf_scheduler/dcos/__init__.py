"""DC/OS as a scheduler meets it: the login of a service account, and the secret store."""
