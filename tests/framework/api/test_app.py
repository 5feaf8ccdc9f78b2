"""The API without a network: paths, bodies, codes."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from asgi_client import ask, ask_async
from builders import a_spec, a_status, declaring, ports, with_fields
from kit.api import ServiceLoop, a_record, an_app, registered
from tf_executor.contract.reports import Progress
from tf_executor.contract.settings import Liveness, RunSettings
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.views import plan_messages
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.events import PodCommand, ProgressReported, StopRequested
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.offer import Evaluation
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy
from tf_scheduler.model.reasons import AgentRejected, TooSmall
from tf_scheduler.model.redaction import MASK
from tf_scheduler.model.resources import Shortage
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.state import Configuration, Result
from tf_scheduler.model.task import PodVerb
from tf_scheduler.options.configurations import select_configuration
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.options.spec import to_spec
from tf_scheduler.store.interface import StoreError

PREVIEW = "/v1/tf/update/preview"


@pytest.fixture
def state():
    """A chief and a ps that run; worker-0 lacks CPUs."""
    spec = declaring(a_spec(workers=1), "EPOCHS")
    records = {name: a_record(spec, name, generation=2) for name in ("ps-0", "chief-0")}
    why = (AgentRejected("agent-1", (TooSmall((Shortage("cpus", 4000, 2000),)),)),)
    return registered(
        spec,
        tasks=records,
        statuses={record.id: a_status(record.id) for record in records.values()},
        reasons={"worker-0": why},
        evaluations=(Evaluation(7.0, 3, 2, refused={TaskName("worker-0"): why}),),
    )


@pytest.fixture
def app(state):
    return an_app(state)


@pytest.fixture
def loop(state):
    return ServiceLoop(state)


def test_tasks_have_mesos_status_and_pending_reasons(app) -> None:
    """A single task has the same keys."""
    tasks = {task["name"]: task for task in ask(app, "/v1/tasks").body["tasks"]}

    assert ["ps-0", "worker-0", "chief-0"] == list(tasks)
    assert ("RUNNING", "10.0.0.1:31000") == (tasks["ps-0"]["status"], tasks["ps-0"]["address"])
    assert ("PENDING", None) == (tasks["worker-0"]["status"], tasks["worker-0"]["address"])
    assert "agent-1" in tasks["worker-0"]["pending"][0]
    assert tasks["ps-0"] == ask(app, "/v1/tasks/ps-0").body


def test_json_errors_list_valid_names(app) -> None:
    reply = ask(app, "/v1/tasks/worker-7")

    assert 404 == reply.code
    assert {"status": 404, "code": "not_found"}.items() <= reply.body["error"].items()
    assert "ps-0, worker-0, chief-0" in reply.body["error"]["message"]


@pytest.mark.parametrize("accept", ["*/*", "text/html"])
def test_sdk_errors_are_text_unless_json_is_accepted(app, accept: str) -> None:
    """The SDK's tools print them."""
    assert "Pod worker-7 not found" == ask(app, "/v1/pod/worker-7/status", headers={"Accept": accept}).text
    asked = ask(app, "/v1/pod/worker-7/status", headers={"Accept": "application/json"})
    assert "Pod worker-7 not found" == asked.body["error"]["message"]


def test_pending_has_reasons_of_last_evaluation(app) -> None:
    body = ask(app, "/v1/pending").body

    assert (7.0, 3, 2) == (body["evaluated_at"], body["offers"], body["agents"])
    assert ["worker-0"] == [task["name"] for task in body["tasks"]]
    assert "agent agent-1" in body["tasks"][0]["reasons"][0]


def test_pending_omits_plans_that_are_not_started(loop) -> None:
    retune = PlanSpec("retune", PlanStrategy.SERIAL, (PhaseSpec("again", "ps", PlanStrategy.SERIAL),))
    loop.state = replace(loop.state, spec=replace(loop.state.spec, plans={"retune": retune}))
    names = lambda: [(task["name"], task["plan"]) for task in ask(loop.app, "/v1/pending").body["tasks"]]  # noqa: E731

    assert [("worker-0", "deploy")] == names()
    assert 200 == ask(loop.app, "/v1/plans/retune/start", "POST", body=b"{}").code
    assert [("worker-0", "deploy"), ("ps-0", "retune")] == names()


