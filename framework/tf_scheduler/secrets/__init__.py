"""Where secret values come from, and the desk that hands them to executors. A value lives for one answer only."""
