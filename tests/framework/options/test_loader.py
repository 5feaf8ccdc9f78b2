"""options.json to spec, or all problems."""

import json

import pytest

from kit.options import load_spec, options_problems
from tf_executor.contract.strategies import Strategy
from tf_scheduler.errors import OptionsError
from tf_scheduler.model.placement import (
    Constraint,
    GpuScheduling,
    Operator,
    PlacementSpec,
    PlacementStrategy,
)
from tf_scheduler.model.resources import Needs
from tf_scheduler.model.spec import JobKind, RestartWhen, Uri
from tf_scheduler.options.load import parse, resolve

COMMAND = {"service": {"command": "python train.py", "strategy": "between_graph"}}
DIGEST = "0" * 64


def problems(document):
    return [str(problem) for problem in options_problems(document)]


def test_defaults_match_original_package() -> None:
    """Two parameter servers, three workers, 1 CPU and 4 GB each."""
    spec = load_spec(COMMAND)

    assert (spec.name, spec.user, spec.role) == ("tensorflow", "nobody", "tensorflow-role")
    assert [(job.kind, job.count) for job in spec.jobs] == [(JobKind.PS, 2), (JobKind.WORKER, 3)]
    assert Needs(1000, 4_096_000, 4_096_000, 0, 1) == spec.jobs[0].needs
    assert Strategy.BETWEEN_GRAPH is spec.strategy


#: Strategy -> tasks of the smallest file, with two workers; other strategies have only these.
SMALLEST = {
    Strategy.PARAMETER_SERVER: ["chief-0", "ps-0", "worker-0", "worker-1"],
    Strategy.BETWEEN_GRAPH: ["ps-0", "ps-1", "worker-0", "worker-1"],
}


@pytest.mark.parametrize("strategy", Strategy)
def test_strategy_decides_omitted_counts(strategy: Strategy) -> None:
    spec = load_spec({"service": {"strategy": strategy.value, "command": "x"}, "worker": {"count": 2}})

    assert SMALLEST.get(strategy, ["worker-0", "worker-1"]) == sorted(task.name for task in spec.tasks())


def test_job_settings_override_service() -> None:
    """The environments are merged."""
    service = {"command": "all", "strategy": "between_graph", "environment": {"A": "1", "B": "1"}, "python": "/all"}
    worker = {"command": "own", "environment": {"B": "2"}, "python": "/own"}

    ps, work = load_spec({"service": service, "worker": worker}).jobs

    assert (ps.command, dict(ps.environment), ps.settings.python) == ("all", {"A": "1", "B": "1"}, "/all")
    assert (work.command, dict(work.environment), work.settings.python) == ("own", {"A": "1", "B": "2"}, "/own")


def test_given_defaults_fill_omitted_options() -> None:
    """The document takes precedence."""
    spec = load_spec(
        {"service": {"command": "x", "user": "me"}}, {"service": {"user": "root", "job_url": "file:///a.py"}}
    )

    assert ("me", (Uri("file:///a.py"),)) == (spec.user, spec.uris)


@pytest.mark.parametrize("form", [list, json.dumps])
def test_data_may_be_records(form) -> None:
    """As a list, and as the JSON text that DC/OS needs."""
    records = [
        {"url": f"http://h/a.npz#sha256={DIGEST.upper()}", "path": ".keras/datasets/a.npz", "extract": False},
        {"url": "file:///mnt/b%20c.tgz", "link": True},
    ]

    spec = load_spec({"service": {"command": "x", "data": form(records)}})

    a = Uri("http://h/a.npz", extract=False, cache=True, output_file=".keras/datasets/a.npz")
    assert (a, Uri("file:///mnt/b%20c.tgz", cache=True, link=True)) == spec.uris
    assert {".keras/datasets/a.npz": DIGEST.lower()} == spec.digests


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([{"path": "a"}], "service.data.0.url: required"),
        ([{"url": "http://h/a", "paht": "b"}], "service.data.0.paht: unknown option; did you mean `path`?"),
        (
            [{"url": "http://h/a"}, {"url": "http://h/b", "extract": "no"}],
            "service.data.1.extract: must be true or false",
        ),
        ([{"url": "http://h/a#sha256=1"}], "service.data.0.url: only `#sha256=DIGEST` may follow a URL"),
        ([{"url": "http://h/a", "path": "a\0"}], "service.data.0.path: must not contain"),
        ([5], "service.data.0: must be an object, not 5"),
        ({"url": "http://h/a"}, 'service.data: must be text or a list of {"url": ..., "path": ...}, not {"url":'),
        ("[{", "service.data: must be URLs, or a list of objects as JSON: Expecting"),
        ('[{"url": "http://h/\\ud800"}]', "service.data: must be URLs, or a list of objects as JSON"),
        ('[{"url": "http://h/a"}, 1]', "service.data.1: must be an object, not 1"),
    ],
)
def test_invalid_data_record_is_named(data: object, problem: str) -> None:
    (found,) = problems({"service": {"command": "x", "data": data}})

    assert found.startswith(problem)


