"""Conversion of a tony.xml; each omitted property is reported."""

from pathlib import Path

import pytest

from kit.options import load_spec
from tf_scheduler.convert.conversion import convert_job_file
from tf_scheduler.errors import OptionsError

FILE = Path(__file__).parent / "files" / "tony.xml"


def tony(**properties):
    """Return a tony.xml; `__` stands for a dot."""
    entry = "<property><name>tony.{}</name><value>{}</value></property>"
    entries = (entry.format(name.replace("__", "."), value) for name, value in properties.items())
    return f"<configuration>{''.join(entries)}</configuration>".encode()


def notes(content: bytes) -> dict[str, str]:
    """Return path -> message of the warnings about a tony.xml."""
    return {warning.path: warning.message for warning in convert_job_file(content, "tony.xml").warnings}


def test_jobs_and_amounts_are_converted() -> None:
    """With TonY's defaults; milliseconds become seconds."""
    result = convert_job_file(FILE.read_bytes(), "tony.xml")
    options = result.options

    variables = [{"name": "LANG", "value": "C"}, {"name": "STEPS", "value": "100"}]
    assert {"name": "mnist-job", "command": "python mnist.py", "environment": variables} == {
        name: options["service"][name] for name in ("name", "command", "environment")
    }
    assert {"count": 1, "mem": 2048, "cpus": 1.0} == options["chief"]
    assert {"count": 2, "mem": 512, "cpus": 1.0} == options["parameter_server"]
    assert {"count": 4, "mem": 3072, "cpus": 2.0, "gpus": 1} == options["gpu_worker"]
    assert 90.0 == options["finish"]["deadline"]
    assert 7 == load_spec(options, {"executor": {"url": "x"}}).task_count


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tony.application.distributed-mode", "FCFS"),
        ("tony.worker.depends-on", "plan"),
        ("tony.driver.instances", "unknown job driver"),
        ("tony.docker.containers.image", "tony.docker.enabled is not true"),
        ("tony.history.location", "dcos-tensorflow history"),
        ("tony.am.retry-count", "invalid value 'two'"),
        ("tony.wonder", "unknown field"),
    ],
)
def test_unsupported_property_is_reported_by_name(name: str, reason: str) -> None:
    assert reason in notes(FILE.read_bytes())[name]


@pytest.mark.parametrize(
    ("name", "near"), [("worker.comand", "command"), ("aplication.name", "tony.application.name"), ("worker.zz", "")]
)
def test_misspelt_property_has_a_suggestion(name: str, near: str) -> None:
    """A command that is lost silently is missed only at the launch."""
    text = FILE.read_text().replace("tony.wonder", f"tony.{name}")

    assert near == "".join(notes(text.encode())[f"tony.{name}"].split("`")[1:2])


@pytest.mark.parametrize(("framework", "strategy"), [("pytorch", "pytorch_ddp"), ("horovod", "horovod")])
def test_other_frameworks_have_their_strategy(framework: str, strategy: str) -> None:
    """Which is not guessed."""
    job = tony(application__framework=framework, worker__instances=2, worker__command="python a.py")

    result = convert_job_file(job, "tony.xml")

    assert strategy == result.options["service"]["strategy"]
    assert not [warning for warning in result.warnings if warning.path == "service.strategy"]


@pytest.mark.parametrize(("enabled", "expected"), [("true", True), ("false", False)])
def test_mounts_of_containers_become_volumes(enabled: str, expected: bool) -> None:
    """If containers are enabled."""
    mounts = {"docker__enabled": enabled, "docker__containers__mount": "/etc/a:/a:ro, /mnt/b:/b:rw+rshared"}
    job = tony(**mounts, worker__instances=2, worker__command="python a.py")

    volumes = convert_job_file(job, "tony.xml").options.get("volumes")

    assert ([("/etc/a", "/a", "RO"), ("/mnt/b", "/b", "RW")] if expected else None) == (
        volumes and [tuple(volume[name] for name in ("host_path", "container_path", "mode")) for volume in volumes]
    )


def test_command_option_applies_to_jobs_without_command() -> None:
    """The command of the file for all jobs takes precedence."""
    some = tony(worker__instances=2, chief__instances=1, chief__command="python b.py", notebook__command="x")
    one = tony(worker__instances=2, containers__command="python own.py")

    options, own = convert_job_file(some, "it", "python a.py").options, convert_job_file(one, "it", "python a.py")

    assert ("python a.py", "python b.py") == (options["service"]["command"], options["chief"]["command"])
    assert "python own.py" == own.options["service"]["command"]
    assert "tony.containers.command" in {warning.path for warning in own.warnings}


def test_images_of_jobs_are_converted() -> None:
    """Those of workers with GPUs, too."""
    options = tony(docker__enabled="true", worker__instances=1, worker__gpus=1, docker__worker__image="a/b:1")

    assert "a/b:1" == convert_job_file(options, "it", "python a.py").options["gpu_worker"]["image"]


def test_counts_of_jobs_do_not_conflict() -> None:
    """An invalid number of one job changes none."""
    result = convert_job_file(tony(worker__instances=2, ps__instances=1), "it", "python a.py")
    invalid = convert_job_file(tony(worker__instances=2, worker__gpus="one"), "it", "python a.py")

    assert [] == [warning for warning in result.warnings if "one value applies to all" in warning.message]
    assert (2, 1) == (result.options["worker"]["count"], result.options["parameter_server"]["count"])
    assert "tony.worker.gpus" in {warning.path for warning in invalid.warnings}
    assert 2 == invalid.options["worker"]["count"]


