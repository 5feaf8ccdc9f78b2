"""HTML report of one run: one file without scripts, for light and dark mode and small screens."""
