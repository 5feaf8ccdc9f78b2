"""The DC/OS package: its sources, rendered as Cosmos renders them, checked, and built into a Universe repository."""
