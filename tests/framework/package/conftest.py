"""The schemas of the real tools: tests/schemas/README.md."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"


def schema(name):
    return json.loads((SCHEMAS / name).read_text())


def validator(name):
    definitions = schema("universe/vX-repo-definitions.json")
    registry = Registry().with_resource(
        "vX-repo-definitions.json", Resource.from_contents(definitions, default_specification=DRAFT4)
    )
    return Draft4Validator(schema(name), registry=registry)


@pytest.fixture(scope="session")
def fits():
    """Check a document against a schema of tests/schemas, and list the problems."""
    validators: dict[str, Any] = {}

    def check(document, name):
        schema = validators.setdefault(name, validator(name))
        return [f"{error.json_path}: {error.message}" for error in schema.iter_errors(document)]

    return check