def test_cluster_has_tf_config_of_each_task(app) -> None:
    body = ask(app, "/v1/tf/cluster").body

    assert (2, {"chief": ["10.0.0.1:31000"], "ps": ["10.0.0.1:31000"]}) == (body["generation"], body["cluster"])
    assert {"type": "chief", "index": 0} == body["tasks"][0]["tf_config"]["task"]


def test_progress_has_curve(loop) -> None:
    """JSON has no NaN, so such a loss is null."""
    reports = [
        Progress(n, n * 1.0, 10 * n, 100, loss, saved_step=n, source="output", metrics={"lr": 0.1, "x": loss})
        for n, loss in ((1, 0.5), (2, float("nan")))
    ]
    for progress in reports:
        loop.put(lambda progress=progress: ProgressReported(TaskId("chief-0__1"), progress))

    body = ask(loop.app, "/v1/tf/progress?points=5").body
    chief = body["tasks"][2]

    assert ("chief-0", "chief-0", 20, 100, None) == (
        body["leader"],
        *(chief[key] for key in ("name", "step", "total", "loss")),
    )
    assert [(10, 0.5), (20, None)] == [(point["step"], point["loss"]) for point in chief["points"]]
    assert ("output", {"lr": 0.1, "x": None}, 2) == (chief["source"], chief["metrics"], chief["saved_step"])
    assert [{"lr": 0.1, "x": 0.5}, {"lr": 0.1, "x": None}] == [point["metrics"] for point in chief["points"]]
    assert {"lr": "0.1", "x": "nan"}.items() <= body["summary"].items()
    assert {"tasks": 1, "reporting": 1, "step": 20}.items() <= body["jobs"]["chief"].items()
    assert {"tasks": 1, "reporting": 0, "step": None}.items() <= body["jobs"]["ps"].items()


def test_progress_of_some_tasks(loop) -> None:
    """The jobs cover all tasks."""
    loop.put(lambda: ProgressReported(TaskId("chief-0__1"), Progress(1, 1.0, step=10)))
    body = ask(loop.app, "/v1/tf/progress?points=5&tasks=ps-0,none").body

    assert ["ps-0"] == [task["name"] for task in body["tasks"]]
    assert 10 == body["jobs"]["chief"]["step"]


def test_result_is_null_until_decided(loop) -> None:
    """Health stays 200 afterwards."""
    assert {"over": False, "verdict": None, "reason": None, "decided_at": None} == ask(loop.app, "/v1/tf/result").body

    loop.put(lambda: StopRequested("somebody wants it"))

    assert ("stopped", 9.0) == tuple(ask(loop.app, "/v1/tf/result").body[key] for key in ("verdict", "decided_at"))
    assert 200 == ask(loop.app, "/v1/health").code


def test_plan_command_accepts_ids(loop) -> None:
    """As in the SDK."""
    plan = ask(loop.app, "/v1/plan").body
    phase = plan["phases"][1]

    reply = ask(loop.app, f"/v1/plan/forceComplete?phase={phase['id']}&step={phase['steps'][0]['id']}", "POST")

    message = "Received cmd: forceComplete for Plan: deploy, Phase: worker, Step: worker-0"
    assert (200, {"message": message}) == (reply.code, reply.body)
    assert Status.COMPLETE == ask(loop.app, "/v1/plan").body["status"]


@pytest.mark.parametrize(
    ("path", "body", "code", "text"),
    [
        ("/v1/plans/deploy/restart?phase=none", b"", 404, "Phase none not found"),
        ("/v1/plans/deploy/restart?step=worker-0", b"", 400, "Missing phase"),
        ("/v1/plans/deploy/restart?phase=", b"", 400, "phase: empty"),
        ("/v1/plans/deploy/forceComplete?phase=none&step=", b"", 400, "step: empty"),
        ("/v1/plans/deploy/start", b"", 400, "Couldn't parse parameters: invalid JSON"),
        ("/v1/plans/deploy/start", b"[]", 400, "expected a JSON object"),
        ("/v1/plans/deploy/start", b"null", 400, "null is not allowed"),
        ("/v1/plans/deploy/start", b"[" * 60_000, 400, "invalid JSON: nested too deeply"),
        ("/v1/plans/deploy/start", b'{"A": "\\ud800"}', 400, "lone surrogate \\ud800"),
        ("/v1/plans/deploy/start", b"\xff", 400, "not UTF-8: invalid byte at position 0"),
        ("/v1/plans/deploy/start", b"9" * 5000, 400, "number with too many digits"),
        ("/v1/plans/deploy/start", b'{"A": 1}', 400, "A: expected a string"),
        ("/v1/plans/deploy/start", b'{"A-B": "1"}', 400, "A-B is not a valid environment variable name"),
    ],
)
def test_invalid_commands_are_refused(loop, path: str, body: bytes, code: int, text: str) -> None:
    """With the SDK's codes and messages."""
    reply = ask(loop.app, path, "POST", body=body)

    assert code == reply.code
    assert text in reply.text


