"""tony.xml becomes options; nothing of it vanishes in silence."""

from pathlib import Path

import pytest

from kit.options import load_spec
from tf_scheduler.convert.conversion import convert_job_file
from tf_scheduler.errors import OptionsError

FILE = Path(__file__).parent / "files" / "tony.xml"


def test_a_job_is_taken_along():
    """Amounts, counts, variables; TonY's own defaults where the file is silent; milliseconds as seconds."""
    found = convert_job_file(FILE.read_bytes(), "tony.xml")
    options = found.options

    assert {"name": "mnist-job", "command": "python mnist.py", "environment": {"LANG": "C", "STEPS": "100"}} == {
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
        ("tony.driver.instances", "no job like driver"),
        ("tony.docker.containers.image", "tony.docker.enabled is not true"),
        ("tony.history.location", "dcos-tensorflow history"),
        ("tony.am.retry-count", "'two' is not what was expected"),
        ("tony.wonder", "is not known here"),
    ],
)
def test_what_cannot_be_taken_along_is_told_by_its_name(name, reason):
    """With a reason."""
    told = {warning.path: warning.message for warning in convert_job_file(FILE.read_bytes(), "tony.xml").warnings}

    assert reason in told[name]


@pytest.mark.parametrize(("framework", "strategy"), [("pytorch", "pytorch_ddp"), ("horovod", "horovod")])
def test_other_frameworks_have_strategies_of_their_own(framework, strategy):
    """Nothing is guessed then."""
    entry = "<property><name>tony.{}</name><value>{}</value></property>"
    wanted = (("application.framework", framework), ("worker.instances", 2), ("worker.command", "python a.py"))
    text = f"<configuration>{''.join(entry.format(*pair) for pair in wanted)}</configuration>"

    found = convert_job_file(text.encode(), "tony.xml")

    assert strategy == found.options["service"]["strategy"]
    assert not [warning for warning in found.warnings if warning.path == "service.strategy"]


@pytest.mark.parametrize(("enabled", "expected"), [("true", True), ("false", False)])
def test_mounts_of_containers_become_volumes(enabled, expected):
    """Where containers are used at all."""
    entry = "<property><name>tony.{}</name><value>{}</value></property>"
    wanted = (
        ("docker.enabled", enabled),
        ("docker.containers.mount", "/etc/a:/a:ro, /mnt/b:/b:rw+rshared"),
        ("worker.instances", 2),
        ("worker.command", "python a.py"),
    )
    text = f"<configuration>{''.join(entry.format(*pair) for pair in wanted)}</configuration>"

    volumes = convert_job_file(text.encode(), "tony.xml").options.get("volumes")

    assert ([("/etc/a", "/a", "RO"), ("/mnt/b", "/b", "RW")] if expected else None) == (
        volumes and [tuple(volume[name] for name in ("host_path", "container_path", "mode")) for volume in volumes]
    )


def tony(**properties):
    """A tony.xml; `__` stands for a dot."""
    entry = "<property><name>tony.{}</name><value>{}</value></property>"
    entries = (entry.format(name.replace("__", "."), value) for name, value in properties.items())
    return f"<configuration>{''.join(entries)}</configuration>".encode()


def test_the_command_that_is_given_is_that_of_jobs_without_one():
    """Whatever other jobs have, also those that there are not here. The file's own command for all counts more."""
    some = tony(worker__instances=2, chief__instances=1, chief__command="python b.py", notebook__command="x")
    one = tony(worker__instances=2, containers__command="python own.py")

    found, own = convert_job_file(some, "it", "python a.py").options, convert_job_file(one, "it", "python a.py")

    assert ("python a.py", "python b.py") == (found["service"]["command"], found["chief"]["command"])
    assert "python own.py" == own.options["service"]["command"]
    assert "tony.containers.command" in {warning.path for warning in own.warnings}


def test_images_of_jobs_are_taken_along():
    """Those of workers with GPUs, too."""
    options = tony(docker__enabled="true", worker__instances=1, worker__gpus=1, docker__worker__image="a/b:1")

    assert "a/b:1" == convert_job_file(options, "it", "python a.py").options["gpu_worker"]["image"]


def test_a_number_that_is_none_is_told_by_its_name():
    """It is no other error."""
    found = convert_job_file(tony(worker__instances=2, worker__gpus="one"), "it", "python a.py")

    assert "tony.worker.gpus" in {warning.path for warning in found.warnings}
    assert 2 == found.options["worker"]["count"]


def test_counts_of_the_file_have_no_rival():
    """Only what a file says twice is told as that."""
    found = convert_job_file(tony(worker__instances=2, ps__instances=1), "it", "python a.py")

    assert [] == [warning for warning in found.warnings if "one value for all" in warning.message]
    assert (2, 1) == (found.options["worker"]["count"], found.options["parameter_server"]["count"])


