"""Executor payload: every task option arrives; launches share a ClusterSpec."""

import json
from dataclasses import replace
from typing import Any

import pytest

from builders import EXECUTOR, a_job, a_record, a_running_state, a_spec, an_offer, with_fields
from tf_executor.contract.payload import Payload
from tf_executor.contract.settings import Liveness
from tf_scheduler.api.views.pods import task_environment
from tf_scheduler.core.launch.launch import accepts, payload_of, placeholder_payload, plan_launches
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import match_gang
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, TaskLaunched
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, Recovery, TaskRecord
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec

CLUSTER = {"worker": ["10.0.0.1:31000"]}
CONFIG = {"cluster": CLUSTER, "task": {"type": "worker", "index": 0}}


def payload(**document):
    """Return the payload of worker 0, encoded and decoded."""
    spec = to_spec(resolve({"service": {"command": "x"}, **document}))
    (job,) = [job for job in spec.jobs if job.section == "worker"]
    return Payload.decode(payload_of(spec, job, record(), CLUSTER).encode())


def record():
    return TaskRecord(
        TaskName("worker-0"),
        TaskId("w"),
        JobKind.WORKER,
        0,
        AgentId("a"),
        "host",
        "10.0.0.1:31000",
        7,
        (),
        5.0,
        serial=3,
    )


def test_payload_describes_task() -> None:
    """Name, address in the cluster, and values shared by all tasks."""
    decoded = payload(
        service={
            "strategy": "between_graph",
            "command": "train",
            "user": "me",
            "checkpoint_dir": "/models",
            "environment": {"A": "1"},
        }
    )

    assert (decoded.task, decoded.job, decoded.index, decoded.generation) == ("worker-0", "worker", 0, 7)
    assert (decoded.tf_config, decoded.port, decoded.strategy) == (CONFIG, 31000, "between_graph")
    assert ("/models", 3, 5.0) == (decoded.fenced_folder, decoded.serial, decoded.launched_at)
    assert (decoded.user, decoded.log_dir) == ("me", "/models")
    variables = {"A": "1", "CHECKPOINT_DIR": "/models", "TASK_ADDRESS": "10.0.0.1:31000", "SHARD_INDEX": "0"}
    assert {**variables, "NUM_SHARDS": "3"} == decoded.environment


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ({"command": "own"}, {"command": "own"}),
        ({"python": "/py"}, {"python": "/py"}),
        ({"kill_grace": 30}, {"kill_grace": 30.0}),
        ({"gpus": 2, "gpu_check": False}, {"gpus": 2, "gpu_check": False}),
        ({"cluster_flags": True}, {"cluster_flags": True}),
        (
            {"pre_command": "a", "post_command": "b", "hook_timeout": 9},
            {"pre_command": "a", "post_command": "b", "hook_timeout": 9.0},
        ),
        ({"nice": 5, "ulimits": "core=0:-1"}, {"nice": 5, "ulimits": {"core": (0, -1)}}),
    ],
)
def test_job_options_arrive(worker, expected) -> None:
    """Each in its field."""
    decoded = payload(worker=worker)

    assert expected == {
        name: getattr(decoded if hasattr(decoded, name) else decoded.settings, name) for name in expected
    }


def test_program_of_original_package_arrives() -> None:
    """Without a command the module runs."""
    service = {"command": "", "job_url": "http://host/a.zip", "job_name": "mnist", "job_path": "src", "job_context": ""}

    decoded = payload(service=service)

    assert ("", "mnist", "src", "{}") == (decoded.command, decoded.job_name, decoded.job_path, decoded.job_context)


@pytest.mark.parametrize(
    ("url", "by_agent"),
    [
        ("http://host/a.zip", True),
        ("/shared/a.zip", True),
        ("file:///a.zip", True),
        ("s3://bucket/a.zip", False),
        ("gs://bucket/a.zip", False),
        ("hdfs://default/a.zip", False),
    ],
)
def test_executor_fetches_urls_unsupported_by_agent(url: str, by_agent: bool) -> None:
    """Each file is fetched once."""
    spec = to_spec(resolve({"service": {"command": "x", "job_url": url}}))

    assert (([url], ()) if by_agent else ([], (url,))) == ([uri.value for uri in spec.uris], spec.fetch)
    assert spec.fetch == payload(service={"command": "x", "job_url": url}).fetch