def test_plan_start_passes_parameters(loop) -> None:
    """The parameters become environment variables of the plan's tasks."""
    reply = ask(loop.app, "/v1/plans/deploy/start", "POST", body=b'{"EPOCHS": "3"}')

    assert {"message": "Received cmd: start deploy with parameters: {EPOCHS=3}"} == reply.body
    assert {"EPOCHS": "3"} == loop.state.stored.controls["deploy"].parameters


def test_audit_log_names_variables_without_values(loop, caplog: pytest.LogCaptureFixture) -> None:
    """Also if refused. A line end in a name cannot imitate a second entry."""
    caplog.set_level("INFO", "tf_scheduler.audit")
    ask(loop.app, "/v1/plans/deploy/start", "POST", body=b'{"EPOCHS": "12345"}')
    refused = ask(loop.app, "/v1/plans/deploy/start", "POST", body=b'{"PYTHONWARNINGS": "12345", "a\\nb": "12345"}')

    assert 400 == refused.code
    path = "audit: POST /v1/plans/deploy/start"
    assert [f"{path} with EPOCHS by ", f"{path} with PYTHONWARNINGS, a?b by "] == [
        f"{line.partition(' by ')[0]} by " for line in caplog.messages
    ]
    assert "12345" not in caplog.text


def test_command_after_end_is_409(state) -> None:
    result = Result(Verdict.SUCCEEDED, "all done", 8.0)
    loop = ServiceLoop(with_fields(state, finished=True, result=result))

    assert 409 == ask(loop.app, "/v1/plans/deploy/stop", "POST").code
    assert [] == loop.events