@pytest.mark.parametrize("kept", [True, False])
def test_data_cache_can_be_disabled(kept: bool) -> None:
    """Agents never refresh a cached file."""
    spec = load_spec({"service": {"command": "x", "data": "http://h/a.csv,http://h/b.tgz", "data_cache": kept}})

    assert tuple(Uri(url, cache=kept) for url in ("http://h/a.csv", "http://h/b.tgz")) == spec.uris


def test_role_of_grouped_service_has_no_slash() -> None:
    """As the DC/OS SDK names roles."""
    spec = load_spec({"service": {"command": "x", "name": "/dev/team/mnist"}})

    assert (spec.name, spec.role) == ("dev/team/mnist", "dev__team__mnist-role")


def test_all_problems_are_reported_together() -> None:
    """Fields and rules, each with path, value and the allowed values."""
    texts = problems(
        {
            "service": {"comand": "x", "job_url": "a", "name": 3, "environment": {"A": 1}, "user": None},
            "workers": {},
            "worker": {"count": "two", "cpus": 0, "mem": 1.5, "gpus": 0.5, "disk": "1G"},
            "chief": 3,
        }
    )

    assert texts == [
        "chief: must be an object, not 3",
        "service.comand: unknown option; did you mean `command`?",
        "service.environment.A: must be text, not 1; use quotes",
        "service.name: must be text, not 3 (a number)",
        "service.user: must not be null; omit the option to get its default",
        'worker.count: must be a whole number from 0 to 100000, not "two" (text)',
        "worker.cpus: must be a number from 0.01 to 4096 (cores), not 0",
        'worker.disk: must be MB, such as 4096, not "1G" (text)',
        "worker.gpus: must be a whole number from 0 to 1024, not 0.5",
        "worker.mem: must be a whole number from 32 to 100000000, not 1.5",
        "workers: unknown option; did you mean `worker`?",
        "worker.command: required, because service.command and service.job_name are empty",
    ]


def test_error_has_ten_lines_and_all_problems() -> None:
    """More lines would scroll the first ones away."""
    for count, lines in ((10, 10), (30, 10)):
        with pytest.raises(OptionsError) as caught:
            resolve({**COMMAND, **{f"x{number}": 1 for number in range(count)}})
        assert (count, lines) == (len(caught.value.problems), len(str(caught.value).splitlines()))
    assert str(caught.value).endswith("\nand 21 more")


