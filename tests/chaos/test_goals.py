"""The goals of healing: met or missed."""

from chaos.measures import Cost, goals


def a_cost(fault, noticed=0.1, decided=0.01, answers=3.0, needless=()):
    names = {"hit": ("worker-0",), "others": needless, "needless": needless}
    lost = {"epochs_lost": None, "steps_lost": None}
    return Cost(fault, "worker-0", noticed, decided, answers, still=0.0, whole=5.0, **lost, **names)


def met(*costs, bare=(2.5,)):
    return [goal.met for goal in goals(costs, bare)]


def test_goals_are_met_by_fast_minimal_restarts() -> None:
    assert [True, True, True, True] == met(a_cost("worker"), a_cost("ps"))


def test_one_slow_strike_misses_the_goal() -> None:
    assert [False, True, True, True] == met(a_cost("worker"), a_cost("ps", noticed=1.5))
    assert [True, False, True, True] == met(a_cost("worker"), a_cost("executor", decided=0.2))
    assert [True, True, False, True] == met(a_cost("worker", answers=4.0))


def test_needless_restart_is_named() -> None:
    found = list(goals([a_cost("worker", needless=("chief-0",))], [2.5]))[-1]

    assert ("worker: chief-0", False) == (found.measured, found.met)
    assert met(a_cost("agent-gone", needless=("chief-0",)))[-1] is None, "its tasks have new addresses"


def test_unmeasured_goal_is_neither_met_nor_missed() -> None:
    assert [None, None, None, True] == met(a_cost("master", noticed=5.0))
    assert [True, True, None, True] == met(a_cost("worker"), bare=())
