"""Patterns that are compiled when they are used, not when they are made."""

import re

import marshmallow
import pytest

from tf_scheduler.options.patterns import compiled_later

LONG = "|".join(f"word{n}" for n in range(100))


def test_a_long_pattern_is_found_wrong_only_when_it_is_used():
    """And a right one does all that it would have done; short ones are as ever."""
    with compiled_later():
        wrong, right, short = (re.compile(text) for text in (f"({LONG}", LONG, "a+"))

    assert "word7" == right.fullmatch("word7")[0]
    assert isinstance(short, re.Pattern)
    with pytest.raises(re.error):
        wrong.search("word7")


def test_afterwards_patterns_are_compiled_at_once():
    """Whatever happens within."""
    with pytest.raises(ZeroDivisionError), compiled_later():
        1 / 0  # noqa: B018

    assert isinstance(re.compile(LONG), re.Pattern)


def test_the_library_checks_addresses_as_it_always_did():
    """Nobody here asks it to, but it could be asked."""
    email = marshmallow.validate.Email()

    assert "a@example.com" == email("a@example.com")
    with pytest.raises(marshmallow.ValidationError):
        email("nowhere")
