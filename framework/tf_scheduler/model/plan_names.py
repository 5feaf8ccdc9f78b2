"""The plans that every service has. Plans of users have other names."""

DEPLOY, UPDATE, RECOVERY, DECOMMISSION, UNINSTALL = "deploy", "update", "recovery", "decommission", "uninstall"
#: The last phase of uninstall, and its step.
DEREGISTER = "deregister-service"
#: Not for plans of users.
RESERVED = (DEPLOY, UPDATE, RECOVERY, DECOMMISSION, UNINSTALL)