def test_hdfs_configuration_is_fetched() -> None:
    """Next to the program, where Hadoop's clients look."""
    service = {"command": "x", "hdfs": {"config_uri": "http://host/endpoints/"}}
    spec = to_spec(resolve({"service": service}))

    assert ["http://host/endpoints/core-site.xml", "http://host/endpoints/hdfs-site.xml"] == [
        uri.value for uri in spec.uris
    ]
    assert "." == payload(service=service).environment["HADOOP_CONF_DIR"]


def test_liveness_applies_to_named_jobs() -> None:
    """By default for tasks that train: a parameter server reports no progress."""
    health = {"liveness": "http", "target": "http://127.0.0.1:{port}/", "interval": 1, "failures": 2}

    assert Liveness("http", "http://127.0.0.1:{port}/", 1.0, 20.0, 300.0, 2) == payload(health=health).settings.liveness
    assert None is payload(health={**health, "jobs": "chief"}).settings.liveness
    assert None is payload().settings.liveness


def test_output_limits_arrive() -> None:
    """For every task."""
    service = {"command": "x", "use_tensorboard": True}
    spec = to_spec(resolve({"service": service, "executor": {"output_bytes": 1 << 20, "output_backups": 1}}))

    assert {(1 << 20, 1)} == {(job.settings.output_bytes, job.settings.output_backups) for job in spec.jobs}


@pytest.mark.parametrize("allowed", [False, True])
def test_new_privileges_arrive(allowed: bool) -> None:
    assert allowed is payload(executor={"new_privileges": allowed}).settings.new_privileges


@pytest.mark.parametrize(("enforced", "limit"), [(False, 0), (True, 300)])
def test_memory_is_enforced_if_chosen(enforced: bool, limit: int) -> None:
    """Otherwise by the agent, or not at all."""
    assert limit == payload(executor={"enforce_memory": enforced}, worker={"mem": 300}).memory_limit


def test_new_privileges_are_forbidden_by_default() -> None:
    assert not payload().settings.new_privileges


def test_linked_volumes_are_not_mounted() -> None:
    """Agents without filesystem/linux refuse mounts; a host path needs no link."""
    volumes = [{"host_path": "/mnt/a", "container_path": "in/a"}, {"host_path": "/mnt/b", "container_path": "/mnt/b"}]

    assert {} == payload(volumes=volumes).links
    assert {"in/a": "/mnt/a"} == payload(volumes=volumes, executor={"volumes": "link"}).links


@pytest.mark.parametrize("allowed", [False, True])
def test_each_launch_has_its_own_key_for_commands(allowed: bool) -> None:
    """The executor gets the stored key; it is in no environment and in no text."""
    spec = NEW.spec
    state = replace(NEW, spec=replace(spec, executor=replace(spec.executor, allows_exec=allowed)))
    launches = plan_launches(state, PLACEMENTS, 9.0, (f"secret-{number}" for number in range(99)).__next__)

    keys = [item.record.exec_key for item in launches]
    assert keys == [Payload.decode(item.payload).exec_key for item in launches]
    assert (len(launches) if allowed else 1) == len(set(keys))
    assert allowed is all(keys)
    for item, key in zip(launches, keys, strict=True):
        assert not key or key not in repr(item.record) + repr(Payload.decode(item.payload).environment)


def test_minimal_spec_has_minimal_payload() -> None:
    """Empty defaults everywhere."""
    spec = a_spec()
    decoded = payload_of(spec, spec.jobs[0], record(), CLUSTER)

    assert ("", "", "", (), 0, None) == (
        decoded.settings.pre_command,
        decoded.settings.post_command,
        decoded.job_name,
        decoded.fetch,
        decoded.settings.nice,
        decoded.settings.liveness,
    )


