"""Mesos v1 JSON to the model and back."""

import base64
import hashlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_job, a_record, a_spec, an_offer, needs, ports, scalar
from kit.commands import run_program
from tf_executor.contract.payload import RENEW_SECRETS
from tf_executor.contract.states import TaskState
from tf_scheduler.core.launch.launch import accepts, payload_of, plan_launches
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import match_gang
from tf_scheduler.mesos import decode, encode
from tf_scheduler.model import effects, events
from tf_scheduler.model.digests import digest_check
from tf_scheduler.model.ids import AgentId, TaskId
from tf_scheduler.model.offer import InverseOffer, Unavailability
from tf_scheduler.model.placement import AgentLocation, Constraint, Operator, PlacementSpec
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.options.load import merge, resolve
from tf_scheduler.options.spec import to_spec
from tf_scheduler.store.records import read_record

OFFER = {
    "id": {"value": "o-1"},
    "framework_id": {"value": "fw-1"},
    "agent_id": {"value": "a-1"},
    "hostname": "agent-1",
    "url": {"scheme": "http", "address": {"hostname": "agent-1", "ip": "127.0.0.1", "port": 5051}, "path": "/slave(1)"},
    "resources": [
        {"name": "cpus", "type": "SCALAR", "scalar": {"value": 2.0004}, "allocation_info": {"role": "r"}},
        {
            "name": "ports",
            "type": "RANGES",
            "ranges": {"range": [{"begin": 31005, "end": 31009}, {"begin": 31000, "end": 31001}]},
            "reservations": [{"type": "STATIC", "role": "r"}],
        },
    ],
    "attributes": [
        {"name": "rack", "type": "TEXT", "text": {"value": "a"}},
        {"name": "weight", "type": "SCALAR", "scalar": {"value": 1.5}},
        {"name": "slots", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 3}]}},
    ],
    "allocation_info": {"role": "r"},
}


def test_offer_keeps_resource_shapes() -> None:
    """Accepted resources return unchanged, with allocation and reservation."""
    offer = decode.offer(OFFER)

    assert (offer.hostname, offer.address) == ("agent-1", "127.0.0.1")
    assert offer.attributes == {"rack": "a", "weight": "1.5", "slots": "[1-3]"}
    cpus, ports = offer.resources
    assert (cpus.value, ports.value) == (2000, ((31000, 31001), (31005, 31009)))
    assert OFFER["resources"][1]["reservations"] == encode.resource(ports)["reservations"]
    assert encode.resource(cpus)["allocation_info"] == {"role": "r"}


def test_agent_without_ip_has_host_name_address() -> None:
    """The URL is optional in an offer."""
    bare = {key: value for key, value in OFFER.items() if key != "url"}

    assert decode.offer(bare).address == "agent-1"


