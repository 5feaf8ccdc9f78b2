"""Options of the JSON file: fields, types, defaults and descriptions, as marshmallow schemas."""
