"""State stores: durable key-value state of a service in SQLite or ZooKeeper."""
