"""Code shared by commands: output, options files, folders, groups of commands."""
