"""State that survives the scheduler: one contract, several stores."""