def test_command_times_out_with_503(state, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tf_scheduler.api.http.backend.TIMEOUT", 0.01)
    app = create_app(Backend(lambda: Snapshot(state), lambda thunk: None))

    assert 503 == ask(app, "/v1/plans/deploy/stop", "POST").code


def test_view_is_cached_until_state_changes(state, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many clients that poll one path cost little more than one."""
    asked, present = [], [state]
    real = plan_messages.plans
    monkeypatch.setattr(plan_messages, "plans", lambda state, view: asked.append(state) or real(state, view))
    app = create_app(lambda: Snapshot(present[0]))

    for _ in range(3):
        ask(app, "/v1/plans")
    present[0] = with_fields(state, framework_id="framework-2")
    ask(app, "/v1/plans")

    assert [state, present[0]] == asked


def test_time_without_progress_is_not_cached(state) -> None:
    """The state does not change while a training stands still."""
    now = [100.0]
    silent = with_fields(state, last_progress=("worker-0", 40.0))
    app = create_app(lambda: Snapshot(silent, now=now[0]))

    for seconds, text in ((60, "1 min"), (70, "1 min 10 s")):
        now[0] = 40.0 + seconds
        notices = ask(app, "/v1/tf/overview").body["notices"]
        assert [f"no progress for {text}, last from worker-0"] == notices


@pytest.mark.parametrize("points", ["-1", "x", "1_0"])
def test_invalid_parameter_is_named(app, points: str) -> None:
    reply = ask(app, f"/v1/tf/progress?points={points}")

    assert (400, "bad_request") == (reply.code, reply.body["error"]["code"])
    assert ": expected an integer from 0 to 512" in reply.body["error"]["message"]


def test_debug_offers_have_reasons(app) -> None:
    body = ask(app, "/v2/debug/offers").body

    assert (0, 1, {"TooSmall": 1}, {"agent-1": 1}) == tuple(body[key] for key in list(body)[:4])
    assert ("worker-0", "fail", 7000) == tuple(
        body["offers"][0][k] for k in ("pod-instance-name", "outcome", "timestamp")
    )
    assert body == ask(app, "/v1/debug/offers").body


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("plan=none", {"invalid-input": "Supplied plan not found in list of all available plans!"}),
        ("plan=deploy&phase=none", {"invalid-input": "Supplied phase not found in the plan!"}),
    ],
)
def test_debug_plans_invalid_filter_is_200(app, query: str, answer) -> None:
    """As in the SDK."""
    reply = ask(app, f"/v1/debug/plans?{query}")

    assert (200, answer) == (reply.code, reply.body)


def test_pod_info_has_target_configuration(state) -> None:
    """Unknown for tasks of earlier options."""
    old = replace(state.stored.tasks["chief-0"], config="older")
    stored = {"a-b": Configuration("a-b", 1, 1.0, "t", {})}
    now = with_fields(state, tasks={**state.stored.tasks, "chief-0": old}, configurations=stored)
    app = create_app(lambda: Snapshot(now))
    labels = {
        pod: {
            item["key"]: item["value"] for item in ask(app, f"/v1/pod/{pod}/info").body[0]["info"]["labels"]["labels"]
        }
        for pod in ("ps-0", "chief-0")
    }

    assert [labels["ps-0"]["target_configuration"]] == ask(app, "/v1/configurations/targetId").body
    assert "target_configuration" not in labels["chief-0"]


def test_pods_are_tasks(app) -> None:
    """In protobuf's JSON format."""
    assert ["chief-0", "ps-0"] == ask(app, "/v1/pod").body
    assert ["chief", "ps"] == [pod["name"] for pod in ask(app, "/v1/pod/status").body["pods"]]
    (launch,) = ask(app, "/v1/pod/ps-0/info").body
    assert ("agent-1-id", "python train.py") == (launch["info"]["slaveId"]["value"], launch["info"]["command"]["value"])
    assert ("TASK_RUNNING", "ps-0__1") == (launch["status"]["state"], launch["status"]["taskId"]["value"])


def test_pod_command_returns_sdk_answer(loop) -> None:
    reply = ask(loop.app, "/v1/pod/ps-0/pause", "POST")

    assert (200, {"pod": "ps-0", "tasks": ["ps-0"]}) == (reply.code, reply.body)
    assert [PodCommand(PodVerb.PAUSE, "ps-0")] == loop.events
    assert "PAUSING" == ask(loop.app, "/v1/pod/ps-0/status").body["tasks"][0]["status"]
    assert 208 == ask(loop.app, "/v1/pod/ps-0/pause", "POST", body=b'["ps-0"]').code


def test_scale_changes_the_number_of_workers(loop) -> None:
    loop.state = replace(loop.state, spec=replace(loop.state.spec, max_workers=3))

    assert (200, {"message": "Received cmd: scale worker 3"}) == (
        (reply := ask(loop.app, "/v1/tf/scale", "POST", body=b'{"worker": 3}')).code,
        reply.body,
    )
    assert [208, 409] == [
        ask(loop.app, "/v1/tf/scale", "POST", body=body).code for body in (b'{"worker": 3}', b'{"worker": 4.0}')
    ]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{}", b"3", b'{"worker": 0}', b'{"worker": 1.5}', b'{"worker": true}', b'{"ps": 1}']
)
def test_scale_rejects_other_bodies(loop, body: bytes) -> None:
    assert 400 == ask(loop.app, "/v1/tf/scale", "POST", body=body).code
    assert [] == loop.events


@pytest.mark.parametrize("body", [b"{", b"{}", b"1", b"null", b'[""]', b'["ps-0", "ps-0"]'])
def test_pod_command_rejects_other_bodies(loop, body: bytes) -> None:
    assert 400 == ask(loop.app, "/v1/pod/ps-0/pause", "POST", body=body).code
    assert [] == loop.events


def test_secrets_are_masked_in_pods_and_configurations(state) -> None:
    variables, command = {"API_TOKEN": "s3cret", "EPOCHS": "3"}, "PGPASSWORD=s3cret python train.py"
    jobs = tuple(replace(job, environment=variables, command=command) for job in state.spec.jobs)
    app = create_app(lambda: Snapshot(replace(state, spec=replace(state.spec, jobs=jobs))))

    for path in ("/v1/pod/ps-0/info", "/v1/configurations/target", "/v1/tasks", "/v1/tf/overview"):
        assert "s3cret" not in ask(app, path).text
    assert "EPOCHS" in ask(app, "/v1/configurations/target").text


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.metadata("secret")], ids=str)
def test_secret_options_are_masked(option) -> None:
    """In the current and in the previous configuration."""
    state = registered(to_spec(resolve({"service": {"command": "x"}})))
    for number, command in enumerate(("x", "y")):
        document: dict[str, Any] = {"service": {"command": command}}
        inner: dict[str, Any] = document
        for name in option.path[:-1]:
            inner = inner.setdefault(name, {})
        inner[option.path[-1]] = "s3cret"
        chosen = select_configuration(resolve(document), state.stored.configurations, lambda _: {}, float(number))
        state = apply(replace(state, spec=to_spec(chosen.options)), *chosen.changes)
    app = create_app(lambda: Snapshot(state))

    for path in ("target", *ask(app, "/v1/configurations").body):
        reply = ask(app, f"/v1/configurations/{path}")
        assert (200, False, True) == (reply.code, "s3cret" in reply.text, MASK in reply.text)
    assert 2 == len(state.stored.configurations)


