"""Rules over several options: each has a document that breaks it, and no other."""

import inspect

import pytest

from tf_scheduler.errors import OptionsError
from tf_scheduler.options import (
    api_rules,
    job_rules,
    plan_rules,
    rules,
    secret_rules,
    service_rules,
    update,
    volume_rules,
)
from tf_scheduler.options.loader import resolve

KERBEROS = {"enabled": True, "realm": "LOCAL", "kdc": {"hostname": "kdc"}}


def phases(*rows):
    """Of (plan, phase, job) each, and more as it is needed."""
    names = ("plan", "phase", "job")
    return {"plans": {"phases": [dict(zip(names, row, strict=False)) | dict(row[3:]) for row in rows]}}


PARAMETER_SERVERS = {"service": {"strategy": "parameter_server"}, "chief": {"count": 1}}
BROKEN = {
    "plans_of_the_user_have_names_of_their_own": (
        phases(("recovery", "a", "worker")),
        "plans.phases.0.plan: must not be recovery",
    ),
    "phases_of_a_plan_have_different_names": (
        phases(("mine", "a", "worker"), ("yours", "a", "worker"), ("mine", "a", "parameter_server")),
        "plans.phases.2.phase: is another a of plan mine",
    ),
    "indexes_of_tasks_are_those_of_their_job": (
        phases(("mine", "a", "worker", ("tasks", "0,3,x"))),
        "plans.phases.0.tasks: must be 0 to 2, not 3, x",
    ),
    "no_plan_has_two_steps_for_a_task": (
        phases(("mine", "a", "worker", ("tasks", "0,1")), ("mine", "b", "worker", ("tasks", "2,1"))),
        "plans.phases.1.tasks: has worker 1 again, as plans.phases.0",
    ),
    "phases_wait_for_phases_of_their_own_plan": (
        phases(("mine", "a", "worker", ("after", "b")), ("yours", "b", "worker")),
        "plans.phases.0.after: names b, but plan mine has a",
    ),
    "phases_do_not_wait_for_themselves": (
        phases(("mine", "a", "worker", ("after", "b")), ("mine", "b", "parameter_server", ("after", "a"))),
        "plans.phases.0.after: makes a wait for itself",
    ),
    "every_job_is_launched_by_some_plan": (
        phases(("deploy", "a", "worker")),
        "plans.phases: parameter_server is in no plan",
    ),
    "an_update_has_a_phase_for_every_job_of_the_deployment": (
        phases(("update", "a", "worker")),
        "plans.phases: update has no phase for parameter_server, which deploy launches",
    ),
    "tasks_that_must_know_every_address_are_launched_together": (
        {"plans": {"update": "canary"}},
        "plans.update: must be parallel with service.strategy between_graph: "
        "parameter_server, worker, gpu_worker, chief must know each other; not canary",
    ),
    "the_chief_waits_for_no_phase_that_waits_for_it": (
        PARAMETER_SERVERS
        | phases(
            ("deploy", "a", "chief"), ("deploy", "b", "worker", ("after", "a")), ("deploy", "c", "parameter_server")
        ),
        "plans.phases.1.after: must not name the chief's phase",
    ),
    "the_service_name_is_a_marathon_id": ({"service": {"name": "My"}}, "service.name: must be lower-case"),
    "the_service_name_fits_into_a_host_name": ({"service": {"name": "a" * 64}}, "service.name: must have at most 63"),
    "the_role_is_one_that_mesos_accepts": ({"service": {"role": "a//b"}}, "service.role: is no Mesos role"),
    "the_principal_is_the_service_account": (
        {"service": {"principal": "me", "service_account": "you"}},
        "service.principal: must be service.service_account (you) or empty, not me",
    ),
    "a_service_accounts_secret_needs_the_account": (
        {"service": {"service_account_secret": "s"}},
        "service.service_account: is needed with service.service_account_secret",
    ),
    "there_is_something_to_run": (
        {"service": {"strategy": "between_graph"}, "worker": {"count": 0}, "parameter_server": {"count": 0}},
        "nothing to run",
    ),
    "every_job_has_a_program": ({"service": {"command": " "}}, "worker.command: is needed"),
    "parameter_server_strategy_has_a_chief_workers_and_parameter_servers": (
        {"service": {"strategy": "parameter_server"}},
        "chief.count: must be at least 1 with strategy parameter_server, not 0",
    ),
    "mirrored_strategy_has_workers_and_no_parameter_servers": (
        {"service": {"strategy": "multi_worker_mirrored"}},
        "parameter_server.count: must be 0 with strategy multi_worker_mirrored, not 2",
    ),
    "workers_of_their_own_have_no_parameter_servers": (
        {"service": {"strategy": "independent"}},
        "parameter_server.count: must be 0 with strategy independent, not 2",
    ),
    "workers_that_never_end_do_not_decide_success": (
        {"service": {"strategy": "parameter_server"}, "chief": {"count": 1}, "finish": {"success": "all_workers"}},
        "finish.success: must be default or chief with strategy parameter_server, not all_workers",
    ),
    "between_graph_has_a_worker": ({"worker": {"count": 0}}, "worker.count: must be at least 1"),
    "a_job_name_comes_with_its_file": ({"service": {"job_name": "mnist"}}, "service.job_url: is needed"),
    "data_is_where_agents_fetch_from": (
        {"service": {"data": "http://host/a.tgz, s3://bucket/b"}},
        "service.data: must have addresses that begin with http:, https:, ftp: or file:, not",
    ),
    "the_job_context_is_a_json_object": (
        {"service": {"job_context": "[1]"}},
        "service.job_context: must be a JSON object as text, not [1]",
    ),
    "named_addresses_need_a_virtual_network": (
        {"service": {"addressing": "named"}},
        "service.addressing: named needs service.virtual_network_enabled",
    ),
    "network_labels_are_pairs": (
        {"service": {"virtual_network_plugin_labels": "a:b,c"}},
        'service.virtual_network_plugin_labels: must be k_0:v_0,k_1:v_1, not "a:b,c"',
    ),
    "kerberos_knows_its_centre_realm_and_keytab": (
        {"service": {"security": {"kerberos": KERBEROS}}},
        "service.security.kerberos.keytab_secret: is needed to use Kerberos",
    ),
    "reservations_have_a_role_of_their_own": (
        {"service": {"role": "*"}, "gang": {"mode": "reserve"}},
        "gang.mode: reserve needs a role",
    ),
    "each_secret_has_a_destination": (
        {"secrets": [{"source": "a"}, {"source": "b", "env": "B", "file": "b"}]},
        "secrets.0: must have env, file or both",
    ),
    "secrets_have_sources_that_can_be_read": (
        {"secrets": [{"source": "valut:a/b#c", "env": "A"}]},
        "secrets.0.source: must be one of env:NAME, file:FOLDER/NAME, vault:MOUNT/PATH#KEY, dcos:",
    ),
    "secrets_get_variables_with_names": (
        {"secrets": [{"source": "a", "env": "A-B"}]},
        "secrets.0.env: must be letters, digits and '_', not \"A-B\"",
    ),
    "secrets_get_files_in_the_working_directory": (
        {"secrets": [{"source": "a", "file": "../a"}]},
        "secrets.0.file: must be a name, or a path below the working directory",
    ),
    "secrets_get_files_that_are_nothing_else": (
        {"secrets": [{"source": "a", "file": "stdout"}]},
        'secrets.0.file: must be another name than "stdout": the sandbox has it for itself',
    ),
    "references_are_for_variables": (
        {"secrets": [{"source": "reference:a", "file": "a"}]},
        "secrets.0: a reference is resolved by Mesos into a variable",
    ),
    "secrets_that_reload_are_files_that_change": (
        {"secrets": [{"source": "a", "env": "A", "reload": "hup"}]},
        "secrets.0.reload: needs file: the variables of a program that runs do not change",
    ),
    "vault_sources_need_a_vault": (
        {"secrets": [{"source": "vault:secret/a#b", "env": "A"}]},
        "vault.address: is needed: there are secrets with vault: sources",
    ),
    "addresses_of_secrets_are_web_addresses": (
        {"secret_delivery": {"url": "host:80"}},
        "secret_delivery.url: must be http://host:port or https://host:port",
    ),
    "the_schedulers_own_secrets_are_near": (
        {"vault": {"token": "s.abc"}},
        "vault.token: must say where it is, as env:NAME or file:FOLDER/NAME",
    ),
    "a_principals_secret_needs_the_principal": (
        {"mesos": {"secret": "env:A"}},
        "service.principal: is needed with mesos.secret",
    ),
    "secrets_are_for_jobs_that_there_are": (
        {"secrets": [{"source": "a", "env": "A", "jobs": "worker, ps"}]},
        "secrets.0.jobs: must be some of parameter_server, worker, gpu_worker, chief, evaluator, not ps",
    ),
    "volumes_are_for_jobs_that_there_are": (
        {"volumes": [{"host_path": "/a", "container_path": "a", "jobs": "worker, ps"}]},
        "volumes.0.jobs: must be some of parameter_server, worker, gpu_worker, chief, evaluator, tensorboard, "
        "data_service, not ps",
    ),
    "volumes_are_at_absolute_paths_of_the_agents": (
        {"volumes": [{"host_path": "/a/../b", "container_path": "a"}]},
        "volumes.0.host_path: must be an absolute path without '..', not \"/a/../b\"",
    ),
    "volumes_are_found_at_paths": (
        {"volumes": [{"host_path": "/a", "container_path": "../a"}]},
        "volumes.0.container_path: must be an absolute path, or one below the working directory",
    ),
    "volumes_do_not_hide_each_other": (
        {
            "volumes": [
                {"host_path": "/a", "container_path": "data/", "jobs": "worker"},
                {"host_path": "/b", "container_path": "data"},
            ]
        },
        "volumes.1: gives worker data again, as volumes.0 does",
    ),
    "secrets_do_not_overwrite_each_other": (
        {"secrets": [{"source": "a", "env": "A", "jobs": "worker"}, {"source": "b", "env": "A"}]},
        "secrets.1: gives worker A again, as secrets.0 does",
    ),
    "liveness_has_something_to_look_at": (
        {"health": {"liveness": "http"}},
        "health.target: is needed with health.liveness http",
    ),
    "fewer_workers_are_for_collective_training": (
        {"worker": {"min_count": 1}},
        "worker.min_count: is for strategy multi_worker_mirrored without gpu_worker only",
    ),
    "the_longest_wait_is_no_shorter_than_the_first": (
        {"restart": {"backoff": 10, "max_backoff": 5}},
        "restart.max_backoff: must be at least restart.backoff (10 seconds)",
    ),
    "tls_files_are_for_encrypted_connections": (
        {"tls": {"ca_file": "ca.pem"}},
        "tls.ca_file: needs tls.enabled",
    ),
    "a_statsd_server_is_a_host_and_a_port": (
        {"metrics": {"statsd": "statsd.example:99999"}},
        'metrics.statsd: must be host:port, such as 10.0.0.1:8125, not "statsd.example:99999"',
    ),
    "the_apis_certificate_comes_with_its_key": (
        {"api": {"certificate_file": "api.pem"}},
        "api.key_file: is needed: a certificate and its key belong together",
    ),
    "client_certificates_need_https": (
        {"api": {"client_ca_file": "ca.pem"}},
        "api.client_ca_file: needs api.certificate_file",
    ),
    "writers_have_certificates": ({"api": {"writers": "alice"}}, "api.writers: needs api.client_ca_file"),
    "an_open_api_has_no_credentials": (
        {"api": {"authentication": "none", "read_token": "env:TOKEN"}},
        "api.authentication: must not be none with api.read_token",
    ),
    "tokens_are_sources": (
        {"api": {"write_token": "s3cret"}},
        "api.write_token: must name where the token is, as env:VARIABLE, or file:NAME of one in /run/secrets",
    ),
    "a_certificate_comes_with_its_key": (
        {"tls": {"enabled": True, "key_file": "key.pem"}},
        "tls.certificate_file: is needed: a certificate and its key belong together",
    ),
}


