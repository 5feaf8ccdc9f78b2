"""Conversion of TFJobs and PyTorchJobs; each omitted field is reported."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.commands import run_program
from kit.options import load_spec
from tf_executor.contract.payload import Payload
from tf_executor.launch.environment import fill_placeholders, placeholders
from tf_scheduler.convert import tfjob, tony
from tf_scheduler.convert.conversion import InvalidConversionError, convert_job_file
from tf_scheduler.convert.tables import Note
from tf_scheduler.errors import OptionsError

FILE = Path(__file__).parent / "files" / "tfjob.yaml"


@pytest.fixture(scope="module")
def converted():
    return convert_job_file(FILE.read_bytes(), "tfjob.yaml")


def notes(converted):
    return {warning.path: warning.message for warning in converted.warnings}


def test_jobs_resources_and_commands_are_converted(converted) -> None:
    options = converted.options

    assert "mnist-train" == options["service"]["name"]
    chief = options["chief"]
    assert (1, 0.5, 2048, 10240, 45.0) == tuple(chief[name] for name in ("count", "cpus", "mem", "disk", "kill_grace"))
    assert "cd '/srv/my job' && python train.py --dir=\"${MODEL_DIR}\"'/run 1' --steps 100" == chief["command"]
    assert [{"name": "MODEL_DIR", "value": "/models"}] == chief["environment"]
    assert [{"source": "hub/token", "env": "TOKEN", "jobs": "chief"}] == options["secrets"]
    assert "sh -c 'python ps.py && echo done'" == options["parameter_server"]["command"]
    assert (0, 3, 2) == (options["worker"]["count"], options["gpu_worker"]["count"], options["gpu_worker"]["gpus"])
    assert [["@zone", "IS", "eu-1"], ["accelerator", "IS", "v100"]] == json.loads(
        options["gpu_worker"]["placement_constraint"]
    )


def test_host_paths_become_volumes(converted) -> None:
    """Of the tasks that mount them."""
    expected = {"host_path": "/mnt/disk/mnist", "container_path": "/disk", "mode": "RO", "jobs": "gpu_worker"}

    assert [expected] == converted.options["volumes"]


def test_policies_are_converted(converted) -> None:
    """Success, clean-up, deadline, queue, and the restart policy of each job."""
    options = converted.options

    assert {"success": "all_workers", "clean_up": "all", "deadline": 7200.0, "keep_seconds": 600.0} == options["finish"]
    assert 5 == options["restart"]["max_failures"]
    assert "on_failure" == options["chief"]["restart_policy"]
    assert "restart_policy" not in options["parameter_server"]
    assert "exit_code" == options["gpu_worker"]["restart_policy"]
    assert "research" == options["service"]["role"]


@pytest.mark.parametrize(
    "path",
    [
        "ConfigMap extra",
        "metadata.namespace",
        "metadata.labels",
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "spec.tfReplicaSpecs.Chief.template.spec.containers[1]",
        "spec.tfReplicaSpecs.Chief.template.spec.containers[0].env[2]",
        "spec.tfReplicaSpecs.PS.template.spec.containers[0].ports[1]",
        "spec.tfReplicaSpecs.PS.template.spec.containers[0].resources.limits.example.com/fpga",
        "spec.tfReplicaSpecs.PS.template.spec.containers[0].surprise",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].volumeMounts[0]",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].volumeMounts[2]",
        "service.strategy",
    ],
)
def test_unsupported_field_is_reported_by_path(converted, path: str) -> None:
    assert notes(converted)[path]


def test_result_is_a_valid_options_file(converted) -> None:
    spec = load_spec(converted.options, {"executor": {"url": "x"}})

    assert 6 == spec.task_count


JOB = """
kind: TFJob
metadata: {name: small}
spec:
  runPolicy: {cleanPodPolicy: Running, backoffLimit: 0}
  successPolicy: AllWorkers
  tfReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: tensorflow, command: [python, a.py], resources: {limits: {cpu: 1}}}]}}
