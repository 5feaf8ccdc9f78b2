"""Rules over several options, each with a document that breaks it."""

import json

import pytest

from kit.options import options_problems
from tf_scheduler.errors import OptionsError
from tf_scheduler.options.load import RULES, resolve

KERBEROS = {"enabled": True, "realm": "LOCAL", "kdc": {"hostname": "kdc"}}


def phases(*rows):
    """Return options with phases of (plan, phase, job, more fields)."""
    names = ("plan", "phase", "job")
    return {"plans": {"phases": [dict(zip(names, row, strict=False)) | dict(row[3:]) for row in rows]}}


PARAMETER_SERVERS = {"service": {"strategy": "parameter_server"}, "chief": {"count": 1}}
BETWEEN_GRAPH = {"service": {"strategy": "between_graph"}}
BROKEN = {
    "custom_plans_have_unreserved_names": (
        phases(("recovery", "a", "worker")),
        "plans.phases.0.plan: must not be recovery",
    ),
    "phase_names_are_unique": (
        phases(("mine", "a", "worker"), ("yours", "a", "worker"), ("mine", "a", "parameter_server")),
        "plans.phases.2.phase: duplicate phase a of plan mine",
    ),
    "task_indexes_exist": (
        phases(("mine", "a", "worker", ("tasks", "0,3,x"))),
        "plans.phases.0.tasks: must be 0 to 2, not 3, x",
    ),
    "tasks_occur_once_per_plan": (
        phases(("mine", "a", "worker", ("tasks", "0,1")), ("mine", "b", "worker", ("tasks", "2,1"))),
        "plans.phases.1.tasks: duplicate task worker 1: already in plans.phases.0",
    ),
    "phase_dependencies_exist": (
        phases(("mine", "a", "worker", ("after", "b")), ("yours", "b", "worker")),
        "plans.phases.0.after: unknown phase b: plan mine has the phases a",
    ),
    "phase_dependencies_are_acyclic": (
        phases(("mine", "a", "worker", ("after", "b")), ("mine", "b", "parameter_server", ("after", "a"))),
        "plans.phases.0.after: circular dependency of a",
    ),
    "every_job_is_in_a_plan": (
        BETWEEN_GRAPH | phases(("deploy", "a", "worker")),
        "plans.phases: parameter_server has no phase",
    ),
    "update_covers_deployed_jobs": (
        BETWEEN_GRAPH | phases(("update", "a", "worker")),
        "plans.phases: plan `update` needs a phase for parameter_server, because plan `deploy` launches",
    ),
    "address_dependents_start_in_parallel": (
        BETWEEN_GRAPH | {"plans": {"update": "canary"}},
        "plans.update: must be parallel, not canary: with service.strategy between_graph, tasks of "
        "parameter_server, worker, gpu_worker, chief need each other's addresses",
    ),
    "chief_phase_is_last": (
        PARAMETER_SERVERS
        | phases(
            ("deploy", "a", "chief"), ("deploy", "b", "worker", ("after", "a")), ("deploy", "c", "parameter_server")
        ),
        "plans.phases.1.after: must not name the chief's phase",
    ),
    "service_name_is_marathon_id": ({"service": {"name": "My"}}, "service.name: must be lower-case"),
    "service_name_fits_host_name": ({"service": {"name": "a" * 64}}, "service.name: must have at most 63"),
    "queue_names_are_unique": (
        {"queue": {"queues": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}},
        'queue.queues.2.name: duplicate name "a"',
    ),
    "users_can_log_in": (
        {"api": {"users": [{"name": "ann", "token": "env:ANN"}, {"name": "bob"}]}},
        "api.users.1.token: required without api.client_ca_file",
    ),
    "role_is_valid": ({"service": {"role": "a//b"}}, "service.role: invalid Mesos role"),
    "principal_is_service_account": (
        {"service": {"principal": "me", "service_account": "you"}},
        "service.principal: must be service.service_account (you) or empty, not me",
    ),
    "account_secret_needs_account": (
        {"service": {"service_account_secret": "s"}},
        "service.service_account: required with service.service_account_secret",
    ),
    "some_job_has_tasks": (
        {"service": {"strategy": "between_graph"}, "worker": {"count": 0}, "parameter_server": {"count": 0}},
        "nothing to run",
    ),
    "every_job_has_command": ({"service": {"command": " "}}, "worker.command: required"),
    "strategy_has_required_jobs": (
        {"service": {"strategy": "parameter_server"}, "chief": {"count": 0}},
        "chief.count: must be at least 1 with strategy parameter_server, not 0",
    ),
    "parameter_servers_fit_strategy": (
        {"service": {"strategy": "multi_worker_mirrored"}, "parameter_server": {"count": 2}},
        "parameter_server.count: must be 0 with strategy multi_worker_mirrored, not 2",
    ),
    "success_policy_fits_strategy": (
        {"service": {"strategy": "parameter_server"}, "chief": {"count": 1}, "finish": {"success": "all_workers"}},
        "finish.success: must be default or chief with strategy parameter_server, not all_workers",
    ),
    "job_name_needs_job_url": ({"service": {"job_name": "mnist"}}, "service.job_url: required"),
    "data_has_fetchable_urls": (
        {"service": {"data": "http://host/a.tgz, s3://bucket/b"}},
        "service.data: must be URLs with the scheme http, https, ftp, ftps or file, not",
    ),
    "data_paths_are_in_working_directory": (
        {"service": {"data": [{"url": "http://h/a", "path": "../a"}]}},
        "service.data: must be a path below the working directory, which is also `~`, such as",
    ),
    "files_have_different_names": (
        {"service": {"data": "http://h/train/data.tgz, http://h/test/data.tgz"}},
        'service.data: "http://h/train/data.tgz" and "http://h/test/data.tgz" have the same file name "data.tgz"',
    ),
    "job_digest_needs_job_url": ({"service": {"job_sha256": "a" * 64}}, "service.job_url: required with"),
    "digests_need_extraction_by_executor": (
        {"service": {"data": f"http://host/a#sha256={'A' * 64}"}, "executor": {"extract": "mesos"}},
        "executor.extract: must be `executor`, because service.job_sha256 or service.data has a digest",
    ),
    "storage_mode_fits_folder": (
        {"service": {"checkpoint_dir": "/mnt/run"}, "storage": {"mode": "carried"}},
        'storage.mode: carried requires a URL in service.checkpoint_dir, such as s3://bucket/run, not "/mnt/run"',
    ),
    "checkpoint_url_names_its_storage": (
        {"service": {"checkpoint_dir": "gs://"}},
        "service.checkpoint_dir: gs:// has no bucket or folder; expected gs://bucket/run",
    ),
    "job_context_is_json_object": (
        {"service": {"job_context": "[1]"}},
        "service.job_context: must be a JSON object as text, not [1]",
    ),
    "named_addressing_needs_virtual_network": (
        {"service": {"addressing": "named"}},
        "service.addressing: the value `named` requires service.virtual_network_enabled",
    ),
    "network_labels_are_pairs": (
        {"service": {"virtual_network_plugin_labels": "a:b,c"}},
        'service.virtual_network_plugin_labels: must be pairs such as k_0:v_0,k_1:v_1, not "a:b,c"',
    ),
    "kerberos_has_required_options": (
        {"service": {"security": {"kerberos": KERBEROS}}},
        "service.security.kerberos.keytab_secret: required for Kerberos",
    ),
    "secret_destinations_are_valid": (
        {"secrets": [{"source": "a"}, {"source": "b", "env": "B", "file": "b"}]},
        "secrets.0: must have env, file or both",
    ),
    "secret_sources_are_valid": (
        {"secrets": [{"source": "valut:a/b#c", "env": "A"}]},
        "secrets.0.source: must be one of env:NAME, file:FOLDER/NAME, vault:MOUNT/PATH#KEY, dcos:",
    ),
    "secret_files_are_unused": (
        {"secrets": [{"source": "a", "file": "stdout"}]},
        'secrets.0.file: must not be "stdout": the sandbox uses this name',
    ),
    "secret_sources_fit_destinations": (
        {"secrets": [{"source": "reference:a", "file": "a"}]},
        "secrets.0: Mesos passes a reference only as a variable",
    ),
    "vault_sources_need_vault": (
        {"secrets": [{"source": "vault:secret/a#b", "env": "A"}]},
        "vault.address: required by secrets whose source begins with `vault:`",
    ),
    "secret_urls_are_http": (
        {"secret_delivery": {"url": "host:80"}},
        "secret_delivery.url: must be http://host:port or https://host:port",
    ),
    "scheduler_secrets_are_local": (
        {"vault": {"token": "s.abc"}},
        "vault.token: must name a source: env:NAME (a variable) or file:NAME (a file in /run/secrets)",
    ),
    "mesos_secret_needs_principal": (
        {"mesos": {"secret": "env:A"}},
        "service.principal: required with mesos.secret",
    ),
    "jobs_of_secrets_and_volumes_exist": (
        {"secrets": [{"source": "a", "env": "A", "jobs": "worker, ps"}]},
        "secrets.0.jobs: unknown section ps; expected some of parameter_server, worker, gpu_worker, chief, evaluator",
    ),
    "volume_paths_are_valid": (
        {"volumes": [{"host_path": "/a/../b", "container_path": "a"}]},
        "volumes.0.host_path: must be an absolute path without '..', not \"/a/../b\"",
    ),
    "ports_are_useful": (
        {"worker": {"count": 1, "command": "a {port} {port_2}", "ports": 2}},
        "worker.ports: must be at least 3, because its command has {port_2}, not 2",
    ),
    "linked_volumes_are_valid": (
        {"executor": {"volumes": "link"}, "volumes": [{"host_path": "/mnt/a", "container_path": "/data"}]},
        "volumes.0.container_path: must be a path below the working directory, such as data, or the host_path "
        '"/mnt/a", not "/data": volumes are linked, not mounted (executor.volumes)',
    ),
    "destinations_are_unique": (
        {"secrets": [{"source": "a", "env": "A", "jobs": "worker"}, {"source": "b", "env": "A"}]},
        "secrets.1: duplicate A of worker: already set by secrets.0",
    ),
    "liveness_has_target": (
        {"health": {"liveness": "http"}},
        "health.target: required with health.liveness http",
    ),
    "min_count_needs_mirrored_strategy": (
        {"service": {"strategy": "between_graph"}, "worker": {"min_count": 1}},
        "worker.min_count: requires strategy multi_worker_mirrored and gpu_worker.count 0",
    ),
    "elastic_workers_fit": (
        {"worker": {"count": 3, "elastic": {"min": 4}}},
        "worker.elastic.min: must be at most worker.count (3), not 4",
    ),
    "max_backoff_is_at_least_backoff": (
        {"restart": {"backoff": 10, "max_backoff": 5}},
        "restart.max_backoff: must be at least restart.backoff (10 seconds)",
    ),
    "required_options_are_set": (
        {"tls": {"ca_file": "ca.pem"}},
        "tls.ca_file: requires tls.enabled",
    ),
    "statsd_is_host_and_port": (
        {"metrics": {"statsd": "statsd.example:99999"}},
        'metrics.statsd: must be host:port, such as 10.0.0.1:8125, not "statsd.example:99999"',
    ),
    "open_api_has_no_credentials": (
        {"api": {"authentication": "none", "read_token": "env:TOKEN"}},
        "api.authentication: must not be `none`, because api.read_token",
    ),
    "variables_are_not_set_twice": (
        {"worker": {"environment": {"TF_CONFIG": "{}"}}},
        "worker.environment: must not set TF_CONFIG, which the scheduler sets for each task",
    ),
    "certificates_have_keys": (
        {"tls": {"enabled": True, "key_file": "key.pem"}},
        "tls.certificate_file: required: set certificate_file and key_file together",
    ),
}