@pytest.mark.parametrize(
    ("service", "worker"),
    [
        ({"command": ["python"]}, {"count": 1}),
        ({"command": "x", "strategy": "multi_worker_mirrored"}, {"count": 1, "min_count": "2"}),
        ({"command": "x", "strategy": "independent"}, {"count": "2"}),
        ({"command": "x", "job_url": 3, "job_name": "train"}, {"count": 1}),
    ],
)
def test_rules_skip_options_that_are_invalid(service, worker) -> None:
    """Their defaults would break rules of other sections, too."""
    assert 1 == len(problems({"service": service, "worker": worker}))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"ps": {}}, "ps: unknown option; did you mean `parameter_server`?"),
        ({"master": {}}, "master: unknown option; did you mean `chief`?"),
        ({"replicas": 3}, "replicas: unknown option; did you mean `worker.count`?"),
        ({"env": {}}, "env: unknown option; did you mean `service.environment`?"),
        ({"worker": {"replicas": 3}}, "worker.replicas: unknown option; did you mean `count`?"),
        ({"service": {"env": {}}}, "service.env: unknown option; did you mean `environment`?"),
        *(
            ({name: 3}, f"{name}: unknown option; did you mean `{section}.{name}`?")
            for section, names in (
                ("service", ("command", "name", "strategy", "job_url", "data", "environment")),
                ("worker", ("count", "cpus", "mem", "gpus")),
            )
            for name in names
        ),
        ({"service": {"replicas": 3}}, "service.replicas: unknown option; did you mean `worker.count`?"),
        ({"service": {"ps": 3}}, "service.ps: unknown option; did you mean `parameter_server.count`?"),
        ({"service": {"workers": 3}}, "service.workers: unknown option; did you mean `worker.count`?"),
        ({"service": {"mem": 3}}, "service.mem: unknown option; did you mean `worker.mem`?"),
        ({"worker": {"strategy": ""}}, "worker.strategy: unknown option; did you mean `service.strategy`?"),
        ({"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}, "not options; use `dcos-tensorflow convert FILE`"),
        ({"worker": {"memory": 3}}, "worker.memory: unknown option; did you mean `mem`?"),
        *(
            ({"service": {"strategy": name}}, f'not "{name}" (text); did you mean "{near}"?')
            for name, near in (
                ("MultiWorkerMirroredStrategy", "multi_worker_mirrored"),
                ("tf.distribute.ParameterServerStrategy", "parameter_server"),
                ("multi-worker-mirrored", "multi_worker_mirrored"),
                ("ps", "parameter_server"),
                ("ddp", "pytorch_ddp"),
                ("torchrun", "pytorch_ddp"),
            )
        ),
    ],
)
def test_word_of_another_system_is_explained(document, message: str) -> None:
    """Kubernetes, TensorFlow and TonY have other names, some not near in spelling."""
    assert problems({**document, "service": {**COMMAND["service"], **document.get("service", {})}})[0].endswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":\n 1;}', "options.json:2:3: expecting ',' delimiter\n 1;}\n  ^"),
        (b'{"a": 1, // x\n "b": 2}', 'options.json:1:10: JSON has no comments\n{"a": 1, // x\n         ^'),
        (b'{"a": 1\n # x\n}', "options.json:2:2: JSON has no comments\n # x\n ^"),
        (b'{"a": {\n\t"b": 1,\n\t}}', "remove the comma before }\n\t"),
        (b'{"a": [1, ]}', "remove the comma before ]\n"),
        (b"{'a': 1}", """options.json:1:2: text needs double quotes: "x", not 'x'\n{'a': 1}\n ^"""),
        (b'{"a": True}', 'options.json:1:7: JSON has true, not True\n{"a": True}\n      ^'),
        (b'{"' + b"a" * 99 + b'": ' + b"x" * 99, f'expecting value\n{"a" * 57}": {"x" * 60}\n{" " * 60}^'),
        (
            b"# my job\n\nservice:\n  name: x\n",
            "options.json is YAML; as JSON: `dcos-tensorflow options init --from options.json`",
        ),
        (b"apiVersion: v1\nkind: TFJob\n", "options.json is YAML; as JSON: `dcos-tensorflow convert options.json`"),
        (b'{"a": {"b": [1]\n  \n', 'options.json:1:16: } is missing at the end\n{"a": {"b": [1]\n               ^'),
        (b'{"a": ["}", {}', "options.json:1:15: ] is missing at the end"),
        (b'{"a": "b\n"}', "options.json:1:9: text has a line break or control character; write \\n for a line break"),
        (b'{"a": "b}', "options.json:1:7: unterminated string\n"),
        (b"<configuration/>", "options.json is XML; use `dcos-tensorflow convert options.json`"),
        (b" ", "options.json is empty"),
        (b"[]", "options.json must hold a JSON object"),
        (b"\xff", "options.json is not UTF-8: invalid byte at offset 0"),
        (b'{"worker": {"cpus": NaN}}', "NaN is not a JSON number"),
        (b'{"worker": {}, "worker": {}}', "worker: is repeated"),
        (b"[" * 100_000, "options.json is not JSON"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "options.json is nested deeper than 64 levels"),
        (b'{"service": {"name": "\\ud800"}}', "options.json holds '\\ud800', an incomplete surrogate pair"),
    ],
)
def test_invalid_document_is_reported_with_place(data: bytes, message: str) -> None:
    """With line and column, if any."""
    (text,) = problems(data)

    assert message in text


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?i)step\s+(?P<step>\d+)\s+loss:?\s*(?P<loss>[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)",
        r"^it (?P<step>[\d,]+) of (?P<total>\d{1,9})\b: cost (?P<cost>\S+), lr (?P<lr>\S+)",
        r"\[.*\] (?:step|iter)s? (?P<step>\d+)",
        r"(?P<epoch>\d+)\D+(?P<step>\d+)\D+(?P<loss>\d+(?:\.\d*)?)$",
    ],
)
def test_usual_line_patterns_are_accepted(pattern: str) -> None:
    """Only what could be slow is refused."""
    assert pattern == load_spec({"progress": {"pattern": pattern}}).jobs[0].settings.progress_pattern


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"service": {"strategy": "sync"}}, "service.strategy: must be one of parameter_server, multi_worker_mirrored"),
        ({"service": {"name": "My Job"}}, "service.name: must be lower-case words"),
        ({"service": {"name": "a--b-"}}, "service.name: must be lower-case words"),
        ({"service": {"role": "a b"}}, "service.role: invalid Mesos role"),
        ({"progress": {"pattern": "(?P<step>"}}, "progress.pattern: must be a regular expression: missing ), "),
        ({"progress": {"pattern": r"step (\d+)"}}, "progress.pattern: must have a named group, for example `(?P<step>"),
        ({"progress": {"pattern": r"(a+)+(?P<step>\d+)"}}, "progress.pattern: must not contain `)+`: repeated groups"),
        ({"progress": {"pattern": r"(?P<a>.)(?P=a)"}}, "progress.pattern: must not contain `(?P=`"),
        ({"progress": {"pattern": r"(?P<a>.)\1"}}, r"progress.pattern: must not contain `\1`: repeated groups"),
        ({"progress": {"pattern": r"(?P<a>[\w]*)[\w]*\w*x"}}, r"must not contain `[\w]*` before `[\w]*`: both"),
        ({"progress": {"pattern": r"(?P<a>a{0,9})(?:b|a)a?ax"}}, "must not contain `a{0,9}` before `a`"),
        ({"progress": {"pattern": r"(?P<a>\d+).*(?P<b>\d+)"}}, r"must not contain `\d+` before `.*`"),
        ({"progress": {"pattern": r"(?P<a>\d+)(?: x|y)?\D*1+$"}}, r"must not contain `\d+` before `1+`"),
        ({"progress": {"pattern": r"(?P<a>\d+)(x|y|z)(x|y)?(x)?"}}, "has 5 alternatives and optional groups, only 4"),
        ({"progress": {"pattern": r"(?P<a>.)(?=b)"}}, "progress.pattern: must not contain `(?=`"),
        ({"service": {"role": "a/../b"}}, "service.role: invalid Mesos role"),
        (
            {"service": {"strategy": "multi_worker_mirrored"}, "parameter_server": {"count": 1}},
            "parameter_server.count: must be 0",
        ),
        ({"service": {"failover_timeout": True}}, "service.failover_timeout: must be a number"),
        ({"service": {"environment": {"A=B": "x"}}}, "invalid name of an environment variable"),
        (
            {"service": {"environment": {"A B;touch x": "x"}}},
            "letters, digits, '_', '.' and '-', but no digit at the start",
        ),
        ({"worker": {"environment": [{"name": "A\n", "value": "x"}]}}, "invalid name of an environment variable"),
        ({"chief": {"environment": {"1A": "x"}}}, "invalid name of an environment variable"),
        ({"chief": {"environment": {"": "x"}}}, "invalid name of an environment variable"),
        ({"service": {"user": "me\n"}}, "service.user: must be a user name that contains no white space"),
        ({"service": {"user": "-g0"}}, "service.user: must be a user name"),
        ({"service": {"user": "root:root"}}, "service.user: must be a user name"),
        ({"service": {"principal": "me\r\nX: y"}}, "service.principal: must be one line, without control characters"),
        ({"service": {"service_account": "me\n"}}, "service.service_account: must be one line"),
        ({"scheduler": {"python": "python3; touch x"}}, "scheduler.python: must be a name or a path that contains"),
        ({"scheduler": {"python": "$(touch x)"}}, "scheduler.python: must be a name or a path"),
        ({"scheduler": {"python": "python3\n"}}, "scheduler.python: must be a name or a path"),
        ({"scheduler": {"python": "-a"}}, "scheduler.python: must be a name or a path"),
        ({"service": {"command": "a\0b"}}, "must not contain a NUL character"),
        ({"chief": {"count": 2}}, "chief.count: must be a whole number from 0 to 1, not 2"),
        ({"service": {"job_url": "a", "job_sha256": "a" * 63}}, "service.job_sha256: must be 64 hexadecimal digits"),
        ({"executor": {"sha256": "x" * 64}}, "executor.sha256: must be 64 hexadecimal digits"),
        ({"executor": {"extract": "tar"}}, "executor.extract: must be one of executor, mesos"),
        (
            {"service": {"data": "http://h/a, http://h/b#sha256=12"}},
            "service.data: only `#sha256=DIGEST` may follow a URL, with a DIGEST of 64 hexadecimal digits",
        ),
        ({"service": {"data": "http://h/a, http://h/b#sha256=12"}}, 'not "http://h/b#sha256=12"'),
        ({"service": {"data": f"http://h/a#SHA256={DIGEST}"}}, f'not "http://h/a#SHA256={DIGEST}"'),
        ({"service": {"data": f"http://h/a, http://h/b#sha512={DIGEST * 2}"}}, 'not "http://h/b#sha512='),
        ({"service": {"data": f"http://h/a#x&sha256={DIGEST}"}}, f'not "http://h/a#x&sha256={DIGEST}"'),
        ({"service": {"data": f"http://h/a#x#sha256={DIGEST}"}}, f'not "http://h/a#x#sha256={DIGEST}"'),
        ({"service": {"data": f"http://h/a#sha256={DIGEST}#"}}, f'not "http://h/a#sha256={DIGEST}#"'),
        ({"service": {"data": "http://h/a#"}}, 'not "http://h/a#"'),
        (
            {"service": {"job_url": f"http://h/job.sh#sha256={DIGEST}"}},
            "service.job_url: must be a URL or path without `#` (the digest belongs in service.job_sha256), not",
        ),
        ({"gang": {"hold_seconds": -1}}, "gang.hold_seconds: must be a number from 0 to 60"),
    ],
)
def test_invalid_option_has_its_message(change, message: str) -> None:
    document = {**COMMAND, **change, "service": {**COMMAND["service"], **change.get("service", {})}}

    assert [text for text in problems(document) if message in text] != []


