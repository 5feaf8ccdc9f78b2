"""What several commands share: output, options files, folders, running services."""
