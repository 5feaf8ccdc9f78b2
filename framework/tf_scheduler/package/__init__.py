"""The DC/OS package: sources, rendering, checks and the Universe repository."""