def test_common_names_are_accepted() -> None:
    """Of variables, users, principals and interpreters."""
    names = {"PATH": "", "_x": "", "spark.executor.memory": "1g", "http_proxy": "", "X-Y": ""}
    service = {**COMMAND["service"], "environment": names, "user": "DOMAIN\\jürgen.m-1$", "principal": "my service@x:y"}

    spec = load_spec({"service": service, "scheduler": {"python": "/opt/python3.12/bin/python@new-1+x"}})

    assert (names, service["user"]) == (dict(spec.jobs[0].environment), spec.user)


def test_text_is_not_a_number() -> None:
    """No coercion: "2" is an error."""
    assert problems({**COMMAND, "worker": {"cpus": "2"}}) == [
        'worker.cpus: must be a number from 0.01 to 4096 (cores), not "2" (text)'
    ]


def test_gpu_workers_follow_workers() -> None:
    """The ClusterSpec has one job `worker`, with unique names."""
    spec = load_spec({**COMMAND, "parameter_server": {"count": 0}, "worker": {"count": 2}, "gpu_worker": {"count": 2}})

    assert ["worker-0", "worker-1", "worker-2", "worker-3"] == [task.name for task in spec.tasks()]
    assert [0, 0, 1000, 1000] == [task.job.needs.gpus for task in spec.tasks()]
    assert ["worker", "gpu_worker"] == [job.group for job in spec.jobs]
    assert spec.needs_gpus


