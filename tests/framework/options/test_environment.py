"""Options as environment variables: document, Marathon app, environment, document."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from kit.mustache import render
from options_strategies import documents
from tf_scheduler.errors import OptionsError
from tf_scheduler.options.environment import (
    template_lines,
    to_document,
    variable_name,
    without_defaults,
)
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.load import merge, resolve
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.options.spec import to_spec
from tf_scheduler.package.render import defaults, mismatches

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEMPLATE = "{" + ",\n".join(template_lines()) + "}"
CONFIG = config_schema()


def rendered(document):
    """Return the environment of the Marathon app that Cosmos renders from the options."""
    return json.loads(render(TEMPLATE, merge(defaults(CONFIG), document)))


@SLOW
@given(documents())
def test_marathon_app_preserves_options(document) -> None:
    """The scheduler gets the options and the spec of the document."""
    options = resolve(document)

    received = resolve(to_document(rendered(document)))

    assert options == received
    assert to_spec(options) == to_spec(received)


@SLOW
@given(documents())
def test_cosmos_accepts_every_valid_document(document) -> None:
    """config.json accepts what the scheduler accepts."""
    resolve(document)

    assert [] == mismatches(merge(defaults(CONFIG), document), CONFIG)


def test_environment_matches_cosmos_rendering() -> None:
    """Integers without a fraction, lower-case booleans, end marks of list entries."""
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

    variables = rendered(document)

    assert {"A": "b=c, d", "E": ""} == resolve(to_document(variables))["service"]["environment"]
    assert ("60", "2", "0.5", "false") == tuple(
        variables[name] for name in ("SERVICE_FAILOVER_TIMEOUT", "WORKER_COUNT", "WORKER_CPUS", "WORKER_GPU_CHECK")
    )
    assert ("3\x1e42\x1e", "a/b\x1fB\x1f\x1fworker\x1f\x1f\x1e") == (
        variables["RESTART_UNCOUNTED_EXIT_CODES"],
        variables["SECRETS"],
    )


@SLOW
@given(documents())
def test_changed_variables_are_enough(document) -> None:
    """The scheduler reads the same options from an app without the defaults."""
    variables = rendered(document)
    few = without_defaults(variables)

    assert to_document(variables) == to_document(few)
    assert len(few) < len(variables)
    assert without_defaults({"OTHER": "", **few}) == {"OTHER": "", **few}


def test_option_variables_are_unique() -> None:
    """The original package's names stay."""
    names = [variable_name(option) for option in OPTIONS]

    assert len(names) == len(set(names))
    assert {"PS_COUNT", "GPU_WORKER_MEM", "FRAMEWORK_NAME", "TENSORBOARD_PORT", "WORKER_PLACEMENT_CONSTRAINT"} <= set(
        names
    )


def test_default_values_are_omitted() -> None:
    """The environment's defaults apply, and people see which options were set."""
    document = {"service": {"command": "x"}, "worker": {"count": 7}}

    assert document == to_document(rendered(document))
    assert {} == to_document({})


def test_environment_defaults_fill_omitted_options() -> None:
    """Such as the executor's address, which the package knows."""
    place = {"executor": {"url": "http://host/executor.pyz"}}

    assert "http://host/executor.pyz" == resolve(to_document({"SERVICE_COMMAND": "x"}), place)["executor"]["url"]


def test_invalid_variable_is_reported_by_option() -> None:
    """All problems together, as for a document."""
    environment = {
        "SERVICE_COMMAND": "x",
        "WORKER_COUNT": "many",
        "GANG_HOLD_SECONDS": "",
        "USE_TENSORBOARD": "yes",
        "SERVICE_ENVIRONMENT": "A\x1e",
        "SECRETS": "a\x1f\x1fb\x1f\x1f\x1ec\x1e",
        "VOLUMES": "/mnt",
        "WORKER_ENVIRONMENT": '[{"name": "A", "value": "\\ud800"}]',
        "RESTART_UNCOUNTED_EXIT_CODES": "42, 143",
        "CHIEF_MEM": "null",
    }

    with pytest.raises(OptionsError) as caught:
        resolve(to_document(environment))

    assert [str(problem) for problem in caught.value.problems] == [
        "chief.mem: must not be null; omit the option to get its default",
        'gang.hold_seconds: must be a number from 0 to 60 (seconds), not "" (text)',
        'restart.uncounted_exit_codes: must be a list of whole numbers, not "42, 143" (text)',
        'service.environment.0: must be {"name": ..., "value": ...}, not {"name": "A"}',
        'service.use_tensorboard: must be true or false, not "yes" (text)',
        'volumes: must be a list of objects, not "/mnt" (text)',
        'worker.count: must be a whole number from 0 to 100000, not "many" (text)',
        'worker.environment: must be a list of {"name": ..., "value": ...}, '
        'not "[{\\"name\\": \\"A\\", \\"value\\": \\"\\\\ud800\\"}]" (text)',
        "secrets.1: must have env, file or both",
    ]


def test_list_fields_do_not_shadow_sections() -> None:
    """Mustache would look for a missing field of an entry among the sections."""
    sections = set(CONFIG["properties"])
    fields = {name for option in OPTIONS for name in getattr(getattr(option.field, "schema", None), "fields", ())}

    assert set() == sections & fields
    assert {
        *("source", "env", "file", "jobs", "reload", "plan", "phase", "job", "strategy", "tasks", "after"),
        *("host_path", "container_path", "mode"),
        *("name", "weight", "cpus", "mem", "gpus", "max_jobs", "token"),
    } == fields
