"""HTML report of one run: a single file without scripts, light and dark mode."""
