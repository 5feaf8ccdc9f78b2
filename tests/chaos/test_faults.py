"""The plan of faults: seeded, complete, and what ends everything comes last."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from chaos.faults import CATALOGUE, Store, lap, rounds, unknown

NAMES = st.lists(st.sampled_from(sorted(CATALOGUE)), unique=True, min_size=1)


def plan(names, seed):
    return lap(names, Random(seed).randrange)


@given(NAMES, st.integers())
def test_the_same_seed_makes_the_same_plan(names, seed):
    assert plan(names, seed) == plan(names, seed)


@given(NAMES, st.integers())
def test_in_each_lap_every_fault_strikes_once_in_a_training_with_the_store_that_it_needs(names, seed):
    found = plan(names, seed)

    assert sorted(names) == sorted(strike.fault.name for each in found for strike in each.strikes)
    assert all(strike.fault.store in (None, each.store) for each in found for strike in each.strikes)
    assert all(each.strikes for each in found)


@given(st.integers())
def test_nothing_comes_after_an_agent_that_is_gone(seed):
    for each in plan(list(CATALOGUE), seed):
        assert [] == [strike for strike in each.strikes[:-1] if strike.fault.last]


def test_faults_without_a_need_of_their_own_share_the_training_of_those_that_have_one():
    assert [Store.ZOOKEEPER] == [each.store for each in plan(["worker", "zookeeper", "agent-gone"], 1)]
    assert [Store.SQLITE] == [each.store for each in plan(["worker", "agent-gone"], 1)]
    both = plan(["disk-full", "zookeeper", "worker", "ps"], 1)
    assert [(Store.SQLITE, 2), (Store.ZOOKEEPER, 2)] == [(each.store, len(each.strikes)) for each in both]


@given(st.integers())
def test_two_at_once_are_two_different_ones(seed):
    (each,) = plan(["two-at-once"], seed)

    assert 2 == len(set(each.strikes[0].parts))


def test_seeds_differ_and_so_do_laps():
    endless = rounds(["worker", "ps", "chief", "agent", "master"], Random(3).randrange)
    found = [[strike.fault.name for strike in next(endless).strikes] for _ in range(6)]

    assert len({tuple(names) for names in found}) > 1
    assert plan(list(CATALOGUE), 1) != plan(list(CATALOGUE), 2)


def test_everything_that_is_wrong_with_the_names_is_told():
    assert [] == unknown(["worker", "ps"])
    assert 2 == len(unknown(["work", "ps", "ps"]))
    assert "'work' is no fault; there are: worker, ps," in unknown(["work"])[0]
    assert unknown([])[0].startswith("no fault is given")