NUMBER = b"kind: TFJob\nspec:\n a: %s\n"
TOO_LONG = r"line 3, column 5: a number has \d+ characters; up to 100 are allowed"
ENCODED = b'<?xml version="1.0" encoding="%s"?><configuration/>'
DOCTYPE = b"""<?xml version="1.0"?>
<!DOCTYPE configuration %s>
<configuration><property><name>tony.worker.instances</name><value>2</value></property></configuration>"""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<configuration>", "is not XML"),
        # Entities can read files, and expand without limit.
        (DOCTYPE % b'[<!ENTITY x SYSTEM "file:///etc/passwd">]', "DOCTYPE or entities"),
        (DOCTYPE % b'[<!ENTITY x "xx">]', "DOCTYPE or entities"),
        (DOCTYPE % b'[<!ENTITY % x SYSTEM "http://127.0.0.1/x">]', "DOCTYPE or entities"),
        (DOCTYPE % b'SYSTEM "http://127.0.0.1/x.dtd"', "DOCTYPE or entities"),
        (DOCTYPE % b"[]", "DOCTYPE or entities"),
        (DOCTYPE % b"", "DOCTYPE or entities"),
        (b"<project/>", "its root element is <project>"),
        (ENCODED % b"nonsense", "XML encoding `nonsense`: not supported"),
        (ENCODED % b"zlib", "XML encoding `zlib`: not supported"),
        (ENCODED % b"hex_codec", "XML encoding `hex_codec`: not supported"),
        (ENCODED % b"undefined", "is not XML"),
        (b"a: [", "1:5: invalid YAML"),
        (b"a: &a [*a]", "is not valid YAML|must be a TFJob"),
        (b"a: &a {<<: *a}", "is not valid YAML|must be a TFJob"),
        (b"[" * 5000, "is not valid YAML|must be a TFJob"),
        (b"a: " + b"{a: " * 900 + b"1" + b"}" * 900, "is not valid YAML|must be a TFJob"),
        (b"!!python/object/apply:os.system ['true']", "1:1: invalid YAML"),
        (b"kind: Pod", "it contains no job"),
        (b"kind: TFJob\n---\nkind: TFJob", "it contains 2 jobs"),
        (b'{"a": 1}', "is not a TFJob or PyTorchJob of Kubeflow"),
        (b'{"service": {"name": "kafka"}, "brokers": {}}', "is not a TFJob or"),
        (b"kind: TrainJob", "a job of kind TrainJob: not supported; write a TFJob or PyTorchJob"),
        (b"kind: TFJob\nspec: {a: 1\n", r"it:2:7: invalid YAML: .*\nspec: {a: 1\n {6}\^$"),
        (b"kind: MPIJob", "a job of kind MPIJob: .*strategy horovod"),
        (b" " * 1_000_001, "maximum: 1000000"),
        (b"kind: tensorflow", "a job of kind tensorflow: convert it to a TFJob first"),
        # Parsing of a huge number takes quadratic time.
        pytest.param(NUMBER % (b"9" * 90_000), TOO_LONG, id="decimal"),
        pytest.param(NUMBER % (b"0x" + b"f" * 90_000), TOO_LONG, id="hexadecimal"),
        pytest.param(NUMBER % (b"0b" + b"1" * 400_000), TOO_LONG, id="binary"),
        pytest.param(NUMBER % (b"0" + b"7" * 90_000), TOO_LONG, id="octal"),
        pytest.param(NUMBER % (b"1:" * 200_000 + b"1"), TOO_LONG, id="sexagesimal"),
        pytest.param(NUMBER % (b"1:" * 999 + b"1.5"), TOO_LONG, id="fraction"),
    ],
)
def test_other_files_are_rejected(data: bytes, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        convert_job_file(data, "it")


@pytest.mark.parametrize(
    ("first", "level"), [("[1, 1]", "[{}]"), ("{a: 1}", "\n    <<: [{}]")], ids=["aliases", "merges"]
)
def test_yaml_cannot_expand_without_limit(first: str, level: str) -> None:
    """A few bytes stand for billions of entries; `<<` copies them already on reading."""
    levels = "\n".join(f"  a{n}: &a{n} {level.format(', '.join([f'*a{n - 1}'] * 9))}" for n in range(1, 10))

    with pytest.raises(OptionsError, match="more than 20000 entries"):
        convert_job_file(f"kind: TFJob\nspec:\n  a0: &a0 {first}\n{levels}".encode(), "it")


@pytest.mark.parametrize("name", ["tony.worker.gpus", "tony.worker.memory", "tony.worker.instances"])
def test_huge_property_is_omitted_and_reported(name) -> None:
    before, after = FILE.read_text().split(f"<name>{name}</name><value>")
    result = convert_job_file(f"{before}<name>{name}</name><value>{'9' * 90_000}{after[1:]}".encode(), "tony.xml")

    (message,) = [one.message for one in result.warnings if one.path == name]
    assert "expected a" in message
    assert (
        result.options["parameter_server"]
        == convert_job_file(FILE.read_bytes(), "tony.xml").options["parameter_server"]
    )


@pytest.mark.parametrize("name", ["tony.containers.command", "tony.chief.command"])
def test_replaced_braces_are_reported(name) -> None:
    """TonY passes them to the program."""
    text = FILE.read_text().replace("</configuration>", f"{PROPERTY.format(name)}</configuration>")

    assert notes(text.encode())[name].startswith("tasks replace {task_index} (docs/reference/tasks.md)")


PROPERTY = "<property><name>{}</name><value>a --index {{task_index}} ${{port}} {{other}}</value></property>"