def functions_of(module):
    """Its public functions that take documents."""
    return {
        name: function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


FUNCTIONS = (
    functions_of(service_rules)
    | functions_of(job_rules)
    | functions_of(plan_rules)
    | functions_of(secret_rules)
    | functions_of(api_rules)
    | functions_of(volume_rules)
)


def with_command(document):
    return {**document, "service": {"command": "x", **document.get("service", {})}}


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_that_is_broken_says_so(name):
    """Path, value and what is allowed; the function finds it, and so does whoever loads the document."""
    document, message = BROKEN[name]

    with pytest.raises(OptionsError) as caught:
        resolve(with_command(document))

    told = [str(problem) for problem in caught.value.problems]
    assert [line for line in told if line.startswith(message)] != [], told
    lenient = {**resolve({"service": {"command": "x"}})}
    assert [] == list(FUNCTIONS[name](lenient))


def test_every_rule_is_checked_and_has_an_example():
    """A rule that is written and not listed would never hold."""
    assert set(FUNCTIONS) == {rule.__name__ for rule in rules.RULES} == set(BROKEN)
    assert set(functions_of(update)) - {"refusals"} == {rule.__name__ for rule in update.RULES}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (phases(("mine", "a", "worker"), ("mine", "b", "worker", ("tasks", "1"))), "plans.phases.1.tasks: has worker"),
        (phases(("mine", "a", "worker", ("tasks", "1")), ("mine", "b", "worker")), "plans.phases.1.tasks: has worker"),
        (phases(("mine", "a", "chief", ("tasks", "0"))), "plans.phases.0.tasks: must be nothing: chief.count is 0"),
        (phases(("mine", "a", "worker", ("strategy", "serial"))), "plans.phases.0.strategy: must be parallel"),
        (
            phases(("deploy", "a", "worker", ("after", "b")), ("deploy", "b", "parameter_server")),
            "plans.phases.0.after: must be empty with service.strategy between_graph",
        ),
        (
            PARAMETER_SERVERS
            | {
                "plans": {
                    "deploy": "serial",
                    **phases(("deploy", "c", "chief"), ("deploy", "w", "worker"), ("deploy", "p", "parameter_server"))[
                        "plans"
                    ],
                }
            },
            "plans.phases.0: must be the last phase of deploy",
        ),
    ],
)
def test_rules_over_plans_find_their_other_cases(document, message):
    """Each of them has more than one."""
    with pytest.raises(OptionsError) as caught:
        resolve(with_command(document))

    told = [str(problem) for problem in caught.value.problems]
    assert [line for line in told if line.startswith(message)] != [], told


