"""Options of a service: schema, rules, loading, updates, generated config.json."""
