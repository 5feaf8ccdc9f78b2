"""The commands that ask a service: those of `dcos_command`, found on a laptop too, and drawn with colours."""
