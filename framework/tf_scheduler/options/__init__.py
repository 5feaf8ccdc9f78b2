"""Options of a service: schema, rules, loading, updates and generated documents."""
