"""Options and a package to a Marathon app, as Cosmos does it."""

import base64
import json

import pytest

from kit.package_labels import decode_definition, decode_options
from tf_scheduler.errors import CosmosError, OptionsMismatchError
from tf_scheduler.package.options_check import defaults, merge
from tf_scheduler.package.render import render_app

CONFIG = {
    "type": "object",
    "properties": {
        "service": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string", "default": "test", "pattern": "^[a-z]+$"},
                "count": {"type": "integer", "default": 2, "minimum": 1, "maximum": 9},
                "cpus": {"type": "number", "default": 1.0},
                "level": {"type": "string", "default": "INFO", "enum": ["INFO", "DEBUG"]},
                "url": {"type": "string"},
            },
            "required": ["name"],
        }
    },
}
TEMPLATE = (
    '{"id": "{{service.name}}", "instances": {{service.count}}, "labels": {"OWN": "1", "DCOS_PACKAGE_NAME": "x"}}'
)


def a_package(template=TEMPLATE, **extra):
    encoded = base64.b64encode(template.encode()).decode()
    return {
        "packagingVersion": "4.0",
        "name": "test",
        "version": "1.2.3",
        "config": CONFIG,
        "marathon": {"v2AppMustacheTemplate": encoded},
        "resource": {"assets": {"uris": {"blob": "https://example.com/blob"}}},
        **extra,
    }


def refused(options, package=None):
    with pytest.raises(CosmosError) as caught:
        render_app(package or a_package(), options)
    return caught.value


def test_defaults_options_resource_labels_and_id_win_in_this_order():
    """The order of Cosmos' own test."""
    package = a_package('{"id": "{{service.name}}", "uri": "{{resource.assets.uris.blob}}"}')

    app = render_app(package, {"resource": {"assets": {"uris": {"blob": "mine"}}}}, "https://example.com/repo", "a/b")

    assert ("/a/b", "https://example.com/blob") == (app["id"], app["uri"])


def test_labels_tell_package_and_options():
    """The template's labels stay, those of the package win, and both can be read back."""
    options = {"service": {"count": 3, "url": None}}
    with pytest.raises(OptionsMismatchError):
        render_app(a_package(), options)
    options = {"service": {"count": 3}}

    labels = render_app(a_package(), options, "https://example.com/repo")["labels"]

    assert ("1", "test", "1.2.3") == (labels["OWN"], labels["DCOS_PACKAGE_NAME"], labels["DCOS_PACKAGE_VERSION"])
    assert "https://example.com/repo" == labels["DCOS_PACKAGE_SOURCE"]
    assert options == decode_options(labels["DCOS_PACKAGE_OPTIONS"])
    assert a_package() == decode_definition(labels["DCOS_PACKAGE_DEFINITION"])
    assert labels == render_app(a_package(), options, "https://example.com/repo")["labels"]


def test_defaults_of_an_object_win_over_those_of_its_properties():
    """And what has no default is left out."""
    inner = {"a": {"default": 1}, "b": {}, "c": {"properties": {"d": {}}}}

    assert {"x": {"a": 1}, "y": {"z": 2}} == defaults(
        {"properties": {"x": {"properties": inner}, "y": {"default": {"z": 2}, "properties": inner}}}
    )


def test_objects_merge_and_the_rest_is_replaced():
    """Lists and null too."""
    assert {"a": {"b": 1, "c": [2]}, "d": None} == merge(
        {"a": {"b": 1, "c": [1]}, "d": {"e": 1}}, {"a": {"c": [2]}, "d": None}
    )


@pytest.mark.parametrize(
    ("option", "value", "keyword", "facts"),
    [
        ("count", "three", "type", {"found": "string", "expected": ["integer"]}),
        ("cpus", "a", "type", {"found": "string", "expected": ["integer", "number"]}),
        ("count", 0, "minimum", {"minimum": 1, "found": 0}),
        ("count", 10, "maximum", {"maximum": 9, "found": 10}),
        ("level", "LOUD", "enum", {"value": "LOUD", "enum": ["INFO", "DEBUG"]}),
        ("name", "Test", "pattern", {"regex": "^[a-z]+$", "string": "Test"}),
    ],
)
def test_a_mismatch_has_the_facts_that_the_dcos_command_prints(option, value, keyword, facts):
    """With pointers to the option and to its schema."""
    (found,) = refused({"service": {option: value}}).mismatches

    assert facts == {name: found[name] for name in facts}
    assert (keyword, f"/service/{option}") == (found["keyword"], found["instance"]["pointer"])
    assert {"loadingURI": "#", "pointer": f"/properties/service/properties/{option}"} == found["schema"]


def test_the_answer_to_a_wrong_type_is_cosmos_to_the_letter():
    """As recorded from DC/OS Enterprise 1.10."""
    assert {
        "type": "JsonSchemaMismatch",
        "message": "Options JSON failed validation",
        "data": {
            "errors": [
                {
                    "level": "error",
                    "schema": {"loadingURI": "#", "pointer": "/properties/service/properties/cpus"},
                    "instance": {"pointer": "/service/cpus"},
                    "domain": "validation",
                    "keyword": "type",
                    "message": "instance type (string) does not match any allowed primitive type "
                    '(allowed: ["integer","number"])',
                    "found": "string",
                    "expected": ["integer", "number"],
                }
            ]
        },
    } == refused({"service": {"cpus": "x"}}).document()


def test_unknown_and_missing_options_are_named():
    """All of an object in one entry each; the text for people names the path."""
    error = refused({"service": {"nam": 1, "cont": 2}})
    nothing = refused({}, a_package(config={"properties": {"a": {"default": {}, "required": ["c", "b"]}}}))

    assert [["cont", "nam"]] == [found["unwanted"] for found in error.mismatches]
    assert [["b", "c"]] == [found["missing"] for found in nothing.mismatches]
    assert "service: object instance has properties which are not allowed" in str(error)


def test_a_whole_float_is_an_integer():
    """To Cosmos 2.0 is 2."""
    assert 2 == render_app(a_package(), {"service": {"count": 2.0}})["instances"]


@pytest.mark.parametrize(
    ("package", "kind"),
    [
        (a_package('{"id": "broken"'), "JsonParsingError"),
        (a_package('["no object"]'), "MarathonTemplateMustBeJsonObject"),
        (a_package('{"labels": {"idx": 0}}'), "JsonDecodingError"),
        ({"name": "test", "version": "1", "config": CONFIG}, "ServiceMarathonTemplateNotFound"),
        ({key: value for key, value in a_package().items() if key != "config"}, "OptionsNotAllowed"),
    ],
)
def test_what_cannot_be_rendered_is_an_error_of_cosmos(package, kind):
    """Each of Cosmos' own kinds; its document can be sent."""
    error = refused({"service": {}}, package)

    assert kind == error.kind
    assert {"type", "message"} <= json.loads(json.dumps(error.document())).keys()