def test_placeholder_payload_runs_only_its_command() -> None:
    """The environment stays, so that an operator can inspect it."""
    original = payload(worker={"pre_command": "a", "post_command": "b", "gpus": 1, "environment": {"A": "1"}})
    placeholder = placeholder_payload(original, "sleep 1")

    assert ("sleep 1", "", "", 0, "") == (
        placeholder.command,
        placeholder.settings.pre_command,
        placeholder.settings.post_command,
        placeholder.gpus,
        placeholder.readiness,
    )
    assert original.environment == placeholder.environment
    settings = replace(original.settings, cluster_flags=True, stalled_after=9.0)
    assert placeholder == placeholder_payload(replace(original, rendezvous=True, settings=settings), "sleep 1")
    assert (False, 0.0) == (placeholder.settings.cluster_flags, placeholder.settings.stalled_after)
    assert not placeholder.rendezvous


@pytest.mark.parametrize(
    ("kind", "answers"), [(JobKind.DISPATCHER, True), (JobKind.DATA_WORKER, True), (JobKind.EVALUATOR, False)]
)
def test_servers_of_data_service_must_answer(kind: JobKind, answers: bool) -> None:
    """Although they are not in the ClusterSpec; an evaluator has no server."""
    side = replace(a_record(NEW.spec, "worker-0"), job=kind)

    readiness = payload_of(NEW.spec, a_job(kind, 1), side, CLUSTER).readiness

    assert (side.address if answers else "") == readiness


@pytest.mark.parametrize(
    ("folder", "expected"), [("", (".",)), ("/mnt/run", (".", "/mnt/run")), ("hdfs://name/run", (".",))]
)
def test_events_are_read_from_local_folders(folder: str, expected) -> None:
    """In the sandbox and in a shared folder, for training tasks only."""
    spec = replace(a_spec(), checkpoint_dir=folder)
    folders = [
        payload_of(spec, a_job(kind, 1), record(), CLUSTER).event_folders for kind in (JobKind.WORKER, JobKind.PS)
    ]

    assert [expected, ()] == folders


# --- Launches


@pytest.mark.parametrize(("count", "interval"), [(100, 2.0), (10_000, 80.0)])
def test_tasks_of_a_large_service_send_fewer_messages(count: int, interval: float) -> None:
    """At most 150 per second together; the leader sends as in a small service."""
    spec = a_spec(workers=count, ps=0, chief=0)
    records = (replace(record(), index=index) for index in range(2))

    assert [2.0, interval] == [payload_of(spec, spec.jobs[0], item, CLUSTER).message_interval for item in records]


NEW = SchedulerState(a_spec())
PLACEMENTS = match_gang(
    tuple(NEW.spec.tasks()), (an_offer(cpus=2), an_offer("offer-2", "agent-2", cpus=2)), PlacementContext(EXECUTOR)
).placements


def launch(state, **options):
    return plan_launches(state, PLACEMENTS, 9.0, iter(map(str, range(9))).__next__, **options)


def test_launches_share_cluster_and_serial() -> None:
    launches = launch(NEW)
    clusters = [Payload.decode(item.payload).tf_config["cluster"] for item in launches]

    assert {"chief", "ps", "worker"} == set(clusters[0])
    assert [clusters[0]] * 4 == clusters
    assert {(1, 1, "deploy", 9.0)} == {
        (item.record.serial, item.record.generation, item.record.plan, item.record.job_started_at) for item in launches
    }


def test_launch_belongs_to_plan_of_its_task() -> None:
    plans = {item.record.name: item.record.plan for item in launch(NEW, launching_plans={"worker-1": "some"})}

    assert {"ps-0": "deploy", "worker-0": "deploy", "worker-1": "some", "chief-0": "deploy"} == plans


