"""Warnings about valid options, and masking of secrets."""

import pytest

from tf_scheduler.model.redaction import MASK
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import OPTIONS, mask_options
from tf_scheduler.options.warnings import find_local_warnings, find_warnings


def warnings_of(more=None, **service):
    own = {"command": "x", "strategy": "between_graph", "tf_image": "", "keep_files": 0, **service}
    document = {"service": own, **(more or {})}
    return [str(notice) for notice in find_warnings(document, resolve(document))]


@pytest.mark.parametrize(
    ("service", "more", "strategy", "why"),
    [
        ({"command": "x"}, {"parameter_server": {"count": 1}}, "between_graph", "there are parameter servers"),
        ({"command": "x"}, {"worker": {"count": 1}}, "independent", "a single task trains"),
        ({"command": "x"}, {"worker": {"count": 0}, "chief": {"count": 1}}, "independent", "a single task trains"),
        ({"command": "x"}, {"worker": {"count": 4}}, "multi_worker_mirrored", "several tasks train, without"),
        ({}, {"worker": {"count": 1, "command": "x"}}, "independent", "a single task trains"),
        ({"job_name": "a", "job_url": "b"}, {"worker": {"count": 1}}, "between_graph", ""),
        ({"job_name": "a", "job_url": "b"}, {"parameter_server": {"count": 0}}, "between_graph", ""),
        ({}, {}, "between_graph", ""),
    ],
)
def test_omitted_strategy_is_guessed_with_reason(service, more, strategy: str, why: str) -> None:
    """Only job_name and the check job keep the original strategy, without a notice."""
    document = {"service": service, **more}
    options = resolve(document)
    notices = [item.message for item in find_warnings(document, options) if item.path == "service.strategy"]

    assert strategy == options["service"]["strategy"]
    assert ([f"missing: using {strategy}, because {why}"] if why else []) == [
        text[: len(f"missing: using {strategy}, because {why}")] for text in notices
    ]


@pytest.mark.parametrize(
    ("folder", "mode", "why"),
    [
        ("", "auto", "service.checkpoint_dir is missing"),
        ("s3://b/run", "direct", "storage.mode is direct"),
        ("s3://b/run", "carried", ""),
        ("/mnt/run", "auto", ""),
    ],
)
def test_files_that_are_not_kept_warn(folder: str, mode: str, why: str) -> None:
    """Before the start, not when the model is gone."""
    found = warnings_of({"storage": {"mode": mode}}, checkpoint_dir=folder, keep_files=10)

    assert bool(why) is any(text.startswith(f"service.keep_files: no effect: {why}") for text in found)


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ({"mesos_api_version": "V1", "use_tensorboard": False}, []),
        (
            {"mesos_api_version": "V0"},
            ["service.mesos_api_version: has no effect: the scheduler speaks version 1 only"],
        ),
        ({"checkpoint_dir": ""}, []),
        ({"job_url": "http://host/train.py"}, []),
        ({"job_url": "/shared/train.py"}, []),
        ({"job_url": "file:///train.py"}, []),
        ({"job_url": ""}, []),
    ],
)
def test_effective_value_causes_no_warning(service, expected: list[str]) -> None:
    """Also if it is an explicit default, or an absolute path."""
    assert expected == warnings_of(**service)