"""
WORKER = "spec.tfReplicaSpecs.Worker"
INVALID = "omitted: invalid value"


def test_backoff_limit_0_allows_no_failure() -> None:
    """Whatever the restart policy."""
    assert 0 == convert_job_file(JOB.encode(), "it").options["restart"]["max_failures"]


def test_policy_never_is_noted() -> None:
    """The first kill of a task would end the job."""
    reported = notes(convert_job_file(JOB.replace("OnFailure", "Never").encode(), "it"))

    assert reported[f"{WORKER}.restartPolicy"].startswith("Never: the first failure of a task fails the job")


def test_amount_that_is_not_requested_is_reported() -> None:
    """Its default, 1 cpu or 4096 MB, may be another than the program needs."""
    for requested, missing, option in (("cpu: 1", "memory", "mem"), ("memory: 1Gi", "cpu", "cpus")):
        reported = notes(convert_job_file(JOB.replace("cpu: 1", requested).encode(), "it"))

        assert f"no {missing} is requested, so worker.{option} keeps its default" == reported[f"{WORKER}: {missing}"]
        assert 1 == sum("keeps its default" in message for message in reported.values())


CONTAINER = f"{WORKER}.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("right", "wrong", "path", "message"),
    [
        ("cleanPodPolicy: Running", "cleanPodPolicy: Sometimes", "spec.runPolicy.cleanPodPolicy", INVALID),
        ("successPolicy: AllWorkers", "successPolicy: Maybe", "spec.successPolicy", INVALID),
        ("restartPolicy: OnFailure", "restartPolicy: Often", f"{WORKER}.restartPolicy", INVALID),
        ("cpu: 1", "cpu: one", f"{CONTAINER}.resources: cpu", INVALID),
        ("cpu: 1", "nvidia.com/gpu: two", f"{CONTAINER}.resources: nvidia.com/gpu", INVALID),
        ("backoffLimit: 0", "backoffLimit: 0.5", "spec.runPolicy.backoffLimit", INVALID),
        ("backoffLimit: 0", "backoffLimit: two", "spec.runPolicy.backoffLimit", "expected a whole number"),
        ("backoffLimit: 0", "activeDeadlineSeconds: two", "spec.runPolicy.activeDeadlineSeconds", "expected a number"),
        # The meaning of a missing clean-up changed with operator 1.6, from Running to None.
        ("cleanPodPolicy: Running, ", "", "spec.runPolicy.cleanPodPolicy", ""),
        ("cleanPodPolicy: Running, ", "cleanPodPolicy: null, ", "spec.runPolicy.cleanPodPolicy", ""),
        ("cleanPodPolicy: Running, ", "cleanPodPolicy: Running, ", "spec.runPolicy.cleanPodPolicy", None),
        # Changed values are reported with the old and the new one.
        ("kind: TFJob", "kind: TFJob\napiVersion: kubeflow.org/v99", "apiVersion", "'kubeflow.org/v99': read as"),
        ("kind: TFJob", "kind: TFJob\napiVersion: kubeflow.org/v1", "apiVersion", None),
        ("kind: TFJob", "kind: TFJob\napiVersion: kubeflow.org/v1", "metadata.name", None),
        ("name: small", "name: 日本", "metadata.name", "'日本' converted to tensorflow"),
        ("name: small", f"name: {'n' * 300}", "metadata.name", f"converted to {'n' * 63}:"),
        ("cpu: 1", "amd.com/gpu: 1", f"{CONTAINER}.resources: amd.com/gpu", "converted to gpus"),
    ],
)
def test_value_that_is_omitted_or_changed_is_reported(right: str, wrong: str, path: str, message: str | None) -> None:
    reported = notes(convert_job_file(JOB.replace(right, wrong).encode(), "it"))

    assert (message is not None) == (path in reported)
    assert (message or "") in reported.get(path, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("replicas: 2", "replicas: three"), ("replicas: 2", "replicas: 2.5"), ("[python, a.py]", "python a.py")],
)
def test_failed_conversion_has_notes(right: str, wrong: str) -> None:
    """An omitted field is why it fails."""
    with pytest.raises(InvalidConversionError) as failed:
        convert_job_file(JOB.replace(right, wrong).encode(), "it")

    assert [True] == ["omitted: invalid value" in one.message for one in failed.value.warnings if "Worker." in one.path]


def test_gpus_of_all_vendors_are_converted() -> None:
    result = convert_job_file(JOB.replace("cpu: 1", '"nvidia.com/gpu": 0, "amd.com/gpu": 1').encode(), "it")

    assert (2, 1) == (result.options["gpu_worker"]["count"], result.options["gpu_worker"]["gpus"])


def test_job_in_a_list_is_converted() -> None:
    """As kubectl writes it."""
    text = yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(JOB), {"kind": "Service"}]})

    result = convert_job_file(text.encode(), "it")

    assert 2 == result.options["worker"]["count"]
    assert "Service" in notes(result)


def test_pytorchjob_uses_strategy_pytorch_ddp() -> None:
    """Its master is the chief, which trains, too."""
    words = (("TFJob", "PyTorchJob"), ("tfReplica", "pytorchReplica"), ("name: tensorflow", "name: pytorch"))
    document = JOB
    for old, new in words:
        document = document.replace(old, new)
    job = yaml.safe_load(document)
    job["spec"]["pytorchReplicaSpecs"]["Master"] = {**job["spec"]["pytorchReplicaSpecs"]["Worker"], "replicas": 1}
    job["spec"] |= {"elasticPolicy": {"minReplicas": 1}, "nprocPerNode": "2"}
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"][0]["command"] = ["torchrun", "--rdzv_endpoint=small-worker-0:23456", "ddp.py"]

    result = convert_job_file(yaml.safe_dump(job).encode(), "it")

    assert ("pytorch_ddp", 1, 2) == (
        result.options["service"]["strategy"],
        result.options["chief"]["count"],
        result.options["worker"]["count"],
    )
    assert "the number of workers is fixed" in notes(result)["spec.elasticPolicy"]
    assert [{"name": "PET_NPROC_PER_NODE", "value": "2"}] == result.options["service"]["environment"]
    path = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command"
    assert "PET_RDZV_ENDPOINT" in notes(result)[path]


def test_nproc_per_node_of_elastic_policy_is_kept() -> None:
    """Where torchrun's own policy has it; c10d needs no endpoint, and so no note."""
    job = yaml.safe_load(JOB.replace("TFJob", "PyTorchJob").replace("tfReplica", "pytorchReplica"))
    job["spec"]["elasticPolicy"] = {"nProcPerNode": 3}
    box = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    box["command"] = ["torchrun", "--rdzv_backend=c10d", "ddp.py"]

    result = convert_job_file(yaml.safe_dump(job).encode(), "it")

    assert [{"name": "PET_NPROC_PER_NODE", "value": "3"}] == result.options["service"]["environment"]
    assert not [path for path in notes(result) if path.endswith(".command")]


