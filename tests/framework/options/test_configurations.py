"""Selection and history of target configurations."""

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
    return resolve(
        {"service": {"command": "x", "strategy": "between_graph", **dict(service)}, "worker": {"count": 1, **worker}}
    )


def nothing(_document):
    return {}


def played(*starts):
    """Return the last target, and the configurations, after starts with these options."""
    state, chosen = SchedulerState(to_spec(starts[0])), None
    for number, start in enumerate(starts):
        chosen = select_configuration(start, state.stored.configurations, nothing, float(number))
        state = apply(state, *chosen.changes)
    return chosen, newest_first(state.stored.configurations)


def test_targets_are_stored_newest_first() -> None:
    """With their time; an unchanged target is not stored again."""
    chosen, known = played(options(), options(count=2), options(count=2))

    assert [(2, 1.0, {"count": 2}), (1, 0.0, {})] == [
        (item.number, item.at, {k: v for k, v in item.options.get("worker", {}).items() if v != 1}) for item in known
    ]
    assert ((), ()) == (chosen.changes, chosen.rejected)


def test_earlier_target_can_return() -> None:
    """It is then the newest, under its old id."""
    _, before = played(options(), options(count=2))
    _, after = played(options(), options(count=2), options())

    assert [item.id for item in reversed(before)] == [item.id for item in after]


def test_target_records_its_changes() -> None:
    """Complete values, compared with the target of that time."""
    _, known = played(options(), options(count=2), options(), options(count=3))  # 3 is the default

    changes = [each for item in known for each in item.changed]
    assert ["worker.count"] * 3 == [each["option"] for each in changes]
    assert [(1, 3), (2, 1), (1, 2)] == [(each["old"], each["new"]) for each in changes]


def test_recorded_changes_mask_secrets() -> None:
    """The changes of the first target are unknown."""
    secret = {"environment": {"A_PASSWORD": "hidden", "B": "1"}}
    _, (newer, first) = played(options(), options(**secret))

    assert first.changed is None
    assert "hidden" not in json.dumps(newer.changed)
    assert ["worker.environment"] == [each["option"] for each in newer.changed]


def test_oldest_targets_are_deleted() -> None:
    """Never the current target."""
    _, known = played(*(options(count=count) for count in range(1, MAX_CONFIGURATIONS + 5)))

    assert MAX_CONFIGURATIONS == len(known)
    assert MAX_CONFIGURATIONS + 4 == known[0].options["worker"]["count"]


def test_rejected_update_keeps_previous_options() -> None:
    """With the reason; the rejected target is not stored."""
    chosen, known = played(options(), options({"role": "another"}, count=3))

    assert 1 == chosen.options["worker"]["count"]
    assert 1 == len(known)
    (reason,) = chosen.rejected
    assert "service.role: cannot change" in reason
    assert "another" in reason


def test_previous_options_get_current_secrets() -> None:
    """Secrets are not stored."""
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
def test_omitting_defaults_is_reversible(document) -> None:
    whole = resolve(document)

    assert whole == resolve(without_defaults(whole, {}))
