"""Order, shares, preemption and expected start of many jobs in a service; pure."""