DISTRIBUTED = {
    "service": {"strategy": "pytorch_ddp", "environment": {"RANK": "0", "LR": "1", "PET_NPROC_PER_NODE": "2"}},
    "worker": {"environment": {"PORT1": "80", "PORT": "81", "DATA_SERVICE_ADDRESS": "grpc://other:1"}},
    "chief": {"environment": {"CHECKPOINT_DIR": "/models", "HOROVOD_RANK": "0"}},
    "secrets": [{"source": "env:A", "env": "MASTER_ADDR"}, {"source": "env:B", "env": "PASSWORD"}],
}


def test_variables_of_the_scheduler_are_refused_at_once() -> None:
    """Every task with RANK=0 would be the first, and the job would seem to succeed."""
    assert [
        ("service.environment", "must not set RANK, which strategy pytorch_ddp sets for each task"),
        ("worker.environment", "must not set PORT1, which the scheduler sets for each task"),
        ("worker.environment", "must not set DATA_SERVICE_ADDRESS, which the scheduler sets for each task"),
        ("chief.environment", "must not set CHECKPOINT_DIR, which service.checkpoint_dir sets for each task"),
        ("secrets.0.env", "must not set MASTER_ADDR, which strategy pytorch_ddp sets for each task"),
    ] == [(problem.path, problem.message) for problem in options_problems(with_command(DISTRIBUTED))]