@pytest.mark.parametrize(("value", "reported"), [("auto", "for each GPU"), ("two", "expected a whole number")])
def test_nproc_per_node_without_number_is_reported(value: str, reported: str) -> None:
    text = JOB.replace("TFJob", "PyTorchJob").replace("tfReplica", "pytorchReplica")
    result = convert_job_file(text.replace("  runPolicy", f"  nprocPerNode: {value}\n  runPolicy").encode(), "it")

    assert reported in notes(result)["spec.nprocPerNode"]
    assert "environment" not in result.options["service"]


def test_fields_of_real_clusters_are_converted_or_reported() -> None:
    job = yaml.safe_load(JOB)
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "None", "suspend": False}
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    pod["metadata"] = {"annotations": {"sidecar.istio.io/inject": "false"}}
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}
    pod["spec"].update(
        nodeSelector={"pool": "cpu"},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
        volumes=[{"name": "d", "hostPath": {"path": "/mnt/d"}}, claim],
        serviceAccountName="trainer",
        imagePullSecrets=[{"name": "registry"}],
    )
    pod["spec"]["containers"][0].update(
        envFrom=[{"configMapRef": {"name": "settings"}}],
        volumeMounts=[{"name": "d", "mountPath": "/d"}, {"name": "c", "mountPath": "/c"}],
    )

    result = convert_job_file(yaml.safe_dump(job).encode(), "it")

    inside = ("tolerations", "serviceAccountName", "imagePullSecrets", "containers[0].envFrom", "nodeSelector")
    expected = {f"{WORKER}.template.spec.{name}" for name in (*inside, "containers[0].volumeMounts[1]")}
    assert expected <= notes(result).keys()
    assert "keep_seconds" in notes(result)["spec.runPolicy.cleanPodPolicy"]
    assert [("/mnt/d", "/d")] == [(one["host_path"], one["container_path"]) for one in result.options["volumes"]]


def every_place(node, path=()):
    """Yield the path of the node and of every value in it."""
    yield path
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in parts:
        yield from every_place(value, (*path, name))


INTERNALS = re.compile(r"NoneType|has no attr|object is not|could not convert|None (?!is)|True|argument|'[a-z]+'\)")


@pytest.mark.parametrize("leaf", [None, "two", 3, True, [None], ["two"], {}, {"a": None}], ids=str)
def test_unexpected_value_is_reported_with_its_path(leaf) -> None:
    """At every path of the file; no message is an exception of Python."""
    document = next(yaml.safe_load_all(FILE.read_text()))
    for path in [*every_place(document)][1:]:
        changed = copy.deepcopy(document)
        node = changed
        for name in path[:-1]:
            node = node[name]
        node[path[-1]] = copy.deepcopy(leaf)

        messages = [one for one in tfjob.convert(changed, "run") if isinstance(one, Note)]

        assert [] == [str(one) for one in messages if INTERNALS.search(one.message) or not one.path]


