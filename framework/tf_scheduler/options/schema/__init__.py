"""Fields, types, defaults and descriptions of options, as marshmallow schemas."""
