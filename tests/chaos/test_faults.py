"""The plan of faults."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from chaos.faults import CATALOGUE, TWO, Store, lap, rounds, unknown
from chaos.strikes import KINDS

NAMES = st.lists(st.sampled_from(sorted(CATALOGUE)), unique=True, min_size=1)


def plan(names, seed):
    return lap(names, Random(seed).randrange)


@given(NAMES, st.integers())
def test_the_same_seed_makes_the_same_plan(names, seed) -> None:
    assert plan(names, seed) == plan(names, seed)


@given(NAMES, st.integers())
def test_every_fault_strikes_once_per_lap_with_its_store(names, seed) -> None:
    found = plan(names, seed)

    assert sorted(names) == sorted(strike.fault.name for each in found for strike in each.strikes)
    assert all(strike.fault.store in (None, each.store) for each in found for strike in each.strikes)
    assert all(each.strikes for each in found)


@given(st.integers())
def test_lost_agent_is_the_last_fault(seed) -> None:
    for each in plan(list(CATALOGUE), seed):
        assert [] == [strike for strike in each.strikes[:-1] if strike.fault.last]


def test_faults_without_store_share_a_training() -> None:
    assert [Store.ZOOKEEPER] == [each.store for each in plan(["worker", "zookeeper", "agent-gone"], 1)]
    assert [Store.SQLITE] == [each.store for each in plan(["worker", "agent-gone"], 1)]
    both = plan(["disk-full", "zookeeper", "worker", "ps"], 1)
    assert [(Store.SQLITE, 2), (Store.ZOOKEEPER, 2)] == [(each.store, len(each.strikes)) for each in both]


@given(st.integers())
def test_each_training_has_at_most_one_last_fault(seed) -> None:
    for names in (list(CATALOGUE), ["agent-gone", "agent-away"]):
        assert all(1 == sum(strike.fault.last for strike in each.strikes) for each in plan(names, seed))


@given(st.integers())
def test_simultaneous_faults_differ(seed) -> None:
    (each,) = plan(["two-at-once"], seed)

    assert 2 == len(set(each.strikes[0].parts))


def test_seeds_and_laps_differ() -> None:
    endless = rounds(["worker", "ps", "chief", "agent", "master"], Random(3).randrange)
    found = [[strike.fault.name for strike in next(endless).strikes] for _ in range(6)]

    assert len({tuple(names) for names in found}) > 1
    assert plan(list(CATALOGUE), 1) != plan(list(CATALOGUE), 2)


def test_unknown_faults_are_all_reported() -> None:
    assert [] == unknown(["worker", "ps"])
    assert 2 == len(unknown(["work", "ps", "ps"]))
    assert "unknown fault `work`; valid faults: worker, ps," in unknown(["work"])[0]
    assert unknown([])[0].startswith("no fault is given")


def test_every_fault_of_the_catalogue_can_be_injected() -> None:
    """A missing one would show only after the minutes of the faults before it."""
    assert set(CATALOGUE) == {TWO, *KINDS}
