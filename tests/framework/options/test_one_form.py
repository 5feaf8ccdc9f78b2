"""Every option has one form: in files, in DC/OS and in the scheduler's variables."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from tf_scheduler.errors import OptionsError
from tf_scheduler.options.environment import to_document, variable_name
from tf_scheduler.options.load import as_lists, merge, parse, resolve
from tf_scheduler.options.schema.document import OPTIONS, Option
from tf_scheduler.options.schema.fields import Boolean, Environment, Integer, IntegerList, Number, RecordList, String
from tf_scheduler.options.spec import to_spec
from tf_scheduler.options.warnings import find_warnings
from tf_scheduler.package.render import render_app
from tf_scheduler.package.sources import PackageSources, read_sources

#: Text that JSON, mustache and a shell treat in a special way.
STRANGE = "a=b, \"c\" 'd' {{service.name}} \\n\n$E;\u00e9"
DIGEST = "0f" * 32
#: Values of options that accept certain texts only.
TEXTS = {
    "service.name": "dev/mnist",
    "service.user": "trainer",
    "service.role": "dev/training",
    "service.principal": "someone",
    "service.service_account": "account",
    "service.strategy": "independent",
    "service.job_url": "https://example.com/a.zip?b=c&d",
    "service.job_sha256": DIGEST,
    "service.data": f"https://example.com/a.tgz#sha256={DIGEST}, file:///b",
    "service.job_context": '{"a": [1, "b\\n"], "c": null}',
    "service.virtual_network_plugin_labels": "k_0:v_0,k_1:v_1",
    "placement_constraint": '[["rack", "MAX_PER", "2"], ["hostname", "LIKE", "a\\\\d"]]',
    "ulimits": "nofile=65536,core=0:unlimited",
    "health.liveness": "http",
    "health.jobs": "worker",
    "progress.pattern": '"it" (?P<step>[0-9]{1,9}) {{x}}\\\\',
    "storage.mode": "carried",
    "storage.options": '{"endpoint_url": "https://host/?a={{b}}"}',
    "finish.success": "any_worker",
    "scheduler.python": "python3.13",
    "executor.sha256": DIGEST,
    "api.read_token": "env:READ",
    "api.write_token": "file:write",
    "mesos.secret": "env:SECRET",
    "secret_delivery.url": "https://example.com:8443",
    "vault.address": "https://vault:8200",
    "dcos.url": "https://leader.mesos",
    "metrics.statsd": "[::1]:8125",
    "history.store": "/mnt/nfs/{{runs}} of a team",
    "vault.token": "file:token",
    "vault.secret_id": "file:id",
}
RECORDS: dict[str, list[dict[str, Any]]] = {
    "api.users": [{"name": "Ann Example", "token": "env:ANN"}, {"name": "b\u00f6b@example.com", "token": "file:bob"}],
    "queue.queues": [
        {"name": "research", "weight": 0.5, "cpus": 1.5, "mem": 100_000_000, "gpus": 8, "max_jobs": 1},
        {"name": "a-1", "weight": 2, "cpus": 0},
    ],
    "secrets": [
        {"source": "a/b", "env": "A", "file": "a.txt", "jobs": "worker", "reload": "hup"},
        {"source": "env:C", "env": "C"},
    ],
    "volumes": [{"host_path": "/a", "container_path": STRANGE, "mode": "RO", "jobs": "worker,chief"}],
    "plans.phases": [
        {"plan": "p", "phase": "a", "job": "worker", "strategy": "parallel", "tasks": "1,0"},
        {"plan": "p", "phase": "b", "job": "parameter_server", "after": "a"},
    ],
}
#: Option -> other options that it needs.
NEEDS: dict[str, dict[str, Any]] = {
    "plans.deploy": {"service": {"strategy": "independent"}, "parameter_server": {"count": 0}},
    "plans.update": {"service": {"strategy": "independent"}, "parameter_server": {"count": 0}},
    "storage.mode": {"service": {"checkpoint_dir": "s3://bucket/run"}},
    "mesos.secret": {"service": {"principal": "someone"}},
    "service.strategy": {"parameter_server": {"count": 0}},
    "service.service_account_secret": {"service": {"service_account": "account"}},
    "service.job_sha256": {"service": {"job_url": "https://example.com/a.zip"}},
    "service.job_name": {"service": {"job_url": "https://example.com/a.zip"}},
    "service.addressing": {"service": {"virtual_network_enabled": True}},
    "service.security.kerberos.enabled": {
        "service": {
            "security": {"kerberos": {"kdc": {"hostname": "kdc", "port": 88}, "realm": "R", "keytab_secret": "k"}}
        }
    },
    "worker.min_count": {"service": {"strategy": "multi_worker_mirrored"}, "parameter_server": {"count": 0}},
    "worker.elastic.mode": {
        "service": {"strategy": "parameter_server"},
        "worker": {"elastic": {"max": 9}},
        **{job: {"count": 1} for job in ("chief", "parameter_server")},
    },
    "worker.elastic.max": {"worker": {"count": 1}},
    "worker.elastic.grow": {
        "service": {"strategy": "multi_worker_mirrored"},
        "worker": {"elastic": {"max": 9}},
        "parameter_server": {"count": 0},
    },
    "health.liveness": {"health": {"target": "http://127.0.0.1:{port}/"}},
    "tls.ca_file": {"tls": {"enabled": True}},
    "tls.certificate_file": {"tls": {"enabled": True, "key_file": "k"}},
    "tls.key_file": {"tls": {"enabled": True, "certificate_file": "c"}},
    "api.certificate_file": {"api": {"key_file": "k"}},
    "api.key_file": {"api": {"certificate_file": "c"}},
    "api.client_ca_file": {"api": {"certificate_file": "c", "key_file": "k"}},
    "api.writers": {"api": {"certificate_file": "c", "key_file": "k", "client_ca_file": "a"}},
}
#: A value that no option of the type accepts in any form; texts are checked by `choices` and `pattern`.
WRONG = {
    Boolean: "yes",
    Integer: 1.5,
    Number: "much",
    IntegerList: ["42"],
    RecordList: [1],
    Environment: [{"name": "A"}],
}


@cache
def package() -> PackageSources:
    return read_sources()


def variables(document: dict[str, Any]) -> dict[str, str]:
    """Return what the scheduler gets: validated, rendered, and run by Marathon."""
    environment = render_app(package(), document)["env"]
    return {name: text for name, text in environment.items() if isinstance(text, str)}


@pytest.mark.parametrize(
    ("strategy", "counts"),
    [
        ("parameter_server", {"chief": 1, "ps": 1, "worker": 2}),
        ("between_graph", {"ps": 2, "worker": 2}),
        ("multi_worker_mirrored", {"worker": 2}),
        ("independent", {"worker": 2}),
        ("pytorch_ddp", {"worker": 2}),
        ("horovod", {"worker": 2}),
    ],
)
def test_omitted_counts_follow_strategy(strategy: str, counts: dict[str, int]) -> None:
    """Cosmos merges the defaults of config.json before the scheduler sees the file."""
    document = {"service": {"strategy": strategy, "command": "x"}, "worker": {"count": 2}}

    for given in (document, to_document(variables(document))):
        assert counts == {job.kind.value: job.count for job in to_spec(resolve(given)).jobs}


@pytest.mark.parametrize(
    ("section", "strategy"), [("parameter_server", "parameter_server"), ("chief", "parameter_server")]
)
def test_explicit_zero_passes_through_dcos(section: str, strategy: str) -> None:
    """It is wrong with this strategy, and must not count as omitted."""
    document = {"service": {"strategy": strategy, "command": "x"}, section: {"count": 0}}

    with pytest.raises(OptionsError, match=rf"{section}\.count: must be at least 1"):
        resolve(to_document(variables(document)))


def other_value(option: Option) -> Any:
    """Return a valid value that is not the default."""
    field, default, path = option.field, option.default, str(option)
    if isinstance(field, String):
        choice = next((choice for choice in field.choices if choice != default), STRANGE)
        return TEXTS.get(path) or TEXTS.get(option.path[-1], choice)
    if isinstance(field, Boolean):
        return not default
    if isinstance(field, Environment):
        return [{"name": "A", "value": STRANGE}, {"name": "B.c-d", "value": ""}]
    if isinstance(field, IntegerList):
        return [1, 255]
    if isinstance(field, RecordList):
        return RECORDS[path]
    step = 1 if isinstance(default, int) or default is None else 0.5
    assert isinstance(field, (Integer, Number))
    return min((default or 0) + step, field.maximum)


def document_with(option: Option, value: Any) -> dict[str, Any]:
    document = merge({"service": {"command": "python train.py"}}, NEEDS.get(str(option), {}))
    if option.path[-1] == "job_name":
        document["service"]["command"] = ""
    option.put(document, value)
    return document


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_option_means_the_same_everywhere(option: Option) -> None:
    """In a file, installed from DC/OS, and as JSON in its variable."""
    value = other_value(option)
    document = document_with(option, value)

    from_file = resolve(parse(json.dumps(document).encode(), "options.json"))
    rendered = variables(document)
    from_dcos = resolve(to_document(rendered))
    assert option.value(from_file) != option.default
    assert from_file == from_dcos
    assert to_spec(from_file) == to_spec(from_dcos)

    written = value if isinstance(value, str) else json.dumps(value)
    assert from_file == resolve(to_document({**rendered, variable_name(option): written}))


def test_data_records_reach_the_scheduler_as_text() -> None:
    """Cosmos gets JSON text: its schema has one type per option."""
    records = [
        {"url": "https://h/a.npz", "path": ".keras/a.npz", "extract": False},
        {"url": "https://h/{{x}} \"b\",'c'"},
    ]
    document = {"service": {"command": "x", "data": records}, "worker": {"count": 1}}

    from_dcos = to_document(variables(as_lists(document)))

    assert records == json.loads(from_dcos["service"]["data"])
    assert resolve(document)["service"]["data"] == resolve(from_dcos)["service"]["data"]
    with pytest.raises(OptionsError, match="service"):
        variables(document)
    (notice,) = [item for item in find_warnings(document, resolve(document)) if item.path == "service.data"]
    assert f"write it as text: {json.dumps(json.dumps(records))}" in notice.message


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_wrong_value_is_named_everywhere(option: Option) -> None:
    """No form is ignored in silence."""
    field = option.field
    wrong = next((value for kind, value in WRONG.items() if isinstance(field, kind)), None)
    if isinstance(field, String):
        wrong = "no such #\x7f" if field.choices or field.pattern else 3
    document = document_with(option, wrong)

    with pytest.raises(OptionsError) as from_file:
        resolve(document)
    with pytest.raises(OptionsError) as from_dcos:
        variables(document)

    for error in (from_file.value, from_dcos.value):
        assert any(problem.path.startswith(str(option)) for problem in error.problems)
    if wrong == 3:  # every text of a variable is valid
        return
    written = wrong if isinstance(wrong, str) else json.dumps(wrong)
    with pytest.raises(OptionsError) as from_variable:
        resolve(to_document({"SERVICE_COMMAND": "python train.py", variable_name(option): written}))
    assert any(problem.path.startswith(str(option)) for problem in from_variable.value.problems)