values = st.one_of(
    st.integers(0, 10**9),
    st.lists(st.integers(0, 100), min_size=2, max_size=8, unique=True).map(
        lambda ends: tuple(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
    ),
    st.frozensets(st.text(max_size=3), max_size=3),
)


@given(values)
def test_resources_survive_round_trip(value) -> None:
    """Scalars in thousandths, ranges and sets."""
    before = Resource("anything", value, json.dumps({"allocation_info": {"role": "r"}}))

    assert before == decode.resource(json.loads(json.dumps(encode.resource(before))))


def test_supported_events_are_decoded() -> None:
    """Other events decode to None."""
    update = {"task_id": {"value": "t"}, "state": "TASK_FAILED", "uuid": "dQ==", "message": "exit code 3"}
    failure = {"agent_id": {"value": "a-1"}}

    def decoded(kind, **content):
        return decode.event({"type": kind, kind.lower(): content})

    assert events.Subscribed("fw-1") == decoded("SUBSCRIBED", framework_id={"value": "fw-1"})
    assert decoded("OFFERS", offers=[OFFER]).offers[0].id == "o-1"
    assert events.OfferRescinded("o-1") == decoded("RESCIND", offer_id={"value": "o-1"})
    status = decoded("UPDATE", status=update).status
    assert (status.state, status.uuid, status.agent_id) == (TaskState.FAILED, "dQ==", None)
    networks = [
        {"ip_addresses": [{"protocol": "IPv4", "ip_address": "9.0.1.5"}, {"ip_address": "fd01::5"}]},
        {"name": "b"},
    ]
    with_addresses = decoded("UPDATE", status={**update, "container_status": {"network_infos": networks}}).status
    assert ((), ("9.0.1.5", "fd01::5")) == (status.addresses, with_addresses.addresses)
    assert events.AgentFailed("a-1") == decoded("FAILURE", **failure)
    assert events.ExecutorFailed("a-1", "e", 9) == decoded("FAILURE", **failure, executor_id={"value": "e"}, status=9)
    assert decoded("MESSAGE") is None


def test_accept_call_is_complete() -> None:
    """The label with the record has its own test."""
    spec = a_spec(workers=1, ps=0, chief=0)
    offers = [an_offer(port_ranges=((31000, 31001),))]
    match = match_gang(tuple(spec.tasks()), offers, PlacementContext(spec.executor.needs))
    launches = plan_launches(SchedulerState(spec), match.placements, 1000.0, lambda: "id")

    (accept,) = accepts(match.placements, launches, 3600.0)
    call = encode.call(accept, "fw-1")

    (task,) = call["accept"]["operations"][0]["launch"]["task_infos"]
    payload = json.loads(base64.b64decode(task.pop("data")))
    assert payload["command"] == "python train.py"
    assert {r["name"]: r["scalar"]["value"] for r in task.pop("resources")[:2]} == {"cpus": 0.5, "mem": 1024.0}
    (label,) = [item for item in task["labels"]["labels"] if item["key"] == encode.RECORD_LABEL]
    task["labels"]["labels"].remove(label)
    assert task == {
        "name": "worker-0",
        "task_id": {"value": "worker-0__id"},
        "agent_id": {"value": "agent-1-id"},
        "executor": {
            "executor_id": {"value": "worker-0__id"},
            "framework_id": {"value": "fw-1"},
            "type": "CUSTOM",
            "name": "worker-0",
            "command": {
                "shell": True,
                "value": 'cd "${MESOS_SANDBOX:-.}" || exit; exec python3 -I -S executor.pyz',
                "uris": [{"value": "file:///tmp/executor.pyz", "extract": False}],
            },
            "resources": [
                {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}},
                {"name": "mem", "type": "SCALAR", "scalar": {"value": 64.0}},
            ],
            "shutdown_grace_period": {"nanoseconds": 15_000_000_000},
        },
        "kill_policy": {"grace_period": {"nanoseconds": 10_000_000_000}},
        "discovery": {
            "visibility": "FRAMEWORK",
            "name": "worker-0",
            "ports": {"ports": [{"number": 31000, "name": "tensorflow", "protocol": "tcp"}]},
        },
        "labels": {"labels": [{"key": "generation", "value": "1"}]},
    }
    assert call["accept"]["offer_ids"] == [{"value": "offer-1"}]
    assert call["accept"]["filters"] == {"refuse_seconds": 3600.0}


def test_further_ports_are_discoverable() -> None:
    """By the names of their placeholders."""
    spec = to_spec(resolve({"service": {"command": "true"}}, {}))
    record = a_record(spec, "worker-0", address="a:31000", resources=(ports((31000, 31002)),))
    launch = effects.Launch(record, (), (), spec.executor, spec.uris, 31000, 5.0, b"")

    listed = encode.task_info(launch, "fw-1")["discovery"]["ports"]["ports"]

    assert [("tensorflow", 31000), ("port_1", 31001), ("port_2", 31002)] == [(i["name"], i["number"]) for i in listed]


JOB_FILES = {
    "job_url": "http://h/my%20job.zip?sig=a",
    "data": f"http://h/a.tgz#sha256={'a' * 64}, file:///d/b%20c.tar",
    "hdfs": {"config_uri": "http://h/conf"},
}
BY_MESOS = {"service": {**JOB_FILES, "data": "http://h/a.tgz"}, "executor": {"extract": "mesos"}}


def launched(document):
    """Return the files of the ExecutorInfo, and the payload, of a worker."""
    spec = to_spec(resolve(merge({"service": {"command": "true"}}, document), {}))
    record = a_record(spec, "worker-0")
    payload = payload_of(spec, spec.jobs[0], record, {})
    launch = effects.Launch(record, (), (), spec.executor, spec.uris, 31000, 5.0, payload.encode())
    return encode.executor_info(launch, "fw-1")["command"]["uris"], payload