def test_pod_info_has_environment_of_task(state) -> None:
    """With the task's own TF_CONFIG, and secrets masked."""
    other = SecretSpec("file:c", env="OTHER", jobs=frozenset({"worker"}))
    secrets = (SecretSpec("file:a", env="PRIVATE"), SecretSpec("file:b", file="b"), other)
    spec = replace(state.spec, secrets=secrets, checkpoint_dir="/checkpoints")
    app = create_app(lambda: Snapshot(replace(state, spec=spec)))

    (launch,) = ask(app, "/v1/pod/ps-0/info").body
    variables = {item["name"]: item["value"] for item in launch["info"]["command"]["environment"]["variables"]}

    names = ("TASK_NAME", "JOB_NAME", "TASK_INDEX", "TASK_PORT")
    assert ("ps-0", "ps", "0", "31000") == tuple(variables[name] for name in names)
    config = json.loads(variables["TF_CONFIG"])
    assert {"type": "ps", "index": 0} == config["task"]
    assert {"chief": ["10.0.0.1:31000"], "ps": ["10.0.0.1:31000"]} == config["cluster"]
    assert ("10.0.0.1:31000", "/checkpoints") == (variables["TASK_ADDRESS"], variables["CHECKPOINT_DIR"])
    assert ("********", False) == (variables["PRIVATE"], "OTHER" in variables)


#: Keys of the SDK's service specification (dcos-commons, ServiceSpec, PodSpec, TaskSpec, ResourceSet).
SERVICE_KEYS = "name role principal user goal region web-url zookeeper replacement-failure-policy pod-specs"
POD_KEYS = (
    "type user count allow-decommission image networks rlimits uris task-specs placement-rule volumes secrets "
    "pre-reserved-role share-pid-namespace host-volumes external-volumes seccomp-unconfined seccomp-profile-name "
    "ipc-mode shm-size"
)
TASK_KEYS = (
    "name goal essential resource-set command-spec task-labels health-check-spec readiness-check-spec config-files "
    "discovery-spec kill-grace-period transport-encryption"
)
SET_KEYS = "id resource-specifications volume-specifications role pre-reserved-role principal resource-limits"


def test_configuration_has_all_sdk_keys(state) -> None:
    """Including those without a value; a pod's type is that of its status."""
    settings = RunSettings(liveness=Liveness("command", "true"), ulimits={"nofile": (1024, -1)})
    job = replace(state.spec.jobs[0], settings=settings, section="parameter_server")
    secrets = (SecretSpec("option:service.gcs_key", env="GCS"), SecretSpec("vault:a/b#c", file="c"))
    spec = replace(state.spec, jobs=(job, *state.spec.jobs[1:]), secrets=secrets)
    where = {"scheduler": {"state": "zk://me:pw@10.0.0.1:2181,10.0.0.2:2181/frameworks"}}
    stored = {"a": Configuration("a", 1, 1.0, "t", where)}
    app = create_app(lambda: Snapshot(with_fields(state, spec=spec, full_spec=spec, configurations=stored)))

    target = ask(app, "/v1/configurations/target").body

    assert set(SERVICE_KEYS.split()) <= target.keys()
    assert "10.0.0.1:2181,10.0.0.2:2181" == target["zookeeper"]
    for pod in target["pod-specs"]:
        assert set(POD_KEYS.split()) <= pod.keys()
        (task,) = pod["task-specs"]
        assert (set(TASK_KEYS.split()), set(SET_KEYS.split())) == (set(task), set(task["resource-set"]))
    pod = target["pod-specs"][0]
    assert ("ps", "parameter_server") == (pod["type"], pod["section"])
    assert [{"name": "RLIMIT_NOFILE", "soft": 1024, "hard": None}] == pod["rlimits"]
    assert ["********", "vault:a/b#c"] == [secret["secret"] for secret in pod["secrets"]]
    check = pod["task-specs"][0]["health-check-spec"]
    assert ("true", 3) == (check["command"], check["max-consecutive-failures"])


