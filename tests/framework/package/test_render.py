"""The Marathon app of a package, rendered by the product and as by Cosmos."""

from __future__ import annotations

import pytest

from kit import cosmos
from kit.package_labels import decode_definition, decode_options
from tf_scheduler.errors import OptionsError, PackageError
from tf_scheduler.options.load import merge
from tf_scheduler.package.render import defaults, render_app
from tf_scheduler.package.sources import PackageSources, repository_entry

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


def a_package(template=TEMPLATE, config=CONFIG) -> PackageSources:
    package = {"packagingVersion": "4.0", "name": "test", "version": "1.2.3"}
    return PackageSources(package, config, {"assets": {"uris": {"blob": "https://example.com/blob"}}}, template)


def refused_by_cosmos(options):
    with pytest.raises(cosmos.OptionsMismatchError) as caught:
        cosmos.render_app(repository_entry(a_package()), options)
    return caught.value


def test_render_order_of_precedence() -> None:
    """The order of Cosmos' own test."""
    package = a_package('{"id": "{{service.name}}", "uri": "{{resource.assets.uris.blob}}"}')

    app = render_app(package, {"resource": {"assets": {"uris": {"blob": "mine"}}}}, "https://example.com/repo", "a/b")

    assert ("/a/b", "https://example.com/blob") == (app["id"], app["uri"])


def test_labels_hold_package_and_options() -> None:
    """The template's own labels remain."""
    options = {"service": {"count": 3}}

    labels = render_app(a_package(), options, "https://example.com/repo")["labels"]

    assert ("1", "test", "1.2.3") == (labels["OWN"], labels["DCOS_PACKAGE_NAME"], labels["DCOS_PACKAGE_VERSION"])
    assert "https://example.com/repo" == labels["DCOS_PACKAGE_SOURCE"]
    assert options == decode_options(labels["DCOS_PACKAGE_OPTIONS"])
    assert repository_entry(a_package()) == decode_definition(labels["DCOS_PACKAGE_DEFINITION"])
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
        ("url", None, "type", {"found": "null", "expected": ["string"]}),
        ("count", "three", "type", {"found": "string", "expected": ["integer"]}),
        ("cpus", "a", "type", {"found": "string", "expected": ["integer", "number"]}),
        ("count", 0, "minimum", {"minimum": 1, "found": 0}),
        ("count", 10, "maximum", {"maximum": 9, "found": 10}),
        ("level", "LOUD", "enum", {"value": "LOUD", "enum": ["INFO", "DEBUG"]}),
        ("name", "Test", "pattern", {"regex": "^[a-z]+$", "string": "Test"}),
    ],
)
def test_wrong_option_is_refused(option, value, keyword, facts) -> None:
    """By Cosmos with the facts that the dcos command prints."""
    options = {"service": {option: value}}
    with pytest.raises(OptionsError) as caught:
        render_app(a_package(), options)
    (mismatch,) = refused_by_cosmos(options).mismatches

    assert [f"service.{option}"] == [problem.path for problem in caught.value.problems]
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
    } == refused_by_cosmos({"service": {"cpus": "x"}}).document()


def test_unknown_and_missing_options_are_named() -> None:
    unknown, nothing = {"service": {"nam": 1, "cont": 2}}, {"a": {"default": {}, "required": ["c", "b"]}}

    with pytest.raises(OptionsError, match=r"^service: .*\('cont', 'nam' were unexpected\)$"):
        render_app(a_package(), unknown)
    with pytest.raises(OptionsError, match=r"^a: 'c' is a required property\na: 'b' is a required property$"):
        render_app(a_package(config={"properties": nothing}))
    assert [["cont", "nam"]] == [mismatch["unwanted"] for mismatch in refused_by_cosmos(unknown).mismatches]


def test_whole_float_is_an_integer() -> None:
    assert 2 == render_app(a_package(), {"service": {"count": 2.0}})["instances"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ('{"id": "broken"', "the app:1:16: } is missing"),
        ('["no object"]', "the app must hold a JSON object"),
        ("{{#a}}", "{{#a}} has no end tag"),
    ],
)
def test_template_without_an_app_is_refused(template, message) -> None:
    with pytest.raises(PackageError) as caught:
        render_app(a_package(template))

    assert message in str(caught.value)
