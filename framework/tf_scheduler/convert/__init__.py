"""Job files of other systems -> options.json, with everything that could not be taken along told by name."""