DOCTYPE = """<?xml version="1.0"?>
<!DOCTYPE configuration {}>
<configuration><property><name>tony.worker.instances</name><value>2</value></property></configuration>"""


@pytest.mark.parametrize(
    "kind",
    [
        '[<!ENTITY x SYSTEM "file:///etc/passwd">]',
        '[<!ENTITY x "xx">]',
        '[<!ENTITY % x SYSTEM "http://127.0.0.1/x">]',
        'SYSTEM "http://127.0.0.1/x.dtd"',
        "[]",
        "",
    ],
)
def test_entities_are_refused(kind):
    """They can read files, and grow without end; what declares them is refused whatever it says."""
    with pytest.raises(OptionsError, match="DOCTYPE or entities"):
        convert_job_file(DOCTYPE.format(kind).encode(), "tony.xml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<configuration>", "is not XML"),
        (b"<project/>", "its outermost element is <project>"),
        (b"a: [", "is not YAML"),
        (b"!!python/object/apply:os.system ['true']", "is not YAML that we accept"),
        (b"kind: Pod", "holds none of them"),
        (b"kind: TFJob\n---\nkind: TFJob", "holds 2 jobs"),
        (b'{"a": 1}', "is not a TFJob or PyTorchJob of Kubeflow"),
        (b'{"service": {"name": "kafka"}, "brokers": {}}', "is not a TFJob or"),
        (b"kind: MPIJob", "another job, MPIJob: .*strategy horovod"),
        (b" " * 1_000_001, "at most 1000000"),
    ],
)
def test_other_files_are_refused_with_the_reason(data, message):
    """Which file, and what was expected."""
    with pytest.raises(OptionsError, match=message):
        convert_job_file(data, "it")


def test_a_file_that_grows_without_end_is_refused():
    """YAML's aliases: a few bytes that stand for billions of entries."""
    levels = "\n".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    text = f"kind: TFJob\nspec:\n  a0: &a0 [1, 1]\n{levels}"

    with pytest.raises(OptionsError, match="more than 20000 entries"):
        convert_job_file(text.encode(), "it")


def test_a_file_that_merges_without_end_is_refused():
    """YAML's `<<` copies while the file is read: nine levels would be billions of keys."""
    levels = "\n".join(f"  a{n}: &a{n}\n    <<: [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))
    text = f"kind: TFJob\nspec:\n  a0: &a0 {{a: 1}}\n{levels}"

    with pytest.raises(OptionsError, match="more than 20000 entries"):
        convert_job_file(text.encode(), "it")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {<<: *a}", "[" * 5000, "a: " + "{a: " * 900 + "1" + "}" * 900])
def test_a_file_that_holds_itself_or_is_deep_is_refused(text):
    """Not followed for ever."""
    with pytest.raises(OptionsError, match=r"is not YAML that we accept|must be a TFJob"):
        convert_job_file(text.encode(), "it")


@pytest.mark.parametrize(
    "number",
    [
        "9" * 90_000,
        "0x" + "f" * 90_000,
        "0b" + "1" * 400_000,
        "0" + "7" * 90_000,
        "1:" * 200_000 + "1",
        "1:" * 999 + "1.5",
    ],
    ids=["decimal", "hexadecimal", "binary", "octal", "sexagesimal", "fraction"],
)
def test_a_number_without_end_is_refused(number):
    """To read some of them takes the square of their digits."""
    with pytest.raises(OptionsError, match=r"not YAML that we accept: line 3, column 5: a number of \d+ characters"):
        convert_job_file(f"kind: TFJob\nspec:\n a: {number}\n".encode(), "it")


@pytest.mark.parametrize("name", ["tony.worker.gpus", "tony.worker.memory", "tony.worker.instances"])
def test_a_property_without_end_is_told(name):
    """It is left out, and nothing else is lost."""
    before, after = FILE.read_text().split(f"<name>{name}</name><value>")
    found = convert_job_file(f"{before}<name>{name}</name><value>{'9' * 90_000}{after[1:]}".encode(), "tony.xml")

    (told,) = [one.message for one in found.warnings if one.path == name]
    assert "it is a" in told
    assert (
        found.options["parameter_server"] == convert_job_file(FILE.read_bytes(), "tony.xml").options["parameter_server"]
    )


@pytest.mark.parametrize("name", ["tony.containers.command", "tony.chief.command"])
def test_braces_that_get_replaced_are_told(name):
    """TonY leaves them to the program; the shell's own stay."""
    found = FILE.read_text().replace("</configuration>", f"{PROPERTY.format(name)}</configuration>")

    told = {one.path: one.message for one in convert_job_file(found.encode(), "tony.xml").warnings}

    assert told[name].startswith("{task_index} gets replaced here")


PROPERTY = "<property><name>{}</name><value>a --index {{task_index}} ${{port}} {{other}}</value></property>"
