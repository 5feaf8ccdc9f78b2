"""HTTP server of the scheduler: endpoints, access, limits, the OpenAPI document."""
