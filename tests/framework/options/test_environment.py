"""Options on their way to the scheduler: document, Marathon app, environment, document."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from options_strategies import documents
from tf_scheduler.errors import OptionsError
from tf_scheduler.options.environment import (
    load_environment,
    template_lines,
    to_document,
    to_environment,
    variable_name,
)
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.load import resolve, to_spec
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.package.mustache import render
from tf_scheduler.package.options_check import defaults, merge, mismatches

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEMPLATE = "{" + ",\n".join(template_lines()) + "}"
CONFIG = config_schema()


def rendered(document):
    """The environment of the Marathon app, as Cosmos makes it of the options that a user gives."""
    return json.loads(render(TEMPLATE, merge(defaults(CONFIG), document)))


@SLOW
@given(documents())
def test_options_survive_the_way_through_the_marathon_app(document):
    """The scheduler sees the options, and the spec, that the document itself gives."""
    options = resolve(document)

    found = load_environment(rendered(document))

    assert options == found
    assert to_spec(options) == to_spec(found)


@SLOW
@given(documents())
def test_cosmos_accepts_every_valid_document(document):
    """config.json refuses nothing that the scheduler takes."""
    resolve(document)

    assert [] == mismatches(merge(defaults(CONFIG), document), CONFIG)


@SLOW
@given(documents())
def test_the_mapping_alone_is_reversible(document):
    """For those who set the variables without DC/OS."""
    options = resolve(document)

    assert options == load_environment(to_environment(options))


def test_the_mapping_gives_what_cosmos_renders():
    """Whole numbers without a fraction, flags in lower case, lists ended entry by entry."""
    document = {
        "service": {
            "command": 'echo "$A" \\',
            "failover_timeout": 60.0,
            "environment": [{"name": "A", "value": "b=c, d"}, {"name": "E", "value": ""}],
        },
        "worker": {"count": 2.0, "cpus": 0.5, "gpu_check": False},
        "restart": {"uncounted_exit_codes": [3, 42]},
        "secrets": [{"source": "a/b", "env": "B", "jobs": "worker"}],
    }

    found = rendered(document)

    assert found == to_environment(resolve(document))
    assert {"A": "b=c, d", "E": ""} == load_environment(found)["service"]["environment"]
    assert ("60", "2", "0.5", "false") == tuple(
        found[name] for name in ("SERVICE_FAILOVER_TIMEOUT", "WORKER_COUNT", "WORKER_CPUS", "WORKER_GPU_CHECK")
    )
    assert ("3\x1e42\x1e", "a/b\x1fB\x1f\x1fworker\x1f\x1f\x1e") == (
        found["RESTART_UNCOUNTED_EXIT_CODES"],
        found["SECRETS"],
    )


def test_each_option_has_a_variable_of_its_own():
    """Names of the original package stay."""
    names = [variable_name(option) for option in OPTIONS]

    assert len(names) == len(set(names))
    assert {"PS_COUNT", "GPU_WORKER_MEM", "FRAMEWORK_NAME", "TENSORBOARD_PORT", "WORKER_PLACEMENT_CONSTRAINT"} <= set(
        names
    )


def test_what_is_at_its_default_is_left_out():
    """So that the place can have defaults of its own, and people see what somebody chose."""
    options = resolve({"service": {"command": "x"}, "worker": {"count": 7}})

    assert {"service": {"command": "x"}, "worker": {"count": 7}} == to_document(to_environment(options))
    assert {} == to_document({})


def test_defaults_of_the_place_fill_what_is_left_open():
    """Such as the executor's address, which the package knows."""
    place = {"executor": {"url": "http://host/executor.pyz"}}

    assert "http://host/executor.pyz" == load_environment({"SERVICE_COMMAND": "x"}, place)["executor"]["url"]


def test_a_variable_that_is_no_value_is_refused_with_the_options_name():
    """All at once, like a document."""
    environment = {
        "SERVICE_COMMAND": "x",
        "WORKER_COUNT": "many",
        "GANG_HOLD_SECONDS": "",
        "USE_TENSORBOARD": "yes",
        "SERVICE_ENVIRONMENT": "A\x1e",
        "SECRETS": "a\x1f\x1fb\x1f\x1f\x1ec\x1e",
    }

    with pytest.raises(OptionsError) as caught:
        load_environment(environment)

    assert [str(problem) for problem in caught.value.problems] == [
        'gang.hold_seconds: must be a number from 0 to 60 (seconds), not "" (text)',
        'service.environment.0: must be {"name": ..., "value": ...}, not {"name": "A"}',
        'service.use_tensorboard: must be true or false, not "yes" (text)',
        'worker.count: must be a whole number from 0 to 100000, not "many" (text)',
        "secrets.1: must have env, file or both",
    ]


def test_fields_of_list_entries_are_found_in_the_entry_only():
    """A field that an entry lacks would be sought outside of it: no section may have its name."""
    sections = set(CONFIG["properties"])
    fields = {name for option in OPTIONS for name in getattr(getattr(option.field, "schema", None), "fields", ())}

    assert set() == sections & fields
    assert {
        *("source", "env", "file", "jobs", "reload", "plan", "phase", "job", "strategy", "tasks", "after"),
        *("host_path", "container_path", "mode"),
    } == fields