def test_gpu_workers_satisfy_strategies() -> None:
    spec = load_spec(
        {
            "service": {**COMMAND["service"], "strategy": "multi_worker_mirrored"},
            "parameter_server": {"count": 0},
            "worker": {"count": 0},
            "gpu_worker": {"count": 2, "gpus": 4},
        }
    )

    assert ["worker-0", "worker-1"] == [task.name for task in spec.tasks()]


def test_placement_and_gang_reach_the_spec() -> None:
    spec = load_spec(
        {
            **COMMAND,
            "service": {**COMMAND["service"], "region": "eu"},
            "gang": {"hold_seconds": 2},
            "placement": {"strategy": "spread", "gpu_scheduling_behavior": "unrestricted", "near": "@zone, row,rack"},
            "worker": {"placement_constraint": '[["hostname", "UNIQUE"]]'},
        }
    )

    assert 2.0 == spec.hold_seconds
    assert (
        PlacementSpec(PlacementStrategy.SPREAD, GpuScheduling.UNRESTRICTED, "eu", ("@zone", "row", "rack"))
        == spec.placement
    )
    assert (Constraint("hostname", Operator.UNIQUE),) == spec.jobs[1].constraints
    assert spec.spans_regions


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"placement": {"strategy": "tight"}}, 'placement.strategy: must be one of binpack, spread, not "tight"'),
        (
            {"gang": {"mode": "reserve"}},
            "gang.mode: unknown option; nothing is reserved for an incomplete gang: set a Mesos quota for service.role",
        ),
        ({"gpu_worker": {"gpus": 0}}, "gpu_worker.gpus: must be a whole number from 1 to 1024, not 0"),
        ({"worker": {"placement_constraint": [["a", "UNIQUE"]]}}, "worker.placement_constraint: must be text"),
    ],
)
def test_invalid_placement_options_are_reported(options, complaint: str) -> None:
    assert [text for text in problems({**COMMAND, **options}) if text.startswith(complaint)]


