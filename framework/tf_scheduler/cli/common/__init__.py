"""Shared by several commands: output, options files, folders, groups of commands."""