@pytest.mark.parametrize(
    "source", ["file:///run/secrets/token", "file:../token", "env:NO-NAME", "vault:a/b#c", "s3cret"]
)
def test_a_token_that_the_scheduler_could_not_read_is_refused_before_it_starts(source):
    """It would end again and again. What was written is not told: it may be the token."""
    with pytest.raises(OptionsError, match=r"api\.read_token: must name where the token is") as caught:
        resolve({"service": {"command": "x"}, "api": {"read_token": source}})
    assert source not in str(caught.value)


@pytest.mark.parametrize(
    "file",
    [
        *("stdout.1", "stderr", "stderr.logrotate.conf", "executor.log", "executor.log.1", "stdout/key", "logs"),
        *(".tf_executor/progress", ".python/python", "tensorflow-executor.pyz", "tf_executor-0123456789abcdef.pyz"),
        *("job.zip", "train.csv", "code/train.py"),
    ],
)
def test_a_secret_gets_no_file_that_is_there_for_something_else(file):
    """Of the agent, of the executor, of the job."""
    service = {"command": "x", "job_url": "https://h/job.zip?v=1", "data": "https://h/train.csv, https://h/b"}

    with pytest.raises(OptionsError, match=r"secrets\.0\.file: must be another name than"):
        resolve({"service": {**service, "job_path": "code/train.py"}, "secrets": [{"source": "a", "file": file}]})


def test_json_in_options_that_is_deep_is_refused():
    """And is no error of ours."""
    deep = "[" * 100_000

    with pytest.raises(OptionsError) as caught:
        resolve({"service": {"command": "x", "job_context": deep}, "worker": {"placement_constraint": deep}})

    told = [str(problem)[:60] for problem in caught.value.problems]
    assert [line for line in told if line.startswith("service.job_context: must be a JSON object as text")]
    assert [line for line in told if line.startswith("worker.placement_constraint: is not JSON")]


@pytest.mark.parametrize("file", ["gcs.json", "certs/stdout", "stdout-key", "logs/key", "code/key", "python"])
def test_a_secret_gets_a_file_of_any_other_name(file):
    assert resolve({"service": {"command": "x"}, "secrets": [{"source": "a", "file": file}]})
