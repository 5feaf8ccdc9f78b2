"""Cosmos' mustache, rule by rule."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.package.mustache import TemplateError, format_number, is_rendered, render

#: mustache.java cannot write these into JSON either: an object is `{a=b}`.
FLAT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=6
)


@pytest.mark.parametrize("tag", ["{{x}}", "{{{x}}}", "{{&x}}", "{{ x }}"])
def test_no_tag_escapes_html(tag) -> None:
    assert r"<a href=\"b\">\n" == render(tag, {"x": '<a href="b">\n'})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (0, "0"),
        (1.0, "1"),
        (0.5, "0.5"),
        (0.0001, "1.0E-4"),
        (12345678.5, "1.23456785E7"),
        (-2.5e-5, "-2.5E-5"),
        ([], "[]"),
        ([1, 2.0], "[1, 2]"),
        (["a", 'b"c'], '["a", "b\\"c"]'),
        ([["hostname", "UNIQUE"]], '[["hostname", "UNIQUE"]]'),
        ([None, True], "[null, true]"),
        ({"a": "b", "c": 1}, "{a=b, c=1}"),
        ("é", "é"),
    ],
)
def test_values_have_java_format(value, text) -> None:
    """Whole numbers without a fraction, lists as JSON, objects not."""
    assert text == render("{{x}}", {"x": value})


def test_missing_name_is_empty() -> None:
    assert '""' == render('"{{a.b}}{{c}}"', {"a": {}})


@pytest.mark.parametrize(
    ("value", "is_shown"),
    [(None, 0), (False, 0), ("", 0), ([], 0), (0, 1), ({}, 1), (True, 1), ("x", 1), ([1], 1), (0.0, 1)],
)
def test_zero_and_empty_object_are_true(value, is_shown) -> None:
    """Unlike in Python's libraries, zero is true in `{{#gpu_worker.count}}`."""
    assert ("yes" * is_shown + "no" * (1 - is_shown)) == render("{{#x}}yes{{/x}}{{^x}}no{{/x}}", {"x": value})


def test_section_iterates_list_and_scopes_object() -> None:
    """`.` is the item; names are looked up from the inside outward."""
    context = {"name": "out", "items": ["a", 2], "below": {"name": "in"}}

    assert '"a",2,in,out' == render("{{#items}}{{.}},{{/items}}{{#below}}{{name}}{{/below}},{{name}}", context)


def test_texts_of_listed_objects_have_no_quotes() -> None:
    """So a list of objects can be written into one text, a list of texts cannot."""
    context = {"env": [{"name": "A", "value": '"1"'}, {"name": "B", "value": ""}]}

    assert r"A=\"1\";B=;" == render("{{#env}}{{name}}={{value}};{{/env}}", context)


def test_dotted_name_stays_in_the_scope_of_its_first_part() -> None:
    """The outer `a.b` is not used if an inner `a` lacks b."""
    context = {"a": {"b": "outer"}, "s": {"a": {}}}

    assert "|outer" == render("{{#s}}{{a.b}}{{/s}}|{{a.b}}", context)


def test_as_json_inserts_a_top_level_option() -> None:
    context = {"labels": '{"a": "b"}', "count": 1, "service": {"x": "1"}}
    template = "{{#asJson}}labels{{/asJson}} {{#asJson}}count{{/asJson}} {{#asJson}}service.x{{/asJson}}"

    assert '{"a": "b"} null null' == render(template, context)


def test_comments_are_removed() -> None:
    assert "ab" == render("a{{! one\ntwo }}b", {})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{#a}}", "line 1: {{#a}} has no end tag"),
        ("\n{{/a}}", "line 2: {{/a}} has no start tag"),
        ("{{#a}}\n{{^b}}{{/a}}{{/b}}", "line 2: {{/a}} comes before the end of {{^b}}"),
        ("{{>partial}}", "is not supported"),
        ("{{=<% %>=}}", "is not supported"),
        ("{{}}", "has no name"),
    ],
)
def test_template_error_names_the_line(template, message) -> None:
    with pytest.raises(TemplateError) as caught:
        render(template, {})

    assert message in str(caught.value)


@given(st.text())
def test_any_text_is_kept_inside_quotes(text) -> None:
    """Property: Marathon reads what the user wrote."""
    assert {"x": text} == json.loads(render('{"x": "{{x}}"}', {"x": text}))


@given(st.lists(FLAT))
def test_lists_without_objects_are_json(value) -> None:
    """Property: an array option may stand unquoted in the template."""
    assert {"x": value} == json.loads(render('{"x": {{x}}}', {"x": value}))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_their_value(value) -> None:
    """Property: no digit is lost on the way through the environment."""
    assert value == float(format_number(value))


@given(FLAT)
def test_section_and_its_inverse_exclude_each_other(value) -> None:
    """Property: exactly one of them is rendered."""
    assert is_rendered(value) is (render("{{^x}}no{{/x}}", {"x": value}) == "")