def test_relaunch_at_same_addresses_keeps_generation() -> None:
    """Then no peer must restart."""
    launched = apply(NEW, *(TaskLaunched(item.record) for item in launch(NEW)))

    assert {(2, 1)} == {(item.record.serial, item.record.generation) for item in launch(launched)}


def test_record_lists_last_earlier_launches() -> None:
    """Placeholders and restarts with a peer do not count."""
    state = NEW
    seen: list[int] = []
    for why in ("", *["worker-0: killed"] * 4, "restarts with worker-1"):
        if why:
            launched = state.stored.tasks["worker-0"]
            recovery = Recovery(launched.name, launched.id, Cause.USER_ERROR, why, 0.0, 0.0, 0.0)
            state = apply(state, RecoveryDecided(recovery))
        placeholder = with_fields(state, paused={"worker-0": 1.0})
        state = apply(state, *(TaskLaunched(item.record) for item in launch(placeholder if seen == [0] else state)))
        record = state.stored.tasks["worker-0"]
        seen.append(record.restarts)

    assert [0, 1, 1, 2, 3, 3] == seen
    assert [record.id] * 3 == [item.id for item in record.earlier]
    assert {record.hostname} == {item.hostname for item in record.earlier}


def test_paused_task_is_launched_as_placeholder() -> None:
    placeholders = {item.record.name: item for item in launch(with_fields(NEW, paused={"worker-0": 1.0}))}

    assert ["worker-0"] == [name for name, item in placeholders.items() if item.record.is_placeholder]
    assert "sleep 3600" in Payload.decode(placeholders["worker-0"].payload).command


def test_placeholder_has_no_time_limit() -> None:
    """The operator decides how long it runs."""
    state = with_fields(
        SchedulerState(a_spec(jobs=(a_job(JobKind.WORKER, 2, max_completion_time=60.0),))), paused={"worker-0": 1.0}
    )
    placements = match_gang(tuple(state.spec.tasks()), (an_offer(),), PlacementContext(EXECUTOR)).placements

    launches = plan_launches(state, placements, 9.0, iter(map(str, range(9))).__next__)

    assert [None, 60.0] == [item.max_completion_time for item in launches]


def test_accepts_is_one_call_per_agent() -> None:
    """Mesos merges only offers of one agent."""
    calls = accepts(PLACEMENTS, launch(NEW), 5.0)

    assert [("offer-1",), ("offer-2",)] == [call.offer_ids for call in calls]
    assert {"ps-0", "worker-0", "worker-1", "chief-0"} == {item.record.name for call in calls for item in call.launches}
    assert {5.0} == {call.refuse_seconds for call in calls}


def test_task_environment_has_current_addresses() -> None:
    state = a_running_state(a_spec())
    task = state.stored.tasks["worker-1"]
    environment = task_environment(state, task, state.spec.job_of(task.job, task.index))
    config = json.loads(environment["TF_CONFIG"])

    assert {"type": "worker", "index": 1} == config["task"]
    assert ["a:0", "a:1"] == config["cluster"]["worker"]
    assert ("worker-1", "1") == (environment["TASK_NAME"], environment["TASK_PORT"])


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        ({"stalled_after": 60, "frozen_after": 120, "grace": 7}, (60.0, 120.0, 7.0)),
        ({"stalled_after": 0, "frozen_after": 0, "grace": 7}, (0.0, 0.0, 7.0)),
    ],
)
def test_limits_of_silence_arrive(health, expected) -> None:
    """0 disables a limit for the executor."""
    decoded = payload(health=health).settings

    assert expected == (decoded.stalled_after, decoded.frozen_after, decoded.stall_grace)


def test_later_launch_has_the_start_of_the_job() -> None:
    launches = launch(with_fields(NEW, first_launch_at=5.0))

    assert {(5.0, 9.0)} == {(item.record.job_started_at, item.record.launched_at) for item in launches}


