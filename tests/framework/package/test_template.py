"""The package's template, rendered by the product and by Cosmos' mustache."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import mustache
from tf_scheduler.errors import PackageError
from tf_scheduler.package.template import parse, render


def render_product(template: str, context: Mapping[str, Any]) -> str:
    return render(parse(template), (context,))


RENDERERS: list[Callable[[str, Mapping[str, Any]], str]] = [render_product, mustache.render]
#: mustache.java cannot write these into JSON either: an object is `{a=b}`.
FLAT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=6
)
EXCLUSIVE = "{{#x}}yes{{/x}}{{^x}}no{{/x}}"


@pytest.mark.parametrize("rendered", RENDERERS)
@pytest.mark.parametrize(
    ("template", "context", "text"),
    [
        ("{{x}}", {"x": '<a href="b">\n'}, r"<a href=\"b\">\n"),
        ("{{ x }}", {"x": '<a href="b">\n'}, r"<a href=\"b\">\n"),
        ("{{x}}", {"x": "é"}, "é"),
        ("{{x}}", {"x": None}, ""),
        ("{{x}}", {"x": True}, "true"),
        ("{{x}}", {"x": 0}, "0"),
        ("{{x}}", {"x": 1.0}, "1"),
        ("{{x}}", {"x": 0.5}, "0.5"),
        ("{{x}}", {"x": []}, "[]"),
        ("{{x}}", {"x": ["a", 'b"c']}, '["a", "b\\"c"]'),
        ("{{x}}", {"x": [["hostname", "UNIQUE"]]}, '[["hostname", "UNIQUE"]]'),
        ("{{x}}", {"x": [None, True]}, "[null, true]"),
        ('"{{a.b}}{{c}}"', {"a": {}}, '""'),
        ("a{{! one\ntwo }}b", {}, "ab"),
        # Unlike in Python's libraries, 0 and {} are true.
        (EXCLUSIVE, {"x": None}, "no"),
        (EXCLUSIVE, {"x": False}, "no"),
        (EXCLUSIVE, {"x": ""}, "no"),
        (EXCLUSIVE, {"x": []}, "no"),
        (EXCLUSIVE, {"x": 0}, "yes"),
        (EXCLUSIVE, {"x": 0.0}, "yes"),
        (EXCLUSIVE, {"x": {}}, "yes"),
        (EXCLUSIVE, {"x": True}, "yes"),
        (EXCLUSIVE, {"x": "x"}, "yes"),
        (EXCLUSIVE, {"x": [1]}, "yes"),
        # `.` is the item; names are looked up from the inside outward.
        (
            "{{#items}}{{.}},{{/items}}{{#below}}{{name}}{{/below}},{{name}}",
            {"name": "out", "items": [1, 2], "below": {"name": "in"}},
            "1,2,in,out",
        ),
        # So a list of objects can be written into one text.
        (
            "{{#env}}{{name}}={{value}};{{/env}}",
            {"env": [{"name": "A", "value": '"1"'}, {"name": "B", "value": ""}]},
            r"A=\"1\";B=;",
        ),
        # The outer `a.b` is not used if an inner `a` lacks b.
        ("{{#s}}{{a.b}}{{/s}}|{{a.b}}", {"a": {"b": "outer"}, "s": {"a": {}}}, "|outer"),
    ],
)
def test_rendered_text(rendered, template, context, text) -> None:
    assert text == rendered(template, context)


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{{x}}", 0.0001, "1.0E-4"),
        ("{{x}}", 12345678.5, "1.23456785E7"),
        ("{{x}}", -2.5e-5, "-2.5E-5"),
        ("{{x}}", [1, 2.0], "[1, 2]"),
        ("{{x}}", {"a": "b", "c": 1}, "{a=b, c=1}"),
        # So a list of texts cannot be written into one text.
        ("{{#x}}{{.}},{{/x}}", ["a", 2], '"a",2,'),
    ],
)
def test_cosmos_has_java_format(template, value, text) -> None:
    """The scheduler reads these numbers, too; the template shows no object."""
    assert text == mustache.render(template, {"x": value})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{#a}}", "{{#a}} has no end tag"),
        ("\n{{/a}}", "{{/a}} has no start tag"),
        ("{{#a}}\n{{^b}}{{/a}}{{/b}}", "{{/a}} has no start tag"),
        ("{{>partial}}", "{{>partial}} is not supported"),
        ("{{{x}}}", "{{{x}} is not supported"),
        ("{{=<% %>=}}", "is not supported"),
        ("{{}}", "{{}} is not supported"),
    ],
)
def test_other_tags_are_refused(template, message) -> None:
    with pytest.raises(PackageError) as caught:
        parse(template)

    assert message in str(caught.value)


@pytest.mark.parametrize("rendered", RENDERERS)
@given(text=st.text())
def test_any_text_is_kept_inside_quotes(rendered, text) -> None:
    """Property: Marathon reads what the user wrote."""
    assert {"x": text} == json.loads(rendered('{"x": "{{x}}"}', {"x": text}))


@pytest.mark.parametrize("rendered", RENDERERS)
@given(value=st.lists(FLAT))
def test_lists_without_objects_are_json(rendered, value) -> None:
    """Property: an array option may stand unquoted in the template."""
    assert {"x": value} == json.loads(rendered('{"x": {{x}}}', {"x": value}))


@pytest.mark.parametrize("rendered", RENDERERS)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_their_value(rendered, value) -> None:
    """Property: no digit is lost on the way through the environment."""
    assert value == float(rendered("{{x}}", {"x": value}))


@pytest.mark.parametrize("rendered", RENDERERS)
@given(value=FLAT)
def test_section_and_its_inverse_exclude_each_other(rendered, value) -> None:
    """Property: exactly one of them is rendered."""
    assert (rendered("{{#x}}yes{{/x}}", {"x": value}) == "") is (rendered("{{^x}}no{{/x}}", {"x": value}) == "no")
