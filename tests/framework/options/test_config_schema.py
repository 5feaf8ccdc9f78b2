"""config.json accepts what the scheduler accepts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft4Validator

from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.load import merge, resolve
from tf_scheduler.options.schema.document import OPTIONS, Options
from tf_scheduler.options.schema.fields import Integer, Number
from tf_scheduler.package.render import defaults, mismatches

HOME = Path(__file__).parents[3]
SCHEMA = config_schema()
DEFAULTS = defaults(SCHEMA)
COMMAND = {"service": {"command": "x"}}
BOUNDED = [option for option in OPTIONS if isinstance(option.field, (Integer, Number))]


def document(option, value):
    """The shortest document with one option."""
    nested = value
    for name in reversed(option.path):
        nested = {name: nested}
    section = option.path[0]
    return {**COMMAND, section: {**COMMAND.get(section, {}), **nested[section]}} if len(option.path) > 1 else nested


def scheduler_accepts(options):
    """Whether all fields are valid; rules over several options are not checked."""
    return Options().validate(options) == {}


def dcos_takes(options):
    return mismatches(merge(DEFAULTS, options), SCHEMA) == []


def test_generated_files_are_current() -> None:
    """Run scripts/generate-options after a change of an option."""
    assert SCHEMA == json.loads((HOME / "package" / "config.json").read_text())


def test_config_schema_is_valid_for_universe() -> None:
    """Draft 4, in ASCII."""
    Draft4Validator.check_schema(SCHEMA)

    assert json.dumps(SCHEMA, ensure_ascii=False).isascii()


def test_config_schema_defaults_match_scheduler() -> None:
    """DC/OS installs the package without any option."""
    assert [] == mismatches(DEFAULTS, SCHEMA)
    assert resolve(COMMAND) == resolve({**DEFAULTS, "service": {**DEFAULTS["service"], **COMMAND["service"]}})


@pytest.mark.parametrize("option", BOUNDED, ids=str)
def test_bounds_match_scheduler(option) -> None:
    """Numbers on the bounds and just outside, and text."""
    field = option.field
    step = 1 if isinstance(field, Integer) else 1e-6
    for value in (
        field.minimum,
        field.maximum,
        field.minimum - step,
        field.maximum + max(step, field.maximum * 1e-6),
        "1",
    ):
        options = document(option, value)

        assert scheduler_accepts(options) == dcos_takes(options) == (value in (field.minimum, field.maximum)), value


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_null_and_unknown_names_are_rejected(option) -> None:
    """A misspelt option is never ignored."""
    misspelt = document(replace(option, path=(*option.path[:-1], f"{option.path[-1]}x")), "1")

    for wrong in (document(option, None), misspelt):
        assert not scheduler_accepts(wrong)
        assert not dcos_takes(wrong)


def test_every_option_and_section_is_described() -> None:
    """Each description is a sentence with a full stop."""
    texts = [option.metadata("description") for option in OPTIONS]
    texts += [section["description"] for section in SCHEMA["properties"].values()]

    assert [] == [text for text in texts if not text or not text.endswith(".")]