def test_variables_of_other_strategies_are_accepted() -> None:
    variables = {"RANK": "0", "MASTER_ADDR": "db", "WORLD_SIZE": "1"}
    resolve(with_command({"service": {"strategy": "between_graph", "environment": variables}}))


def with_command(document):
    return {**document, "service": {"command": "x", **document.get("service", {})}}


def assert_broken(document, message) -> None:
    texts = [str(problem) for problem in options_problems(with_command(document))]
    assert [text for text in texts if text.startswith(message)] != [], texts


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_reports_broken_document(rule) -> None:
    """Errors have path, value and rule; rules have examples; defaults break none."""
    assert_broken(*BROKEN[rule.__name__])
    assert [] == list(rule(resolve(with_command({}))))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"worker": {"count": 0}}, "worker.count: must be at least 1"),
        (
            phases(("mine", "a", "worker"), ("mine", "b", "worker", ("tasks", "1"))),
            "plans.phases.1.tasks: duplicate task worker",
        ),
        (
            phases(("mine", "a", "worker", ("tasks", "1")), ("mine", "b", "worker")),
            "plans.phases.1.tasks: duplicate task worker",
        ),
        (phases(("mine", "a", "chief", ("tasks", "0"))), "plans.phases.0.tasks: must be empty (chief.count is 0)"),
        (phases(("mine", "a", "worker", ("strategy", "serial"))), "plans.phases.0.strategy: must be parallel"),
        (
            BETWEEN_GRAPH | phases(("deploy", "a", "worker", ("after", "b")), ("deploy", "b", "parameter_server")),
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
        (
            {"service": {"strategy": "independent"}, "parameter_server": {"count": 2}},
            "parameter_server.count: must be 0 with strategy independent, not 2",
        ),
        (
            {"secrets": [{"source": "a", "env": "A-B"}]},
            'secrets.0.env: must match [A-Za-z_][A-Za-z0-9_]*, not "A-B"',
        ),
        (
            {"secrets": [{"source": "a", "file": "../a"}]},
            "secrets.0.file: must be a file name, or a path below the working directory",
        ),
        (
            {"secrets": [{"source": "a", "env": "A", "reload": "hup"}]},
            "secrets.0.reload: set file, because variables of a running program cannot change",
        ),
        (
            {"volumes": [{"host_path": "/a", "container_path": "../a"}]},
            "volumes.0.container_path: must be a path without '.' and '..', either absolute or below",
        ),
        (
            {"volumes": [{"host_path": "/a", "container_path": "/etc/"}]},
            'volumes.0.container_path: must not be "/etc/": the task would lose the programs or users',
        ),
        (
            {"worker": {"count": 1, "ports": 2}, "service": {"command": "true", "virtual_network_enabled": True}},
            "worker.ports: must be 1 with service.virtual_network_enabled: tasks with addresses of their own",
        ),
        (
            {
                "executor": {"volumes": "link"},
                "volumes": [
                    {"host_path": "/a", "container_path": "data/"},
                    {"host_path": "/b", "container_path": "data/b"},
                ],
            },
            'volumes.1.container_path: must be a path outside of the other volumes, not "data/b"',
        ),
        (
            {
                "volumes": [
                    {"host_path": "/a", "container_path": "data/", "jobs": "worker"},
                    {"host_path": "/b", "container_path": "data"},
                ]
            },
            "volumes.1: duplicate data of worker: already set by volumes.0",
        ),
        (
            {"api": {"client_ca_file": "ca.pem"}},
            "api.client_ca_file: requires api.certificate_file",
        ),
        ({"api": {"writers": "alice"}}, "api.writers: requires api.client_ca_file"),
        (
            {
                "service": {"strategy": "independent"},
                "parameter_server": {"count": 0},
                "worker": {"elastic": {"max": 9, "grow": "when_idle"}},
            },
            "worker.elastic.grow: when_idle requires worker.elastic.mode live, or strategy multi_worker_mirrored, "
            "pytorch_ddp or horovod: other jobs would restart without a checkpoint",
        ),
        (
            {"api": {"certificate_file": "api.pem"}},
            "api.key_file: required: set certificate_file and key_file together",
        ),
        (
            {"volumes": [{"host_path": "/a", "container_path": "a", "jobs": "worker, ps"}]},
            "volumes.0.jobs: unknown section ps; expected some of parameter_server, worker, gpu_worker, chief, "
            "evaluator, tensorboard, data_service",
        ),
    ],
)
def test_rule_reports_its_other_cases(document, message: str) -> None:
    assert_broken(document, message)