def test_service_account_is_principal() -> None:
    """As in the original package; plain Mesos needs a principal only."""
    assert "account" == load_spec({"service": {"command": "x", "service_account": "account"}}).principal
    assert "me" == load_spec({"service": {"command": "x", "principal": "me"}}).principal


def test_zero_timeout_means_never() -> None:
    spec = load_spec(COMMAND)

    assert (600.0, None) == (spec.recovery.start_timeout, spec.finish.deadline)
    assert {(None, 0.0)} == {(job.max_completion_time, job.settings.stalled_after) for job in spec.jobs}
    assert None is load_spec({**COMMAND, "recovery": {"start_timeout": 0}}).recovery.start_timeout


def test_silent_tasks_have_no_stall_timeout() -> None:
    """Parameter servers, and workers led by a chief, write nothing while they train."""
    sections = {"evaluator": {"count": 1}, "health": {"stalled_after": 60, "jobs": ""}, **COMMAND}
    service = {**COMMAND["service"], "strategy": "parameter_server"}
    led = load_spec({**sections, "service": service, "chief": {"count": 1}})
    assert {"ps": 0.0, "worker": 0.0, "chief": 60.0, "evaluator": 60.0} == {
        job.kind.value: job.settings.stalled_after for job in led.jobs
    }
    between = load_spec({**sections, "service": {**service, "strategy": "between_graph"}})
    assert {"ps": 0.0, "worker": 60.0, "evaluator": 60.0} == {
        job.kind.value: job.settings.stalled_after for job in between.jobs
    }


