"""Calls match the protobuf schema inside libmesos."""

import pytest

from builders import a_job, a_spec, an_offer, needs
from tf_scheduler.core.launch.launch import accepts, plan_launches
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import match_gang
from tf_scheduler.mesos import encode
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.placement import Constraint, Operator
from tf_scheduler.model.resources import VirtualNetwork, Volume
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState

pytestmark = pytest.mark.usefixtures("real_mesos")

SPEC = a_spec(
    jobs=(
        a_job(
            JobKind.WORKER,
            1,
            needs=needs(ports=0),
            image="tensorflow/tensorflow:2.15.0",
            volumes=(Volume("/mnt/nfs", "data", read_only=True), Volume("/scratch", "/scratch")),
            max_completion_time=60.0,
            constraints=(Constraint("rack", Operator.IS_NOT, "a"),),
        ),
    ),
    network=VirtualNetwork("blue", {"k_0": "v_0"}),
    secrets=(SecretSpec("reference:name#key", "KEY"),),
)


@pytest.fixture(scope="module")
def schema():
    """The schema in the library of the local cluster."""
    pytest.importorskip("google.protobuf", reason="comes with TensorFlow")
    from mesos_local.libmesos.download import ensure_library
    from mesos_schema import MesosSchema

    return MesosSchema(ensure_library())


def launch_call():
    """Return an ACCEPT with a complete container."""
    match = match_gang(tuple(SPEC.tasks()), [an_offer()], PlacementContext(SPEC.executor.needs))
    (accept,) = accepts(
        match.placements, plan_launches(SchedulerState(SPEC), match.placements, 1000.0, lambda: "id"), 5.0
    )
    return {**encode.call(accept, FrameworkId("fw-1")), "framework_id": {"value": "fw-1"}}


def test_full_launch_matches_mesos_schema(schema) -> None:
    """No field is lost or has another type."""
    call = launch_call()

    read = schema.read("mesos.v1.scheduler.Call", call)

    (sent,), (decoded,) = (one["accept"]["operations"][0]["launch"]["task_infos"] for one in (call, read))
    assert {
        "type": "MESOS",
        "mesos": {"image": {"type": "DOCKER", "docker": {"name": "tensorflow/tensorflow:2.15.0"}}},
        "network_infos": [{"name": "blue", "labels": {"labels": [{"key": "k_0", "value": "v_0"}]}}],
        "volumes": [
            {"mode": "RO", "container_path": "data", "host_path": "/mnt/nfs"},
            {"mode": "RW", "container_path": "/scratch", "host_path": "/scratch"},
        ],
    } == decoded["executor"]["container"]
    assert plain(sent) == plain(decoded)


def test_subscription_matches_mesos_schema(schema) -> None:
    """FrameworkInfo, with filters and constraints of offers."""
    subscribe = {
        "framework_info": encode.framework_info(SPEC, FrameworkId("fw-1"), "host", "http://host:1"),
        "offer_constraints": encode.offer_constraints(SPEC),
    }
    call = {"type": "SUBSCRIBE", "subscribe": subscribe, "framework_id": {"value": "fw-1"}}

    assert plain(call) == plain(schema.read("mesos.v1.scheduler.Call", call))


def plain(value):
    """Return whole numbers as text, as protobuf's JSON writes 64-bit integers."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    return str(int(value)) if whole else value


def test_unknown_field_is_detected(schema) -> None:
    """Otherwise these tests would prove nothing."""
    call = launch_call()
    call["accept"]["operations"][0]["launch"]["task_infos"][0]["executor"]["container"]["volume"] = []

    with pytest.raises(Exception, match='no field named "volume"'):
        schema.read("mesos.v1.scheduler.Call", call)