def test_every_ineffective_option_warns() -> None:
    silent = [option for option in OPTIONS if "obsolete" in option.field.metadata]
    options = resolve({"service": {"command": "x"}})
    for option in silent:
        section = options
        for name in option.path[:-1]:
            section = section[name]
        section[option.path[-1]] = object()

    ineffective = {
        notice.path
        for notice in find_warnings({}, options)
        if "no effect" in notice.message or "not used" in notice.message
    }

    assert {str(option) for option in silent} <= ineffective


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (
            {"environment": {"A": "1"}},
            'service.environment: `dcos package install` refuses an object; write a list: [{"name": "A", ',
        ),
        ({"job_url": "train.py"}, "service.job_url: train.py: agents need an address"),
        ({"python": "runtime:new"}, "service.python: runtime:new: only the local cluster has it"),
        ({"gcs_key": "k"}, "service.gcs_key: is visible to users with access to the Marathon app"),
        (
            {"gcs_key": "k", "use_gcs_key_secret": True},
            "service.use_gcs_key_secret: has no effect: service.gcs_key is set",
        ),
        ({"checkpoint_dir": "/models"}, "service.checkpoint_dir: all agents must share /models"),
        (
            {"checkpoint_dir": "models"},
            "service.checkpoint_dir: models is relative to each task's own working directory",
        ),
        (
            {"command": 'python a.py --dir "$CHECKPOINT_DIR"'},
            "service.checkpoint_dir: missing: a command uses CHECKPOINT_DIR, which only the local cluster sets",
        ),
        ({"use_tensorboard": True}, "service.use_tensorboard: has no effect: service.checkpoint_dir is missing"),
    ],
)
def test_likely_mistake_warns(service, message: str) -> None:
    assert [] != [line for line in warnings_of(**service) if line.startswith(message)]


@pytest.mark.parametrize(
    ("service", "worker", "warns"),
    [
        ({}, {}, True),
        ({"user": "digits"}, {}, False),
        ({}, {"image": "my/image"}, False),
        ({"tf_image": "my/image"}, {}, False),
        ({}, {"count": 0}, False),
    ],
)
def test_secrets_of_default_user_warn(service, worker, warns: bool) -> None:
    """Other services with the default user can read them, without images."""
    job = {"source": "env:A", "env": "A", "jobs": "worker"}
    more = {"secrets": [job], "worker": {"count": 1, **worker}, "chief": {"count": 1}}
    lines = [line for line in warnings_of(more, **service) if line.startswith("service.user: nobody is the default")]

    assert warns == any("can read the secrets of worker; set a user of its own" in line for line in lines)


def test_keeping_disabled_tensorboard_warns() -> None:
    kept = {"finish": {"then": "keep_tensorboard"}}

    assert ["finish.then: has no effect: service.use_tensorboard is false"] == warnings_of(kept)
    assert [] == [line for line in warnings_of(kept, use_tensorboard=True) if line.startswith("finish")]


@pytest.mark.parametrize(("source", "expected"), [("env:KEY", 1), ("reference:key", 0)])
def test_secrets_on_agents_without_executor_login_warn(source: str, expected: int) -> None:
    accepted = {"secret_delivery": {"executor_authentication": "optional"}}
    secrets = {"secrets": [{"source": source, "env": "KEY"}]}
    warning = "secret_delivery.executor_authentication: on agents without --authenticate_http_executors"

    assert expected == sum(line.startswith(warning) for line in warnings_of({**accepted, **secrets}, user="games"))
    assert [] == warnings_of(accepted, user="games")
    assert [] == warnings_of(secrets, user="games", strategy="independent")


@pytest.mark.parametrize(
    ("strategy", "more", "named"),
    [
        ("multi_worker_mirrored", {"worker": {"count": 2}}, "worker"),
        ("independent", {"worker": {"count": 2}}, ""),
        ("multi_worker_mirrored", {"service": {"virtual_network_enabled": True}}, ""),
    ],
)
def test_secrets_of_tasks_with_servers_warn(strategy: str, more, named: str) -> None:
    """Their servers read files for every client that reaches the port."""
    service = {"strategy": strategy, **more.get("service", {})}
    document = {"secrets": [{"source": "env:KEY", "env": "KEY"}], "parameter_server": {"count": 0}, **more}
    document.pop("service", None)
    (found,) = [text for text in warnings_of(document, **service) if "TensorFlow server" in text] or [""]

    assert named in found
    assert bool(named) is bool(found)


