"""The plans that every service has. Plans of users have other names."""

DEPLOY, UPDATE, RECOVERY, DECOMMISSION, UNINSTALL = "deploy", "update", "recovery", "decommission", "uninstall"
#: Not for plans of users.
RESERVED = (DEPLOY, UPDATE, RECOVERY, DECOMMISSION, UNINSTALL)
