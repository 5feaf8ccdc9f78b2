"""Which options hold at a start, and which are remembered."""

import json

from hypothesis import Phase, given, settings

from options_strategies import documents
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.redaction import MASK
from tf_scheduler.model.state import SchedulerState, newest_first
from tf_scheduler.options.configurations import MAX_CONFIGURATIONS, select_configuration, without_defaults
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec


def options(service=(), **worker):
    return resolve({"service": {"command": "x", **dict(service)}, "worker": {"count": 1, **worker}})


def nothing(_document):
    return {}


def played(*starts):
    """The last target, and the configurations, after starts with these options."""
    state, chosen = SchedulerState(to_spec(starts[0])), None
    for number, start in enumerate(starts):
        chosen = select_configuration(start, state.stored.configurations, nothing, float(number))
        state = apply(state, *chosen.changes)
    return chosen, newest_first(state.stored.configurations)


def test_each_target_is_remembered_newest_first():
    """With when it became it; the same again is nothing new."""
    chosen, known = played(options(), options(count=2), options(count=2))

    assert [(2, 1.0, {"count": 2}), (1, 0.0, {})] == [
        (item.number, item.at, {k: v for k, v in item.options.get("worker", {}).items() if v != 1}) for item in known
    ]
    assert ((), ()) == (chosen.changes, chosen.rejected)


def test_what_was_before_may_come_back():
    """It is the newest then, under its old id."""
    _, before = played(options(), options(count=2))
    _, after = played(options(), options(count=2), options())

    assert [item.id for item in reversed(before)] == [item.id for item in after]


def test_each_tells_what_it_changed_of_the_target_before_it():
    """In full values, also where one is the default; of that which was the target then, wherever it is now."""
    _, known = played(options(), options(count=2), options(), options(count=3))  # 3 is the default

    told = [each for item in known for each in item.changed]
    assert ["worker.count"] * 3 == [each["option"] for each in told]
    assert [(1, 3), (2, 1), (1, 2)] == [(each["old"], each["new"]) for each in told]


def test_what_a_configuration_changed_hides_secrets_and_is_unknown_of_the_first():
    """As its options do; it is stored as JSON."""
    secret = {"environment": {"A_PASSWORD": "hidden", "B": "1"}}
    _, (newer, first) = played(options(), options(**secret))

    assert first.changed is None
    assert "hidden" not in json.dumps(newer.changed)
    assert ["worker.environment"] == [each["option"] for each in newer.changed]


def test_the_oldest_are_forgotten():
    """Never the target."""
    _, known = played(*(options(count=count) for count in range(1, MAX_CONFIGURATIONS + 5)))

    assert MAX_CONFIGURATIONS == len(known)
    assert MAX_CONFIGURATIONS + 4 == known[0].options["worker"]["count"]


def test_what_may_not_change_is_refused_and_the_options_before_hold():
    """With the reason; it is not remembered."""
    chosen, known = played(options(), options({"role": "another"}, count=3))

    assert 1 == chosen.options["worker"]["count"]
    assert 1 == len(known)
    (reason,) = chosen.rejected
    assert "service.role: cannot change" in reason
    assert "another" in reason


def test_secrets_are_not_remembered_and_hold_all_the_same():
    """The options before have them from the present ones."""
    variables = {"A_PASSWORD": "hidden", "B": "1", "C": "redis://me:hidden@host"}
    secret = {"environment": variables, "command": "PGPASSWORD=hidden python train.py --token hidden"}
    chosen, known = played(
        options(**secret), options({"role": "another"}, **{**secret, "environment": {**variables, "B": "2"}})
    )

    assert "hidden" not in json.dumps(known[0].options)
    assert MASK in json.dumps(known[0].options)
    assert variables == chosen.options["worker"]["environment"]
    assert secret["command"] == chosen.options["worker"]["command"]


@given(documents())
@settings(max_examples=25, deadline=None, phases=[Phase.generate])
def test_options_are_the_same_without_their_defaults(document):
    """Nothing is lost."""
    whole = resolve(document)

    assert whole == resolve(without_defaults(whole, {}))