@pytest.mark.parametrize(
    ("service", "mode", "expected"),
    [
        ({"checkpoint_dir": "s3://b/run"}, "auto", "checkpoint_dir: carried by the executor, because TensorFlow 2.6"),
        ({"checkpoint_dir": "s3://b/run"}, "carried", "checkpoint_dir: carried by the executor; the task's Python"),
        (
            {"checkpoint_dir": "abfss://a@b/run"},
            "carried",
            "checkpoint_dir: carried by the executor; the task's Python needs fsspec and adlfs",
        ),
        ({"checkpoint_dir": "s3://b/run"}, "direct", "checkpoint_dir: direct: TensorFlow 2.18 and newer cannot"),
        ({"shared_filesystem": "gs://b/run"}, "auto", "shared_filesystem: direct if the task's TensorFlow has gs://"),
        ({"checkpoint_dir": "gs://b/run"}, "direct", "checkpoint_dir: direct: the program itself reads and writes it"),
        (
            {"checkpoint_dir": "gs://b/run", "shared_filesystem": "hdfs://name/a"},
            "direct",
            "checkpoint_dir: direct: the program",
        ),
        (
            {"checkpoint_dir": "gs://b/run", "strategy": "pytorch_ddp"},
            "auto",
            "checkpoint_dir: carried by the executor",
        ),
    ],
)
def test_url_of_checkpoints_names_its_mode(service: dict[str, str], mode: str, expected: str) -> None:
    """A direct job without the file system would fail at its first checkpoint."""
    counts = {"parameter_server": {"count": 0}} if "strategy" in service else {}
    notices = warnings_of({**counts, "storage": {"mode": mode}}, **service)
    assert [f"service.{expected}"] * bool(expected) == [line[: len(f"service.{expected}")] for line in notices]


@pytest.mark.parametrize("mode", ["auto", "mounted"])
@pytest.mark.parametrize("name", ["checkpoint_dir", "shared_filesystem"])
def test_path_of_checkpoints_is_mounted(name: str, mode: str) -> None:
    """On the local cluster, too, and for a single task."""
    document = {"service": {"command": "x", name: "/run"}, "storage": {"mode": mode}}

    notices = [str(notice) for notice in find_local_warnings(document, resolve(document))]

    assert f"service.{name}: mounted: /run is a path, which the program itself uses" in notices


@pytest.mark.parametrize(
    "storage",
    [
        {"checkpoint_dir": "/shared", "mode": "auto"},
        {"checkpoint_dir": "gs://b/run", "mode": "direct"},
    ],
)
def test_options_of_an_unused_carrier_are_named(storage: dict[str, str]) -> None:
    mode = {"mode": storage["mode"], "options": '{"anon": true}'}
    notices = warnings_of({"storage": mode}, checkpoint_dir=storage["checkpoint_dir"])
    assert "storage.options: has no effect: the executor does not carry checkpoints" in notices


@pytest.mark.parametrize(("most", "warns"), [(2, True), (3, False)])
def test_growth_without_room_is_named(most: int, warns: bool) -> None:
    worker = {"count": 2, "elastic": {"max": most, "grow": "when_idle"}}
    notices = warnings_of({"worker": worker}, strategy="multi_worker_mirrored")
    assert warns == ("worker.elastic.grow: has no effect: worker.count is worker.elastic.max" in notices)


def test_only_secrets_are_masked() -> None:
    """By option, by the name of a variable, and in addresses."""
    options = resolve(
        {
            "service": {
                "command": "curl -H 'Authorization: Bearer abc' -H \"authorization: token=abc\" http://x",
                "gcs_key": "key",
                "job_url": "https://me:pass@host/job.zip",
                "environment": {"MY_PASSWORD": "p", "PGPASS": "p", "STEPS": "10", "PROXY": "http://me:pass@proxy"},
            }
        }
    )

    masked = mask_options(options)

    assert MASK == masked["service"]["gcs_key"]
    assert f"https://me:{MASK}@host/job.zip" == masked["service"]["job_url"]
    hidden = {"MY_PASSWORD": MASK, "PGPASS": MASK, "STEPS": "10", "PROXY": f"http://me:{MASK}@proxy"}
    assert hidden == masked["service"]["environment"]
    headers = f"-H 'Authorization: Bearer {MASK}' -H \"authorization: {MASK}\""
    assert f"curl {headers} http://x" == masked["service"]["command"]
    assert "" == mask_options(resolve({"service": {"command": "x"}}))["service"]["gcs_key"]
    assert {**options, "service": None} == {**masked, "service": None}


