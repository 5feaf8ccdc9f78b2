"""The Marathon app of a package, as Cosmos renders it."""

import base64
import json

import pytest

from kit.package_labels import decode_definition, decode_options
from tf_scheduler.errors import CosmosError, OptionsMismatchError
from tf_scheduler.options.load import merge
from tf_scheduler.package.options_check import defaults
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


def test_render_order_of_precedence() -> None:
    """The order of Cosmos' own test."""
    package = a_package('{"id": "{{service.name}}", "uri": "{{resource.assets.uris.blob}}"}')

    app = render_app(package, {"resource": {"assets": {"uris": {"blob": "mine"}}}}, "https://example.com/repo", "a/b")

    assert ("/a/b", "https://example.com/blob") == (app["id"], app["uri"])


def test_labels_hold_package_and_options() -> None:
    """The template's own labels remain."""
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


def test_default_of_object_wins_over_its_properties() -> None:
    inner = {"a": {"default": 1}, "b": {}, "c": {"properties": {"d": {}}}}

    assert {"x": {"a": 1}, "y": {"z": 2}} == defaults(
        {"properties": {"x": {"properties": inner}, "y": {"default": {"z": 2}, "properties": inner}}}
    )


def test_objects_merge_and_others_are_replaced() -> None:
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
def test_mismatch_has_facts_for_the_dcos_command(option, value, keyword, facts) -> None:
    (mismatch,) = refused({"service": {option: value}}).mismatches

    assert facts == {name: mismatch[name] for name in facts}
    assert (keyword, f"/service/{option}") == (mismatch["keyword"], mismatch["instance"]["pointer"])
    assert {"loadingURI": "#", "pointer": f"/properties/service/properties/{option}"} == mismatch["schema"]


def test_type_mismatch_is_identical_to_cosmos() -> None:
    """Recorded from DC/OS Enterprise 1.10."""
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


def test_unknown_and_missing_options_are_named() -> None:
    error = refused({"service": {"nam": 1, "cont": 2}})
    nothing = refused({}, a_package(config={"properties": {"a": {"default": {}, "required": ["c", "b"]}}}))

    assert [["cont", "nam"]] == [mismatch["unwanted"] for mismatch in error.mismatches]
    assert [["b", "c"]] == [mismatch["missing"] for mismatch in nothing.mismatches]
    assert "service: object instance has properties which are not allowed" in str(error)


def test_whole_float_is_an_integer() -> None:
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
def test_render_failure_has_cosmos_type(package, kind) -> None:
    error = refused({"service": {}}, package)

    assert kind == error.kind
    assert {"type", "message"} <= json.loads(json.dumps(error.document())).keys()