@pytest.mark.parametrize(
    "file",
    [
        *("stdout.1", "stderr", "stderr.logrotate.conf", "executor.log", "executor.log.1", "stdout/key", "logs"),
        *(".tf_executor/progress", ".python/python", "tensorflow-executor.pyz", "tf_executor-0123456789abcdef.pyz"),
        *("job.zip", "train.csv", "code/train.py"),
    ],
)
def test_secret_file_must_not_overwrite_other_files(file: str) -> None:
    """Files of the agent, of the executor or of the job."""
    service = {"command": "x", "job_url": "https://h/job.zip?v=1", "data": "https://h/train.csv, https://h/b"}

    with pytest.raises(OptionsError, match=r"secrets\.0\.file: must not be"):
        resolve({"service": {**service, "job_path": "code/train.py"}, "secrets": [{"source": "a", "file": file}]})


@pytest.mark.parametrize("job_url", ["http://h/a/job.zip", "http://h/a/job.zip/", "s3://bucket/job.zip"])
def test_data_must_not_replace_job(job_url: str) -> None:
    service = {"command": "true", "job_url": job_url, "data": "file:///d/job.zip"}
    with pytest.raises(OptionsError, match=r'have the same file name "job\.zip"'):
        resolve({"service": service}, {})


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"path": "/a"}, 'not "/a"'),
        ({"path": "a/../../b"}, 'not "a/../../b"'),
        ({"path": "a/"}, 'not "a/"'),
        ({"path": "~/.keras/datasets/mnist.npz"}, "which is also `~`"),
        ({"path": "stdout"}, '"stdout": Mesos and the executor use this name'),
        ({"path": ".tf_executor/a"}, '".tf_executor/a": Mesos and the executor use this name'),
        ({"url": "http://h/x.pyz"}, '"x.pyz": Mesos and the executor use this name'),
        ({"path": "job.zip"}, 'have the same file name "job.zip"'),
        ({"path": "other"}, '"http://h/b" and "http://h/a" have the same file name "other"'),
        ({"path": "other/a"}, '"other" is a file, and a folder of "other/a"'),
        ({"link": True}, 'link needs a URL such as file:///mnt/mnist.npz, not "http://h/a"'),
        ({"url": "file://h/a", "link": True}, "link needs a URL such as file:///mnt/mnist.npz"),
        ({"url": "s3://h/a"}, "must be URLs with the scheme"),
        ({"path": "d/a"}, 'executor.extract: must be `executor`, or "d/a" needs `extract`: false'),
        ({"path": "key"}, 'secrets.0.file: must not be "key/a": the job has a file of this name'),
    ],
)
def test_data_record_stays_in_its_place(record, message: str) -> None:
    """No file of a record leaves the working directory or replaces another file."""
    data = [{"url": "http://h/b", "path": "other"}, {"url": "http://h/a", **record}]
    service = {"command": "x", "job_url": "http://h/job.zip", "data": data}
    mesos = {"executor": {"extract": "mesos"}} if "executor.extract" in message else {}

    (problem,) = options_problems({"service": service, "secrets": [{"source": "a", "file": "key/a"}], **mesos})

    assert message in str(problem)


