"""Clients take turns, whoever asks more often."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.api.turns import Turns

PATHS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=40)


def taken(turns):
    found = []
    while turns:
        found.append(turns.take())
    return found


def in_turns(paths):
    turns = Turns()
    for number, path in enumerate(paths):
        turns.put(path, (path, number))
    return taken(turns)


@given(PATHS)
def test_each_has_a_turn_before_another_has_its_next(paths):
    """At each level, as long as it has somebody waiting."""
    found = in_turns(paths)

    names = [path[0] for path, _ in found]
    for name in set(names):
        places = [place for place, other in enumerate(names) if other == name]
        for before, after in pairwise(places):
            between = names[before + 1 : after]
            still = set(names[after:]) - {name}
            assert len(between) == len(set(between))
            assert still <= set(between)


@given(PATHS)
def test_everybody_has_one_and_a_line_is_in_order(paths):
    found = in_turns(paths)

    assert sorted(number for _, number in found) == list(range(len(paths)))
    for path in set(paths):
        numbers = [number for other, number in found if other == path]
        assert sorted(numbers) == numbers


def test_those_who_share_an_address_share_its_turns():
    """However many names one makes up."""
    paths = [("greedy", str(number)) for number in range(9)] + [("alice", ""), ("alice", "")]

    assert [1, 3] == [place for place, (path, _) in enumerate(in_turns(paths)) if path[0] == "alice"]


def test_nobody_waits():
    with pytest.raises(LookupError):
        Turns().take()
