"""The sections of options.json, one module each. Adding an option is adding a field here, with its description."""
