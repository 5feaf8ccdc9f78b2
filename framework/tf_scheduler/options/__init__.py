"""options.json -> ServiceSpec, or every reason why not. The loader takes bytes: files are for others."""
