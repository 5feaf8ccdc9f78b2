"""Match and consume, over entries that share a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import needs, ports, scalar
from tf_scheduler.core.placement.agents import amounts_in, consume, ports_of, shortages
from tf_scheduler.model.resources import Needs, Shortage


def test_shortages_lists_everything_that_is_missing() -> None:
    """All shortages are reported, not only the first."""
    offered = (scalar("cpus", 1), scalar("mem", 100))

    missing = shortages(offered, needs(cpus=2, mem=200, gpus=1, ports=1))

    assert [
        Shortage("cpus", 2000, 1000),
        Shortage("mem", 200_000, 100_000),
        Shortage("gpus", 1000, 0),
        Shortage("ports", 1, 0),
    ] == list(missing)
    assert str(missing[2]) == "needs gpus 1, has 0"


def test_entries_of_one_name_add_up_and_keep_their_shape() -> None:
    """A name may repeat in an offer: both entries are used, in their original shapes."""
    reserved, free = scalar("cpus", 1, '{"reservations": [{"role": "a"}]}'), scalar("cpus", 2)

    used, rest = consume((reserved, free), Needs(cpus=1500))

    assert (reserved, scalar("cpus", 0.5)) == used
    assert (scalar("cpus", 1.5),) == rest


def test_lowest_ports_are_used_over_several_ranges() -> None:
    """Three ports out of a range of two and a range of many."""
    used, rest = consume((ports((31000, 31001), (31005, 31009)),), Needs(ports=3))

    assert ports_of(used) == (31000, 31001, 31005)
    assert (ports((31006, 31009)),) == rest


def test_unneeded_resources_are_not_used() -> None:
    """Sets and unknown resources stay in the rest."""
    entries = (scalar("bandwidth", 10), ports((1, 2)))

    assert ((), entries) == consume(entries, Needs())


def test_consume_rejects_missing_resources() -> None:
    """The caller should have checked shortages: nothing is consumed in part."""
    with pytest.raises(ValueError, match="cpus 2"):
        consume((scalar("cpus", 1),), Needs(cpus=2000))


amounts = st.lists(st.integers(0, 10**7), max_size=4)
spans = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=4)


@given(amounts, spans, st.integers(0, 2 * 10**7), st.integers(0, 20))
def test_used_and_rest_are_exactly_the_offer(cpus, widths, milli_cpus, count) -> None:
    """The sums match, and the consumed resources are exactly the needed ones."""
    begin, ranges = 1000, []
    for gap, width in widths:
        ranges.append((begin + gap, begin + gap + width - 1))
        begin += gap + width
    offered = (*(scalar("cpus", amount / 1000) for amount in cpus), *([ports(*ranges)] if ranges else []))
    needed = Needs(cpus=milli_cpus, ports=count)
    if shortages(offered, needed):
        with pytest.raises(ValueError):
            consume(offered, needed)
        return

    used, rest = consume(offered, needed)

    assert (milli_cpus, 0, 0, 0, count) == amounts_in(used)
    assert amounts_in(offered) == tuple(map(sum, zip(amounts_in(used), amounts_in(rest), strict=True)))
    assert sorted(ports_of(offered)) == sorted(ports_of(used) + ports_of(rest))


def test_needs_add_up() -> None:
    """A task and its executor share an agent."""
    assert Needs(1, 2, 3, 4, 5) == Needs(1, 1, 1, 1, 1) + Needs(0, 1, 2, 3, 4)