def test_output_is_read_for_progress_of_training_tasks() -> None:
    """A parameter server or a placeholder prints no steps."""
    service = {"command": "x", "strategy": "parameter_server", "use_tensorboard": True}
    jobs = {"evaluator": {"count": 1}, "data_service": {"workers": 1}}
    spec = to_spec(resolve({"service": service, **jobs, "progress": {"pattern": "(?P<step>x)"}}))
    assert {JobKind.CHIEF, JobKind.WORKER} == {job.kind for job in spec.jobs if job.settings.progress_from_output}
    trained = payload(progress={"pattern": "(?P<step>x)"})
    assert (True, "(?P<step>x)") == (trained.settings.progress_from_output, trained.settings.progress_pattern)
    assert not placeholder_payload(trained, "sleep 1").settings.progress_from_output
    assert not payload(progress={"from_output": False}).settings.progress_from_output


def storage_of(strategy: str, url: str = "s3://b/run", mode: str = "auto", **counts: int) -> dict[str, dict[str, Any]]:
    """Return mode, role and URL of all tasks."""
    sections = {name: {"count": count} for name, count in counts.items()}
    service = {"command": "x", "strategy": strategy, "checkpoint_dir": url, "use_tensorboard": True}
    spec = to_spec(resolve({"service": service, **sections, "storage": {"mode": mode, "keep": 5}}))
    payloads = {
        task.name: payload_of(
            spec, task.job, replace(record(), name=task.name, job=task.job.kind, index=task.index), CLUSTER
        )
        for task in spec.tasks()
    }
    return {name: dict(item.storage) for name, item in payloads.items()}


def test_chief_stores_and_others_read_carried_checkpoints() -> None:
    """Without a chief, worker 0 is the chief, as in TensorFlow."""
    jobs = {"parameter_server": 1, "worker": 1, "chief": 1, "evaluator": 1}
    found = storage_of("parameter_server", **jobs)
    roles = {"chief-0": "writer", "evaluator-0": "evaluator", "tensorboard-0": "tensorboard"}
    assert {**roles, "ps-0": "scratch", "worker-0": "scratch"} == {name: item["role"] for name, item in found.items()}
    assert {("s3://b/run", "auto", 60.0, 5)} == {
        (item["url"], item["mode"], item["every"], item["keep"]) for item in found.values()
    }
    found = storage_of("multi_worker_mirrored", worker=2)
    assert ["writer", "peer"] == [found[name]["role"] for name in ("worker-0", "worker-1")]


def test_independent_tasks_store_checkpoints_of_their_own() -> None:
    found = storage_of("independent", worker=2)
    assert [("s3://b/run/worker-0", "writer"), ("s3://b/run/worker-1", "writer")] == [
        (found[name]["url"], found[name]["role"]) for name in ("worker-0", "worker-1")
    ]
    assert "s3://b/run" == found["tensorboard-0"]["url"]


def test_paths_and_direct_storage_are_not_carried() -> None:
    assert storage_of("independent", url="/mnt/run", worker=1)["worker-0"] == {}
    assert storage_of("independent", mode="direct", worker=1)["worker-0"] == {}


def test_pytorch_does_not_ask_tensorflow() -> None:
    """The agents' Python may have both; PyTorch has no file systems of TensorFlow."""
    assert "carried" == storage_of("pytorch_ddp", url="gs://b/run", worker=2)["worker-0"]["mode"]


def test_peers_know_the_launch_of_their_writer() -> None:
    """Its checkpoint is theirs; an earlier writer may have stored another one."""
    document = {"command": "x", "strategy": "multi_worker_mirrored", "checkpoint_dir": "s3://b/run"}
    spec = to_spec(resolve({"service": document, "worker": {"count": 2}}))
    match = match_gang(tuple(spec.tasks()), [an_offer(cpus=9, mem=90_000)], PlacementContext(EXECUTOR))

    first, second = plan_launches(SchedulerState(spec), match.placements, 9.0, iter("abcdefgh").__next__)

    assert ("worker-0", "worker-1") == (first.record.name, second.record.name)
    assert first.record.id == Payload.decode(second.payload).storage["writer"]
    assert "writer" not in Payload.decode(first.payload).storage
