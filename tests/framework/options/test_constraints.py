"""Marathon's constraint language, as the DC/OS SDK accepts it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.options import load_spec
from tf_scheduler.errors import OptionsError
from tf_scheduler.model.placement import Constraint, Operator
from tf_scheduler.options.schema.values import ConstraintError, parse_constraints

RACK_AND_HOST = (Constraint("rack", Operator.MAX_PER, "2"), Constraint("hostname", Operator.UNIQUE))


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ('[["rack", "MAX_PER", "2"], ["hostname", "UNIQUE"]]', RACK_AND_HOST),
        ('[["rack", "max_per", 2], ["@hostname", "unique", "whatever"]]', RACK_AND_HOST),
        ("rack:MAX_PER:2,hostname:UNIQUE", RACK_AND_HOST),
        (" rack : MAX_PER : 2 , @hostname : Unique ", RACK_AND_HOST),
        # The SDK accepts a single row.
        ('["rack", "IS", "a"]', (Constraint("rack", Operator.IS, "a"),)),
        # The default of beta-tensorflow is [].
        ("[]", ()),
        ("", ()),
        ("  ", ()),
        # Backslashes before others than colon and comma stay: regular expressions need them.
        (r"url:LIKE:http\://[a-z]{1\,3}\.com\d", (Constraint("url", Operator.LIKE, r"http://[a-z]{1,3}\.com\d"),)),
    ],
)
def test_list_and_colon_forms_are_parsed(text: str, rules: tuple[Constraint, ...]) -> None:
    """Operators in any case, white space, numbers in JSON, an ignored value of UNIQUE."""
    assert rules == parse_constraints(text)


@pytest.mark.parametrize("operator", list(Operator))
def test_every_operator_is_accepted(operator) -> None:
    value = {"MAX_PER": "3", "GROUP_BY": "3"}.get(operator.value, "rack-[1-3]")

    (rule,) = parse_constraints(f"rack:{operator.value}:{value}")

    assert operator is rule.operator


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rack", '["rack"]: expected field, operator and optional value, not 1 parts'),
        ("a:IS:b:c", '["a", "IS", "b", "c"]: expected field, operator and optional value, not 4 parts'),
        ("rack:NEAR:a", "unknown operator NEAR; use one of UNIQUE, MAX_PER, CLUSTER, IS, IS_NOT, LIKE, UNLIKE"),
        ("rack:CLUSTER", '["rack", "CLUSTER"]: CLUSTER needs a value'),
        ("rack:MAX_PER", "MAX_PER needs a positive whole number, not ''"),
        ("rack:MAX_PER:0", "MAX_PER needs a positive whole number, not '0'"),
        ("rack:GROUP_BY:many", "GROUP_BY needs a positive whole number, not 'many'"),
        ("rack:LIKE:[", "LIKE needs a valid regular expression, not '['"),
        (":UNIQUE", "the field is empty; write hostname, @region, @zone or the name of an attribute"),
        ("@rack:UNIQUE", "unknown field @rack; use @hostname, @region or @zone"),
        ('[["rack", "IS", true]]', "true is neither text nor a number"),
        ('{"rack": 1}', 'must be [["field", "OPERATOR", "value"], ...]'),
        ('[["rack", ]', "is not JSON; write"),
    ],
)
def test_invalid_constraint_is_explained(text: str, complaint: str) -> None:
    """The message has the row, its error and the allowed values."""
    with pytest.raises(ConstraintError) as caught:
        parse_constraints(text)

    assert complaint in str(caught.value)


def test_all_invalid_rows_are_reported() -> None:
    """With the name of the option."""
    document = {"service": {"command": "c"}, "worker": {"placement_constraint": "rack:NEAR,host:LIKE"}}

    with pytest.raises(OptionsError) as caught:
        load_spec(document)

    assert ["worker.placement_constraint"] * 2 == [problem.path for problem in caught.value.problems]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(st.one_of(texts, st.lists(st.lists(texts, max_size=4), max_size=3).map(json.dumps)))
def test_parsing_raises_constraint_error_only(text) -> None:
    try:
        rules = parse_constraints(text)
    except ConstraintError:
        return
    assert all(rule.field and isinstance(rule.operator, Operator) for rule in rules)


names = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)
values = st.from_regex(r"[a-z0-9:,._-]{1,8}", fullmatch=True)


@given(st.lists(st.tuples(names, st.sampled_from(["IS", "IS_NOT", "CLUSTER"]), values), min_size=1, max_size=4))
def test_json_and_escaped_text_are_equivalent(rows) -> None:
    escaped = [[part.replace(":", r"\:").replace(",", r"\,") for part in row] for row in rows]

    assert parse_constraints(json.dumps(rows)) == parse_constraints(",".join(":".join(row) for row in escaped))