def test_same_file_may_occur_twice() -> None:
    url = "http://h/job.zip"
    resolve({"service": {"command": "true", "job_url": url, "data": f"{url}, http://h/b.zip"}}, {})


def test_deeply_nested_json_is_reported() -> None:
    """Without a RecursionError."""
    deep = "[" * 100_000

    with pytest.raises(OptionsError) as caught:
        resolve({"service": {"command": "x", "job_context": deep}, "worker": {"placement_constraint": deep}})

    texts = [str(problem)[:60] for problem in caught.value.problems]
    assert [line for line in texts if line.startswith("service.job_context: must be a JSON object as text")]
    assert [line for line in texts if line.startswith("worker.placement_constraint: is not JSON")]


@pytest.mark.parametrize("file", ["gcs.json", "certs/stdout", "stdout-key", "logs/key", "code/key", "python"])
def test_secret_file_with_other_name_is_accepted(file: str) -> None:
    assert resolve({"service": {"command": "x"}, "secrets": [{"source": "a", "file": file}]})


@pytest.mark.parametrize("order", ["serial", "canary"])
def test_independent_tasks_may_start_one_by_one(order: str) -> None:
    """None waits for the address of another."""
    service = {"command": "x", "strategy": "independent"}
    resolve({"service": service, "parameter_server": {"count": 0}, "plans": {"deploy": order, "update": order}})