def test_agents_extract_no_file() -> None:
    """The executor finds each file under the name in its payload."""
    uris, payload = launched({"service": JOB_FILES})

    assert not any(uri["extract"] for uri in uris)
    assert ["my%20job.zip?sig=a", "a.tgz", "b c.tar"] == [uri["output_file"] for uri in uris if "output_file" in uri]
    assert ("my%20job.zip?sig=a", "a.tgz", "b c.tar") == payload.unpack
    assert {"a.tgz": "a" * 64} == payload.digests


def test_linked_file_is_not_fetched() -> None:
    """The executor links the file, and extracts it even if agents extract others."""
    data = [{"url": "file:///mnt/a%20b.tgz", "link": True}, {"url": "http://h/c", "path": "d/e", "extract": False}]
    uris, payload = launched({"service": {"data": data}, "executor": {"extract": "mesos"}})

    assert [("http://h/c", "d/e", False)] == [(uri["value"], uri["output_file"], uri["extract"]) for uri in uris[1:]]
    assert ({"a b.tgz": "/mnt/a b.tgz"}, ("a b.tgz",)) == (payload.links, payload.unpack)


def test_slash_at_the_end_is_not_part_of_the_name() -> None:
    """As in the fetcher of Mesos."""
    uris, payload = launched({"service": {"job_url": "http://h/dir/job.zip/", "job_sha256": "a" * 64}})

    assert "job.zip" == uris[1]["output_file"]
    assert ({"job.zip": "a" * 64}, ("job.zip",)) == (payload.digests, payload.unpack)


def test_agents_extract_files_if_chosen() -> None:
    uris, payload = launched(BY_MESOS)

    assert [False, True, True, False, False] == [uri["extract"] for uri in uris]
    assert not payload.unpack


def test_bundle_with_digest_is_checked_before_it_runs(tmp_path: Path) -> None:
    """The real command line; the name of the bundle has special characters."""
    bundle = tmp_path / "it's $(touch hacked).pyz"
    bundle.write_bytes(b"print()")
    digest = hashlib.sha256(b"print()").hexdigest()
    executor = replace(a_spec().executor, uri=str(bundle), python="echo", sha256=digest)
    launch = effects.Launch(a_record(a_spec(), "worker-0"), (), (), executor, (), 31000, 5.0, b"")
    command = ["/bin/sh", "-c", encode.executor_info(launch, "fw-1")["command"]["value"]]

    good = run_program(*command, cwd=tmp_path)
    bundle.write_bytes(b"print(")
    bad = run_program(*command, cwd=tmp_path)

    assert (0, f"-I -S {bundle.name}\n", "") == (good.returncode, good.stdout, good.stderr)
    actual = hashlib.sha256(b"print(").hexdigest()
    assert (65, "") == (bad.returncode, bad.stdout)
    assert f"{bundle.name}: wrong SHA-256 digest {actual}; expected {digest}\n" == bad.stderr
    assert [bundle] == list(tmp_path.iterdir())


@pytest.mark.parametrize("lack", ["file", "program", "failing program"])
def test_digest_that_cannot_be_read_is_not_wrong(tmp_path: Path, lack: str) -> None:
    """Exit code 65 ends the job; another agent may have sha256sum and a complete file."""
    if lack != "file":
        (tmp_path / "e.pyz").touch()
    if lack == "failing program":
        (tmp_path / "sha256sum").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "sha256sum").chmod(0o755)
    command = ["/bin/sh", "-c", f"{digest_check('e.pyz', 'a' * 64)}echo started"]
    variables = {"PATH": os.environ["PATH"] if lack == "file" else str(tmp_path)}

    done = run_program(*command, cwd=tmp_path, env=variables)

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.endswith("cannot compute the SHA-256 digest of e.pyz: sha256sum failed\n")