def test_frozen_tasks_of_all_jobs_are_replaced() -> None:
    """Also silent ones, because the evidence is sure."""
    sections = {"evaluator": {"count": 1}, "data_service": {"workers": 1}}
    service = {**COMMAND["service"], "strategy": "parameter_server", "use_tensorboard": True}
    spec = load_spec({**sections, "service": service, "chief": {"count": 1}})
    assert {900.0} == {job.settings.frozen_after for job in spec.jobs}
    assert {JobKind.PS, JobKind.TENSORBOARD, JobKind.DATA_WORKER} < {job.kind for job in spec.jobs}
    assert 300.0 == spec.jobs[0].settings.stall_grace
    changed = load_spec({**COMMAND, "health": {"frozen_after": 0, "grace": 7}})
    assert {(0.0, 7.0)} == {(job.settings.frozen_after, job.settings.stall_grace) for job in changed.jobs}


def test_job_restart_policy_overrides_service() -> None:
    own = {"restart_policy": "exit_code", "uncounted_exit_codes": [7], "unreachable_timeout": 5}
    document = {**COMMAND, "restart": {"max_failures": 9}, "worker": own}
    jobs = {job.kind.value: job for job in load_spec(document).jobs}

    policy = jobs["worker"].restart
    assert (9, frozenset({7}), RestartWhen.EXIT_CODE) == (policy.max_failures, policy.uncounted_exit_codes, policy.when)
    assert (5.0, None, None) == (jobs["worker"].unreachable_timeout, jobs["ps"].unreachable_timeout, jobs["ps"].restart)


def test_problems_have_kinds() -> None:
    """Programs distinguish problems without their text."""
    document = {"service": {"comand": "x", "command": None}, "worker": [], "parameter_server": {"count": -1}}
    kinds = {problem.path: problem.kind for problem in options_problems(document)}
    assert "unknown_option" == kinds["service.comand"]
    assert "null" == kinds["service.command"]
    assert "wrong_type" == kinds["worker"]
    assert "invalid" == kinds["parameter_server.count"]


def test_nested_problems_have_paths() -> None:
    """List entries by their index, from 0."""
    service = {
        "command": "x",
        "environment": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B"}, 3],
        "security": {"kerberos": {"kdc": None, "realms": "x"}},
        "hdfs": 7,
    }

    texts = problems({"service": service, "secrets": [{"source": "a", "env": "A", "key": "k"}, {}, 3]})

    assert texts == [
        "secrets.0.key: unknown option; expected one of env, file, jobs, reload, source",
        "secrets.1.source: required",
        "secrets.2: must be an object, not 3 (a number)",
        "service.environment.1: duplicate variable A",
        'service.environment.2: must be {"name": ..., "value": ...}, not {"name": "B"}',
        'service.environment.3: must be {"name": ..., "value": ...}, not 3',
        "service.hdfs: must be an object, not 7",
        "service.security.kerberos.kdc: must not be null; omit the option to get its default",
        "service.security.kerberos.realms: unknown option; did you mean `realm`?",
    ]


def test_rules_run_next_to_invalid_list_fields() -> None:
    """If the rest of the entry is complete."""
    volumes = [{"host_path": "data", "container_path": "..", "mode": "R"}, {"host_path": "/a", "container_path": "."}]

    texts = problems({**COMMAND, "volumes": volumes})
    assert [text.partition(":")[0] for text in texts] == [
        "volumes.0.mode",
        "volumes.0.host_path",
        "volumes.0.container_path",
        "volumes.1.container_path",
    ]

    del volumes[0]["host_path"]
    texts = problems({**COMMAND, "volumes": volumes})
    assert {"volumes.0.mode", "volumes.0.host_path"} == {text.partition(":")[0] for text in texts}


def test_program_in_place_of_options_is_explained() -> None:
    """`local run train.py` is what other launchers accept."""
    with pytest.raises(OptionsError, match=r"train\.py: a program, not options; run `dcos-tensorflow try train\.py`"):
        parse(b"import os\n", "train.py")