@pytest.mark.parametrize("url", ["abfss://box@name.dfs.core.windows.net/run", "hdfs:///run", "file:///run", "C:/run"])
def test_url_of_checkpoints_that_names_its_storage(url: str) -> None:
    """An account before @ is not a key; hdfs has a server in its configuration."""
    resolve({"service": {"command": "x", "checkpoint_dir": url}})


def test_mounted_storage_refuses_url() -> None:
    """Without its password."""
    document = {"service": {"command": "x", "checkpoint_dir": "s3://me:canary@b/run"}, "storage": {"mode": "mounted"}}
    with pytest.raises(OptionsError, match=r"storage.mode: mounted requires a path") as caught:
        resolve(document)
    assert "canary" not in str(caught.value)


CHECKPOINTS = "service.checkpoint_dir"
TOKEN = "must name a source: env:NAME (a variable) or file:NAME (a file in"


def test_usual_storage_options_are_accepted() -> None:
    options = {"anon": True, "gss_auth": True, "config_kwargs": {"signature_version": "s3v4"}, "hosts": ["key-1", "b"]}
    resolve(with_command({"storage": {"options": json.dumps(options)}}))


@pytest.mark.parametrize(
    ("path", "value", "message", "secret"),
    [
        ("api.read_token", "file:///run/secrets/token", TOKEN, "file:///run/secrets/token"),
        ("api.read_token", "file:../token", TOKEN, "file:../token"),
        ("api.read_token", "env:NO-NAME", TOKEN, "env:NO-NAME"),
        ("api.read_token", "vault:a/b#c", TOKEN, "vault:a/b#c"),
        ("api.read_token", "s3cret", TOKEN, "s3cret"),
        ("api.write_token", "s3cret", TOKEN, "s3cret"),
        ("api.users.0.token", "s3cret", TOKEN, "s3cret"),
        (
            CHECKPOINTS,
            "s3://key:canary-7@bucket/run",
            "s3://key:********@bucket/run contains a key; use secrets",
            "canary-7",
        ),
        (
            CHECKPOINTS,
            "s3://bucket/run?api_key=canary-7",
            "s3://bucket/run?api_key=******** contains a key",
            "canary-7",
        ),
        (CHECKPOINTS, "s3:///run", "s3:// has no bucket or folder", None),
        (CHECKPOINTS, "s3:/bucket/run", '"s3:/bucket/run" is not a URL; expected s3://bucket/run', None),
        (CHECKPOINTS, "memory://run", "memory:// ends with its process", None),
        (CHECKPOINTS, "ram://run", "ram:// ends with its process", None),
        (CHECKPOINTS, "http://host/run", "http:// cannot be written", None),
        (CHECKPOINTS, "S3://bucket/run", "unknown scheme S3://; write s3://", None),
        (CHECKPOINTS, "s3://bucket/run?a=b", "s3:// has no query string; use storage.options instead", None),
        ("storage.options", "[1]", "must be a JSON object as text, not [1]", None),
        ("storage.options", "{", "must be a JSON object as text: ", None),
        ("storage.options", f"{'[' * 3000}{']' * 3000}", "must be a JSON object as text", None),
        ("storage.options", '{"secret": "canary"}', "secret: credentials are secrets", "canary"),
        ("storage.options", '{"sas_token": "canary"}', "sas_token: credentials are secrets", "canary"),
        (
            "storage.options",
            '{"client_kwargs": {"aws_secret_access_key": "canary"}}',
            "client_kwargs.aws_secret_access_key: credentials",
            "canary",
        ),
        ("storage.options", '{"a": [{"b": "http://user:canary@host/"}]}', "a.b: credentials are secrets", "canary"),
        *(
            ("storage.options", f'{{"a": {{"{name}": "canary"}}}}', f"a.{name}: credentials are secrets", "canary")
            for name in ("passphrase", "passwd", "pwd", "pass", "sas", "sasUrl", "auth", "Cookie", "signature")
        ),
        ("storage.options", '{"auth": ["me", "canary"]}', "auth: credentials are secrets", "canary"),
        ("storage.options", '{"h": {"Authorization": "Basic canary"}}', "h.Authorization: credentials", "canary"),
        ("storage.options", '{"h": [["X-Auth", "canary"]]}', "h.X-Auth: credentials are secrets", "canary"),
        ("storage.options", '{"a": "https://canary@host/"}', "a: credentials are secrets", "canary"),
        ("storage.options", '{"a": "https://host/?sig=canary"}', "a: credentials are secrets", "canary"),
    ],
)
def test_refused_value_is_not_shown_if_secret(path: str, value: str, message: str, secret: str | None) -> None:
    """Options are readable by all who may see the service; a value may be the token."""
    section, _, name = path.partition(".")
    users = {"users": [{"name": "ann", "token": value}]}
    with pytest.raises(OptionsError) as caught:
        resolve(with_command({section: users if name == "users.0.token" else {name: value}}))
    assert str(caught.value).startswith(f"{path}: {message}")
    assert secret is None or secret not in str(caught.value)