def test_command_starts_in_sandbox(tmp_path: Path) -> None:
    """An image with a working directory of its own moves the command there."""
    sandbox = tmp_path / "the sandbox"
    sandbox.mkdir()
    (sandbox / "executor.pyz").write_text("true")
    digest = hashlib.sha256(b"true").hexdigest()
    executor = replace(a_spec().executor, uri="http://h/executor.pyz", python=str(sandbox / "show"), sha256=digest)
    (sandbox / "show").write_text("#!/bin/sh\npwd; cat executor.pyz\n")
    (sandbox / "show").chmod(0o755)
    launch = effects.Launch(a_record(a_spec(), "worker-0"), (), (), executor, (), 31000, 5.0, b"")
    command = ["/bin/sh", "-c", encode.executor_info(launch, "fw-1")["command"]["value"]]

    def run_in(sandbox: Path) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": os.environ["PATH"], "MESOS_SANDBOX": str(sandbox)}
        return run_program(*command, cwd="/", env=variables)

    done = run_in(sandbox)
    assert (0, f"{sandbox}\ntrue", "") == (done.returncode, done.stdout, done.stderr)
    lost = run_in(tmp_path / "missing")
    assert "missing" in lost.stderr
    assert lost.returncode not in (0, 65)


def test_label_has_the_record_without_secret_token() -> None:
    """Everyone who may view tasks can read labels."""
    record = replace(
        a_record(a_spec(), "worker-0"),
        token="5e0f",
        exec_key="5e0f",
        location=AgentLocation("a", attributes={"rack": "ä"}),
    )
    resources = (scalar("cpus", 0.5, '{"allocation_info": {"role": "r"}}'), ports((31000, 31000)))
    record = replace(record, resources=resources)
    launch = effects.Launch(record, (), (), a_spec().executor, (), 31000, 5.0, b"")

    labels = {item["key"]: item["value"] for item in encode.task_info(launch, "fw-1")["labels"]["labels"]}

    assert "5e0f" not in labels["record"]
    assert replace(record, token="", exec_key="") == read_record("worker-0", labels["record"].encode())
    assert len(labels["record"]) < 1500


def test_every_call_has_an_encoder() -> None:
    """Except TEARDOWN, which the driver sends itself."""
    examples = [
        effects.Decline(("o",), 5.0),
        effects.Suppress(),
        effects.Revive(),
        effects.Kill("t", "a"),
        effects.ShutdownExecutor("e", "a"),
        effects.Acknowledge("t", "a", "u"),
        effects.Reconcile({TaskId("t"): AgentId("a")}),
        effects.MessageExecutor("e", "a", RENEW_SECRETS),
    ]

    calls = [encode.call(example, "fw-1") for example in examples]

    assert calls == [
        {"type": "DECLINE", "decline": {"offer_ids": [{"value": "o"}], "filters": {"refuse_seconds": 5.0}}},
        {"type": "SUPPRESS", "suppress": {}},
        {"type": "REVIVE", "revive": {}},
        {"type": "KILL", "kill": {"task_id": {"value": "t"}, "agent_id": {"value": "a"}}},
        {"type": "SHUTDOWN", "shutdown": {"executor_id": {"value": "e"}, "agent_id": {"value": "a"}}},
        {
            "type": "ACKNOWLEDGE",
            "acknowledge": {"agent_id": {"value": "a"}, "task_id": {"value": "t"}, "uuid": "u"},
        },
        {
            "type": "RECONCILE",
            "reconcile": {"tasks": [{"task_id": {"value": "t"}, "agent_id": {"value": "a"}}]},
        },
        {
            "type": "MESSAGE",
            "message": {
                "executor_id": {"value": "e"},
                "agent_id": {"value": "a"},
                "data": base64.b64encode(b"renew secrets").decode(),
            },
        },
    ]


def test_gpu_capability_requires_gpu_jobs() -> None:
    """The capability attracts offers of GPU agents."""

    def capabilities(spec):
        return {entry["type"] for entry in encode.framework_info(spec, None)["capabilities"]}

    from builders import a_job, needs

    assert "GPU_RESOURCES" not in capabilities(a_spec())
    assert "GPU_RESOURCES" in capabilities(a_spec(jobs=(a_job(needs=needs(gpus=1)),)))


def test_known_framework_id_is_sent() -> None:
    assert "id" not in encode.framework_info(a_spec(), None)
    assert encode.framework_info(a_spec(), "fw-1")["id"] == {"value": "fw-1"}