@pytest.mark.parametrize(
    ("strategy", "command", "end"),
    [
        ("independent", "torchrun ddp.py", "set service.strategy to pytorch_ddp"),
        ("multi_worker_mirrored", "python -m torch.distributed.run ddp.py", "set service.strategy to pytorch_ddp"),
        ("pytorch_ddp", "torchrun --standalone ddp.py", "does not wait for the other tasks; omit this argument"),
        ("pytorch_ddp", "torchrun --nnodes 1 ddp.py", "does not wait for the other tasks; omit this argument"),
        ("pytorch_ddp", "torchrun --nnodes=1:4 ddp.py", None),
        ("pytorch_ddp", "torchrun ddp.py --nnodes=10", None),
        ("independent", "python my_torchrun.py", None),
    ],
)
def test_torchrun_of_separate_models_is_noticed(strategy: str, command: str, end: str | None) -> None:
    """Each task would train a model of its own, and the job would succeed."""
    for count, expected in ((1, None), (2, end)):
        service = {"command": command, "strategy": strategy}
        document = {"service": service, "worker": {"count": count}, "parameter_server": {"count": 0}}
        for find in (find_warnings, find_local_warnings):
            wrong = [str(notice) for notice in find(document, resolve(document)) if "torchrun" in str(notice)]

            assert [expected] * len(wrong) == [expected and text[-len(expected) :] for text in wrong]
            assert bool(expected) == bool(wrong)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("TF_CONFIG='' python train.py", "sets TF_CONFIG, which the scheduler sets"),
        ("unset TF_CONFIG; python train.py", "unsets TF_CONFIG"),
        ("cd a && unset -v A TF_CONFIG\npython train.py", "unsets TF_CONFIG"),
        ("export A TF_CONFIG={}; python train.py", "sets TF_CONFIG"),
        ("env -u TF_CONFIG python train.py", "unsets TF_CONFIG"),
        ("timeout 9 env --unset=TF_CONFIG python train.py", "unsets TF_CONFIG"),
        ("exec env -uTF_CONFIG python train.py", "unsets TF_CONFIG"),
        ("if true; then TASK_INDEX=0 python train.py; fi", "sets TASK_INDEX"),
        ("bash -c 'CHECKPOINT_DIR=/tmp python train.py'", "sets CHECKPOINT_DIR, which service.checkpoint_dir sets"),
        ("TF_CONFIG=${TF_CONFIG:-x} python train.py", None),
        ("python train.py TASK_INDEX=0 -u TF_CONFIG export TF_CONFIG=1", None),
        ("env A=1 python -c TASK_INDEX=0", None),
        ("echo 'TF_CONFIG= ' # unset TF_CONFIG", None),
        ("A=1 python -u train.py 'open", None),
    ],
)
def test_command_that_changes_variables_is_noticed(command: str, expected: str | None) -> None:
    """Tasks without their variables train alone; `environment` refuses the names."""
    for section in ("service", "worker"):
        document = {"service": {"command": "python train.py"}, "worker": {}}
        document[section] = {"command": command}
        for find in (find_warnings, find_local_warnings):
            changes = [str(notice) for notice in find(document, resolve(document)) if "sets " in str(notice)]
            assert bool(expected) == bool(changes)
            assert not expected or changes[0].startswith(f"{section}.command: {expected}")