def test_null_omits_one_field_only() -> None:
    """A replica, a container, a variable; the rest of the job is converted."""
    job = yaml.safe_load(JOB)
    job["spec"]["tfReplicaSpecs"]["PS"] = None
    box = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    box["env"] = [None, {"name": "A", "value": 1}, {"value": "2"}]
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = [None, box]
    job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = None

    result = convert_job_file(yaml.safe_dump(job).encode(), "it")

    worker, messages = result.options["worker"], notes(result)
    assert (1, "python a.py", [{"name": "A", "value": "1"}]) == (
        worker["count"],
        worker["command"],
        worker["environment"],
    )
    assert "null" in messages["spec.tfReplicaSpecs.PS"]
    assert "replicas" in messages["spec.tfReplicaSpecs.PS"]
    assert "null" in messages[f"{WORKER}.template.spec.containers[0]"]
    assert "null" in messages[f"{WORKER}.template.spec.containers[1].env[0]"]
    assert "expected an object whose field name is text" in messages[f"{WORKER}.template.spec.containers[1].env[2]"]


@pytest.mark.parametrize("name", tony.PLACEHOLDERS)
def test_braces_in_a_command_are_not_replaced(name: str) -> None:
    """They are escaped, because the executor replaces placeholders."""
    words = [f"a={{{name}}}", f"it's {{{name}}}", f"${{{name}}}"]
    job = yaml.safe_load(JOB)
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"] = ["printf", "%s\n", *words]

    line = convert_job_file(yaml.safe_dump(job).encode(), "it").options["worker"]["command"]

    payload = Payload("worker-0", "worker", 0, command=line, tf_config={})
    out = run_program("sh", "-c", fill_placeholders(line, payload, "/sandbox"), check=True).stdout
    assert words == out.splitlines()
    assert name in placeholders(payload, "/sandbox")


LEAVES = st.sampled_from(["none", 0, 1.5, "text", "$(A) $$(B) ' \" ;", True, None, ["a", 1], {"a": {"b": 1}}, [], {}])
SPOTS = (
    ("metadata",),
    ("spec",),
    ("spec", "runPolicy"),
    ("spec", "tfReplicaSpecs"),
    ("spec", "tfReplicaSpecs", "PS"),
    ("spec", "tfReplicaSpecs", "PS", "template"),
    ("spec", "tfReplicaSpecs", "PS", "template", "spec"),
    ("spec", "tfReplicaSpecs", "PS", "template", "spec", "containers", 0),
    ("spec", "tfReplicaSpecs", "PS", "template", "spec", "containers", 0, "resources"),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SPOTS), st.data(), LEAVES)
def test_any_change_gives_valid_options_or_options_error(location, data, leaf) -> None:
    """For any entry replaced or added."""
    document = next(yaml.safe_load_all(FILE.read_text()))
    node = document
    for name in location:
        node = node[name]
    node[data.draw(st.sampled_from([*node, "unheardOf"]))] = copy.deepcopy(leaf)

    try:
        result = convert_job_file(yaml.safe_dump(document).encode(), "it")
    except OptionsError:
        return
    load_spec(result.options, {"executor": {"url": "x"}})


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_unknown_field_is_always_reported(name) -> None:
    document = next(yaml.safe_load_all(FILE.read_text()))
    document["spec"][f"x-{name}"] = 1

    assert f"spec.x-{name}" in notes(convert_job_file(yaml.safe_dump(document).encode(), "it"))


@pytest.mark.parametrize(
    ("right", "wrong", "path"),
    [
        ("tfReplicaSpecs:", "tfReplicaSpec:", "spec.tfReplicaSpec"),
        ("cleanPodPolicy:", "cleanPodPolcy:", "spec.runPolicy.cleanPodPolcy"),
    ],
)
def test_misspelt_field_has_a_suggestion(right: str, wrong: str, path: str) -> None:
    """One for a field with all that is below it."""
    try:
        warnings = convert_job_file(JOB.replace(right, wrong).encode(), "it").warnings
    except InvalidConversionError as error:
        warnings = error.warnings

    texts = [str(one) for one in warnings if one.path.startswith(path)]
    assert [f"{path}: omitted: unknown field; did you mean `{right.rstrip(':')}`?"] == texts


OLD = """
apiVersion: kubeflow.org/v1alpha1
kind: TfJob
metadata: {name: old}
spec:
  tfImage: example/tf:1.3
  replicaSpecs:
    - {replicas: 1, tfReplicaType: MASTER, template: {spec: {containers: [{name: tensorflow, args: [--steps=3]}]}}}
    - {replicas: 2, tfReplicaType: PS}
"""


def test_v1alpha1_list_of_replicas_is_converted() -> None:
    """And images without a command."""
    result = convert_job_file(OLD.encode(), "old.yaml", "python train.py")

    assert (1, 2, 0) == tuple(result.options[name]["count"] for name in ("chief", "parameter_server", "worker"))
    assert "python train.py --steps=3" == result.options["chief"]["command"]
    assert "example/tf:1.3" == result.options["service"]["tf_image"]


def test_missing_command_is_reported() -> None:
    """The entry point of an image is unknown."""
    with pytest.raises(OptionsError, match=r"old.yaml: the file contains no command.*--command"):
        convert_job_file(OLD.encode(), "old.yaml")
