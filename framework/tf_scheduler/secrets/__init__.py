"""Read secret values from their sources; deliver them to executors, unstored."""
