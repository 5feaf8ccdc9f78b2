"""Match and consume, over entries that share a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import needs, ports, scalar
from tf_scheduler.core.placement.agents import consume, port_count, ports_of, shortages, total
from tf_scheduler.model.resources import Needs, Shortage


def test_shortages_names_everything_that_is_missing():
    """All lacks are reported, not only the first."""
    offered = (scalar("cpus", 1), scalar("mem", 100))

    found = shortages(offered, needs(cpus=2, mem=200, gpus=1, ports=1))

    assert [
        Shortage("cpus", 2000, 1000),
        Shortage("mem", 200_000, 100_000),
        Shortage("gpus", 1000, 0),
        Shortage("ports", 1, 0),
    ] == list(found)
    assert str(found[2]) == "needs gpus 1, has 0"


def test_entries_of_one_name_add_up_and_keep_their_shape():
    """A name is not unique in an offer: both entries are used, each sent back in the shape that it came in."""
    reserved, free = scalar("cpus", 1, '{"reservations": [{"role": "a"}]}'), scalar("cpus", 2)

    taken, rest = consume((reserved, free), Needs(cpus=1500))

    assert (reserved, scalar("cpus", 0.5)) == taken
    assert (scalar("cpus", 1.5),) == rest


def test_ports_are_taken_from_the_low_end_over_several_ranges():
    """Three ports out of a range of two and a range of many."""
    taken, rest = consume((ports((31000, 31001), (31005, 31009)),), Needs(ports=3))

    assert ports_of(taken) == (31000, 31001, 31005)
    assert (ports((31006, 31009)),) == rest


def test_what_is_not_asked_for_is_left_alone():
    """Sets and unknown resources stay in the rest."""
    entries = (scalar("bandwidth", 10), ports((1, 2)))

    assert ((), entries) == consume(entries, Needs())


def test_consume_refuses_to_take_what_is_not_there():
    """A caller that did not look at shortages is wrong: nothing is taken half."""
    with pytest.raises(ValueError, match="cpus 2"):
        consume((scalar("cpus", 1),), Needs(cpus=2000))


amounts = st.lists(st.integers(0, 10**7), max_size=4)
spans = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=4)


@given(amounts, spans, st.integers(0, 2 * 10**7), st.integers(0, 20))
def test_taken_and_rest_are_exactly_what_was_offered(cpus, widths, wanted, count):
    """Nothing is lost, nothing is made, and what is taken is exactly what was asked for."""
    begin, ranges = 1000, []
    for gap, width in widths:
        ranges.append((begin + gap, begin + gap + width - 1))
        begin += gap + width
    offered = (*(scalar("cpus", amount / 1000) for amount in cpus), *([ports(*ranges)] if ranges else []))
    asked = Needs(cpus=wanted, ports=count)
    if shortages(offered, asked):
        with pytest.raises(ValueError):
            consume(offered, asked)
        return

    taken, rest = consume(offered, asked)

    assert (wanted, count) == (total(taken, "cpus"), port_count(taken))
    assert total(offered, "cpus") == total(taken, "cpus") + total(rest, "cpus")
    assert sorted(ports_of(offered)) == sorted(ports_of(taken) + ports_of(rest))


def test_needs_add_up():
    """A task and its executor share an agent."""
    assert Needs(1, 2, 3, 4, 5) == Needs(1, 1, 1, 1, 1) + Needs(0, 1, 2, 3, 4)
