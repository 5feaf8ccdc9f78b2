"""The plan of faults."""

from collections import Counter
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.faults import CATALOGUE, LONGEST, TWO, Store, Struck, can_pair, laps, next_round, stores_of, unknown
from chaos.strikes import KINDS

NAMES = st.lists(st.sampled_from(sorted(CATALOGUE)), unique=True, min_size=1)


def a_lap(names, seed, struck=None):
    draw, struck, found = Random(seed).randrange, Struck(struck or {}), []
    while not laps(names, struck):
        found.append(next_round(names, struck, draw))
        struck.update((strike.fault.name, found[-1].store) for strike in found[-1].strikes)
    return found


@given(NAMES, st.integers())
def test_the_same_seed_makes_the_same_plan(names, seed) -> None:
    assert a_lap(names, seed) == a_lap(names, seed)


@given(NAMES, st.integers())
def test_every_fault_strikes_with_each_store_in_a_lap(names, seed) -> None:
    found = a_lap(names, seed)

    struck = Counter((strike.fault.name, each.store) for each in found for strike in each.strikes)
    wanted = {(name, store): CATALOGUE[name].times for name in names for store in stores_of(CATALOGUE[name])}
    assert wanted == struck
    assert all(0 < len(each.strikes) <= LONGEST for each in found)


@given(st.integers())
def test_no_fault_repeats_before_all_have_struck(seed) -> None:
    """A run that is too short for a lap covers as many faults as it can."""
    single = [name for name in CATALOGUE if CATALOGUE[name].store is None and not CATALOGUE[name].last and name != TWO]
    order = [strike.fault.name for each in a_lap(single, seed) for strike in each.strikes]

    first = len(single) // LONGEST * LONGEST
    assert first == len(set(order[:first]))


def test_strikes_that_a_failure_lost_are_planned_again() -> None:
    struck = Struck({("worker", Store.SQLITE): 1})

    found = a_lap(["worker", "ps"], 1, struck)
    assert {(Store.SQLITE, 1), (Store.ZOOKEEPER, 2)} == {(each.store, len(each.strikes)) for each in found}


@given(st.integers())
def test_lost_agent_is_the_last_fault_of_a_training(seed) -> None:
    for names in (list(CATALOGUE), ["agent-gone", "agent-away"]):
        for each in a_lap(names, seed):
            assert [] == [strike for strike in each.strikes[:-1] if strike.fault.last]


def test_faults_share_one_training_per_store() -> None:
    found = a_lap(["disk-full", "zookeeper", "worker", "ps"], 1)

    assert {(Store.SQLITE, 3), (Store.ZOOKEEPER, 3)} == {(each.store, len(each.strikes)) for each in found}
    assert [Store.ZOOKEEPER] == [each.store for each in a_lap(["zookeeper", "zookeeper-frozen"], 1)]


def test_faults_with_containers_have_a_training_of_their_own() -> None:
    found = a_lap(["worker", "master-cut", "peers-cut"], 1)

    assert {(Store.SQLITE, 1), (Store.ZOOKEEPER, 1), (Store.CONTAINERS, 2)} == {
        (each.store, len(each.strikes)) for each in found
    }


@given(st.integers())
def test_simultaneous_faults_strike_different_parts(seed) -> None:
    for each in a_lap([TWO], seed):
        for strike in each.strikes:
            assert can_pair(*strike.parts)
            assert all(each.store in stores_of(part) for part in strike.parts)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if CATALOGUE[name].parts])
def test_each_part_has_a_fault_of_another_part(name) -> None:
    for store in stores_of(CATALOGUE[name]):
        assert any(can_pair(CATALOGUE[name], other) for other in CATALOGUE.values() if store in stores_of(other))


def test_seeds_and_laps_differ() -> None:
    names = ["worker", "ps", "chief", "agent", "master"]
    plans = {
        tuple(strike.fault.name for strike in chain(*(each.strikes for each in a_lap(names, seed))))
        for seed in range(6)
    }

    assert len(plans) > 1


def test_unknown_faults_are_all_reported() -> None:
    assert [] == unknown(["worker", "ps"])
    assert 2 == len(unknown(["work", "ps", "ps"]))
    assert "unknown fault `work`; valid faults: worker, ps," in unknown(["work"])[0]
    assert unknown([])[0].startswith("no fault is given")


def test_every_fault_of_the_catalogue_can_be_injected() -> None:
    """A missing one would show only after the minutes of the faults before it."""
    assert set(CATALOGUE) == {TWO, *KINDS}