def test_configuration_by_id(app) -> None:
    (known,) = ask(app, "/v1/configurations/targetId").body

    assert ask(app, "/v1/configurations/target").body == ask(app, f"/v1/configurations/{known}").body
    assert 400 == ask(app, "/v1/configurations/latest").code
    assert 404 == ask(app, f"/v1/configurations/{'0' * 32}").code


def test_endpoint_has_addresses_and_dns_names(app) -> None:
    body = ask(app, "/v1/endpoints/chief").body

    assert {"address": ["10.0.0.1:31000"], "dns": ["chief-0.digits.autoip.dcos.thisdcos.directory:31000"]} == body
    assert 404 == ask(app, "/v1/endpoints/worker").code


def test_further_ports_are_endpoints(state) -> None:
    resources = (ports((31000, 31001), (31007, 31007)),)
    records = {name: replace(record, resources=resources) for name, record in state.stored.tasks.items()}
    app = an_app(with_fields(state, tasks=records))

    assert ["chief", "chief-port_1", "chief-port_2"] == [
        name for name in ask(app, "/v1/endpoints").body if name.startswith("chief")
    ]
    body = ask(app, "/v1/endpoints/chief-port_2").body
    assert {"address": ["10.0.0.1:31007"], "dns": ["chief-0.digits.autoip.dcos.thisdcos.directory:31007"]} == body
    assert [31001, 31007] == ask(app, "/v1/tasks/chief-0").body["more_ports"]
    assert 404 == ask(app, "/v1/endpoints/chief-port_3").code


def test_properties_are_sorted(app) -> None:
    assert ["chief-0:task-status", "ps-0:task-status"] == ask(app, "/v1/state/properties").body
    assert TaskState.RUNNING == ask(app, "/v1/state/properties/ps-0:task-status").body["state"]


def test_concurrent_commands_get_their_own_answers(loop) -> None:

    async def both():
        return await asyncio.gather(
            *(
                ask_async(loop.app, "POST", f"/v1/plans/{plan}/interrupt", {}, [b""], None)
                for plan in ("deploy", "none")
            )
        )

    assert [200, 404] == [reply.code for reply in asyncio.run(both())]


def test_update_preview_while_service_accepts_options(state) -> None:
    """409 while the service is being uninstalled, and after its end."""
    result = Result(Verdict.SUCCEEDED, "chief-0 has finished", 9.0)
    replies = {}
    for name, snapshot in {
        "runs": Snapshot(state),
        "is being uninstalled": Snapshot(state, uninstalling=True),
        "has finished": Snapshot(with_fields(state, result=result)),
    }.items():
        backend = Backend(partial(replace, snapshot), preview_update=lambda asked: {"asked": asked})
        replies[name] = ask(create_app(backend), PREVIEW, "POST", body=b'{"options": {}}')

    assert (200, {"asked": {"options": {}}}) == (replies["runs"].code, replies["runs"].body)
    for name in ("is being uninstalled", "has finished"):
        assert (409, True) == (replies[name].code, name in replies[name].body["error"]["message"])


@pytest.mark.parametrize(
    ("error", "code"), [(OptionsError([Problem("service.role", "cannot change")]), 409), (StoreError("disk full"), 500)]
)
def test_update_preview_error_has_its_own_status(state, error, code: int) -> None:
    """An error of the state store is not the client's fault."""

    def fail(_update) -> None:
        raise error

    reply = ask(create_app(Backend(lambda: Snapshot(state), preview_update=fail)), PREVIEW, "POST", body=b"{}")

    assert (code, str(error)) == (reply.code, reply.body["error"]["message"])
