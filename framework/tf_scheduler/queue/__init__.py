"""Order, shares, preemption and expected start of many jobs in one service; pure."""