def test_offer_filter_has_minimum_offer() -> None:
    """One CPU and 1 GB, below a task's needs: agents that are too small are reported."""
    jobs = (a_job(JobKind.PS, 1), a_job(JobKind.WORKER, 1, needs=needs(cpus=64, mem=100_000, disk=10, gpus=8)))

    info = encode.framework_info(a_spec(role="dev/digits", jobs=jobs), None)

    asked = info["offer_filters"]["dev/digits"]["min_allocatable_resources"]["quantities"]
    assert [{"cpus": 0.6, "mem": 1024.0}, {"cpus": 1.0, "mem": 1024.0}] == [
        {name: amount["value"] for name, amount in item["quantities"].items()} for item in asked
    ]


def worker_with(*constraints):
    return a_job(JobKind.WORKER, 1, constraints=constraints)


def test_offer_constraints_exclude_unusable_agents() -> None:
    """One group per job with all predicates; regular expressions need the attribute."""
    region, rack = Constraint("@region", Operator.IS, "eu"), Constraint("rack", Operator.IS_NOT, "a")
    like = Constraint("gpu", Operator.LIKE, "V.*")
    spec = a_spec(jobs=(worker_with(region, rack), worker_with(like, Constraint("hostname", Operator.UNIQUE))))

    (role,) = encode.offer_constraints(spec)["role_constraints"].values()

    def predicate(selector, **what):
        return {"selector": selector, "predicate": what}

    assert [
        [
            predicate({"pseudoattribute_type": "REGION"}, text_equals={"value": "eu"}),
            predicate({"attribute_name": "rack"}, text_not_equals={"value": "a"}),
        ],
        [predicate({"attribute_name": "gpu"}, exists={})],
    ] == [group["attribute_constraints"] for group in role["groups"]]


def test_unconstrained_job_disables_offer_constraints() -> None:
    rule = Constraint("rack", Operator.IS, "a")

    assert encode.offer_constraints(a_spec(jobs=(worker_with(rule), worker_with()))) == {}


def test_offer_constraints_include_service_region() -> None:
    """Unless a job has a rule of its own."""
    spec = a_spec(jobs=(worker_with(),), placement=PlacementSpec(region="eu"))

    (role,) = encode.offer_constraints(spec)["role_constraints"].values()

    (predicate,) = role["groups"][0]["attribute_constraints"]
    assert {"selector": {"pseudoattribute_type": "REGION"}, "predicate": {"text_equals": {"value": "eu"}}} == predicate


def test_offer_domain_role_and_window_are_decoded() -> None:
    fault_domain = {"region": {"name": "eu"}, "zone": {"name": "eu-1"}}
    window = {"start": {"nanoseconds": 1_500_000_000}, "duration": {"nanoseconds": 60_000_000_000}}

    offer = decode.offer({**OFFER, "domain": {"fault_domain": fault_domain}, "unavailability": window})

    assert (offer.region, offer.zone, offer.role) == ("eu", "eu-1", "r")
    assert Unavailability(1.5, 61.5) == offer.unavailability
    assert Unavailability(1.5) == decode.unavailability({"start": window["start"]})
    assert (decode.offer(OFFER).region, decode.offer(OFFER).unavailability) == ("", None)


def test_inverse_offers_are_decoded_and_accepted() -> None:
    raw = {"id": {"value": "i-1"}, "agent_id": {"value": "a-1"}, "unavailability": {"start": {"nanoseconds": 0}}}

    received = decode.event({"type": "INVERSE_OFFERS", "inverse_offers": {"inverse_offers": [raw]}})
    rescinded = decode.event(
        {"type": "RESCIND_INVERSE_OFFER", "rescind_inverse_offer": {"inverse_offer_id": {"value": "i-1"}}}
    )

    assert events.InverseOffersReceived((InverseOffer("i-1", "a-1", Unavailability(0.0)),)) == received
    assert events.InverseOfferRescinded("i-1") == rescinded
    answer = encode.call(effects.AcceptInverseOffers(("i-1",), 30.0), "fw-1")
    assert answer["accept_inverse_offers"] == {
        "inverse_offer_ids": [{"value": "i-1"}],
        "filters": {"refuse_seconds": 30.0},
    }


def test_subscribed_event_has_master_region() -> None:
    """The region of tasks without one."""
    master = {"domain": {"fault_domain": {"region": {"name": "eu"}, "zone": {"name": "eu-1"}}}}

    event = decode.event(
        {"type": "SUBSCRIBED", "subscribed": {"framework_id": {"value": "fw-1"}, "master_info": master}}
    )

    assert events.Subscribed("fw-1", "eu") == event
