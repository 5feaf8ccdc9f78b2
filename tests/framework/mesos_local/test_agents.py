"""Agents' resources, and errors of agents files."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_local.agents import FIRST_PORT, AgentSpec, check_agents, count_gpus, default_agents, load_agents, with_ports
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError
from mesos_local.node import assign_gpus, container_flags

KEYS = st.sampled_from(["hostname", "resources", "attributes", "cpus", "ports"])


def ports_of(spec: AgentSpec) -> tuple[int, int]:
    begin, end = re.findall(r"\d+", spec.resource_pairs()["ports"])
    return int(begin), int(end)


def test_defaults_are_three_disjoint_agents_one_with_gpus() -> None:
    """All share the machine's ports, so no two offer the same; exactly one has GPUs."""
    specs = default_agents()
    assert [spec.hostname for spec in specs] == ["agent-1", "agent-2", "agent-3"]
    assert [spec.resource_pairs().get("gpus") for spec in specs] == [None, None, str(count_gpus() or 2)]
    assert ports_of(specs[0])[0] == FIRST_PORT
    assert all(one[1] < other[0] for one, other in pairwise(ports_of(spec) for spec in specs))


@pytest.mark.parametrize(("present", "gpus"), [(0, "2"), (3, "3")])
def test_default_gpus_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch, present: int, gpus: str) -> None:
    """Without GPUs two are counted, so that placement can be tried."""
    monkeypatch.setattr("mesos_local.agents.count_gpus", lambda: present)

    assert gpus == default_agents()[2].resource_pairs()["gpus"]


def test_gpus_are_counted_by_their_devices(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia11", "nvidia-caps", "nvidia-uvm", "nvidiactl", "null"):
        (tmp_path / name).touch()

    assert 2 == count_gpus(tmp_path)


@pytest.mark.parametrize(
    ("present", "counts", "expected"),
    [
        (3, (0, 2, 1), {"a": "", "b": "0,1", "c": "2"}),
        (1, (0, 0, 0), {"a": "", "b": "", "c": ""}),
        (2, (0, 2, 1), {}),
        (0, (0, 0, 0), {}),
    ],
)
def test_each_agent_gets_gpus_of_its_own(
    monkeypatch: pytest.MonkeyPatch, present: int, counts: tuple[int, ...], expected: dict[str, str]
) -> None:
    """If the agents have more GPUs than the machine, no container gets devices."""
    monkeypatch.setattr("mesos_local.node.count_gpus", lambda: present)
    monkeypatch.setattr("mesos_local.node.has_gpu_isolation", lambda: True)
    specs = [AgentSpec(name, {"cpus": 1, "gpus": count}) for name, count in zip("abc", counts, strict=True)]

    assert expected == assign_gpus(specs)


@pytest.mark.parametrize(
    ("gpus", "isolators"), [(None, []), ("", ["cgroups/devices"]), ("0,1", ["cgroups/devices", "gpu/nvidia"])]
)
def test_agents_isolate_the_gpus_of_their_containers(tmp_path: Path, gpus: str | None, isolators: list[str]) -> None:
    """Agents without GPUs refuse all of them."""
    flags = container_flags(tmp_path, "agent-1", tmp_path, gpus)

    assert isolators == [one for one in flags["isolation"].split(",") if "devices" in one or "gpu" in one]
    assert (gpus or None) == flags.get("nvidia_gpu_devices")


def test_two_tasks_of_one_gigabyte_fit_each_default_agent() -> None:
    """A gang of four TensorFlow tasks fits the two agents without GPUs."""
    for spec in default_agents():
        pairs = spec.resource_pairs()
        assert int(pairs["mem"]) >= 2 * (1024 + 128)
        assert int(pairs["cpus"]) >= 2


def test_mapping_and_text_mean_the_same() -> None:
    """Resources and attributes may be a mapping or text."""
    text = AgentSpec("a", "cpus:2;mem:4096;ports:[31000-31099]", "rack:a;zone:b")
    mapping = AgentSpec("a", {"cpus": 2, "mem": 4096, "ports": "[31000-31099]"}, {"rack": "a", "zone": "b"})
    assert text.resource_pairs() == mapping.resource_pairs()
    assert text.attribute_pairs() == mapping.attribute_pairs()


def test_missing_ports_avoid_configured_ports() -> None:
    """No port is assigned twice."""
    specs = with_ports([AgentSpec("a", "cpus:1"), AgentSpec("b", "ports:[31050-31149]"), AgentSpec("c", "cpus:1")])
    assert [spec.resource_pairs()["ports"] for spec in specs] == ["[31150-31249]", "[31050-31149]", "[31250-31349]"]


def test_overlapping_ports_are_refused() -> None:
    """Two tasks could otherwise get the same port."""
    specs = [AgentSpec("a", "ports:[31000-31099]"), AgentSpec("b", "ports:[31099-31200]")]
    assert check_agents(specs) == ["ports of a and b overlap at 31099: all agents share this machine's ports"]


@pytest.mark.parametrize(
    ("resources", "complaint"),
    [
        ("cpus:two", "resource 'cpus': 'two' is not a number"),
        ("gpus:1.5", "resource 'gpus': '1.5' is not a whole number"),
        ("cpus", "resource 'cpus' with the value '' is not of the form name:value"),
        ("cpus:1;cpus:2", "resource 'cpus' is given twice"),
        ("ports:31000", "resource 'ports': '31000' is not a list of port ranges such as [31000-31099,31200-31299]"),
        ("ports:[31000-30000]", "is not a list of port ranges such as"),
        ("ports:[1-70000]", "is not a list of port ranges such as"),
        ("x:[1", "is neither a number, nor ranges such as [1-5], nor a set such as {a,b}"),
    ],
)
def test_bad_resources_are_named(resources: str, complaint: str) -> None:
    """The message has the resource, its value and what is allowed."""
    errors = check_agents([AgentSpec("a", resources)])
    assert len(errors) == 1
    assert complaint in errors[0]


@pytest.mark.parametrize("resources", ["cpus(role):2", "disk:10", "labels:{a,b}", "fpgas:[1-2]", "cpus:0.5"])
def test_good_resources_are_accepted(resources: str) -> None:
    """Scalars, ranges, sets and reserved resources, as Mesos writes them."""
    assert check_agents([AgentSpec("a", resources)]) == []


def test_all_errors_of_a_file_are_reported(tmp_path: Path) -> None:
    """One run shows everything that is wrong."""
    path = tmp_path / "agents.json"
    content = [
        {"hostname": "a b", "resources": "cpus:many"},
        {"hostname": "c", "resources": "mem:lots", "attributes": "rack"},
        {"hostname": "c", "resources": "cpus:1"},
    ]
    path.write_text(json.dumps(content))
    with pytest.raises(MesosLocalError) as caught:
        load_agents(path)
    for part in ("'a b'", "'many'", "'lots'", "attribute 'rack'", "duplicate hostname 'c'", str(path)):
        assert part in str(caught.value)


def load(tmp_path: Path, content: str | bytes) -> tuple[AgentSpec, ...]:
    path = tmp_path / "agents.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_agents(path)


def complaints(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(MesosLocalError) as caught:
        load(tmp_path, content)
    assert str(tmp_path / "agents.json") in str(caught.value)
    return str(caught.value)


def with_hostname(hostname: str) -> str:
    return json.dumps([{"hostname": hostname, "resources": "cpus:1"}])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "line 1 column 2"),
        ("{}", "a list of at least one object"),
        ("[]", "a list of at least one object"),
        ("[1]", "agent 1: 1 is not an object"),
        ('[{"hostname": "a", "resource": "cpus:1"}]', "unknown key 'resource': did you mean 'resources'?"),
        ('[{"hostname": "a"}]', "agent 1 (a): resources is missing"),
        ('[{"hostname": 1, "resources": 2}]', "hostname 1 is not text"),
        ('[{"hostname": "a", "resources": 2}]', "resources 2 is neither text nor an object"),
        ('[{"hostname": "a", "resources": {"cpus": true}}]', "resource 'cpus': True is neither text nor a number"),
        ('[{"hostname": "a", "resources": {"x": {}}}]', "resource 'x': {} is neither text nor a number"),
        ('[{"hostname": "a", "resources": "cpus:1", "attributes": {"r": "a;b"}}]', "'r' with the value 'a;b' is not"),
        ('[{"hostname": "a", "hostname": "b", "resources": ""}]', "agent 1 (b): 'hostname' is given twice"),
        ('[{"hostname": "a", "resources": {"cpus": 1, "cpus": 2}}]', "agent 1 (a): resource 'cpus' is given twice"),
        ("[" * 100_000, "maximum recursion depth exceeded"),
        ("7" * 5_000, "is not a number that Mesos accepts"),
        ("[1e400]", "1e400 is not a number that Mesos accepts"),
        ("[NaN]", "NaN is not a number that Mesos accepts"),
        (f'[{{"hostname": "a", "resources": "cpus:{"7" * 5_000}"}}]', "is not a number"),
        (f'[{{"hostname": "a", "resources": "ports:[1-{"7" * 5_000}]"}}]', "is not a list of port ranges such as"),
        ('[{"hostname": "a", "resources": "mem:9999999999999"}]', "is too large: at most 1,000,000,000,000"),
        ("[" + "[" * 500 + "]" * 500 + "]", "is not an object"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, text: str, complaint: str) -> None:
    """The message names file and error in readable lines, whatever the file holds."""
    said = complaints(tmp_path, text)
    assert complaint in said
    assert max(map(len, said.splitlines())) < 400


@pytest.mark.parametrize(
    ("hostname", "complaint"),
    [
        ("a" * 64, "is too long (64 characters): at most 63 between two dots and 200 in all are allowed"),
        (".".join(["a" * 60] * 5), "is too long (304 characters)"),
        ("a..b", "'a..b' is invalid: only letters"),
        ("-a", "'-a' is invalid: only letters"),
        ("a.", "'a.' is invalid: only letters"),
        ("", "'' is invalid: only letters"),
        ("../../etc", "is invalid: only letters"),
        ("a\n", "is invalid: only letters"),
        ("master", "'master' is reserved"),
        ("zookeeper", "'zookeeper' is reserved"),
        ("guard", "'guard' is reserved"),
    ],
)
def test_bad_hostnames_are_explained(tmp_path: Path, hostname: str, complaint: str) -> None:
    """They name folders, logs and nodes."""
    assert complaint in complaints(tmp_path, with_hostname(hostname))


def test_longest_hostname_can_name_a_log(tmp_path: Path) -> None:
    """What is allowed works: a file name has 255 bytes at most."""
    hostname = ".".join(["a" * 63] * 3)
    assert hostname == load(tmp_path, with_hostname(hostname))[0].hostname
    (tmp_path / f"{hostname}.log").touch()


def test_wrong_types_do_not_hide_wrong_values(tmp_path: Path) -> None:
    """One run reports all errors: shape, values, duplicate names, shared ports."""
    agents = [
        {"hostname": "a", "resources": 2, "attributes": "rack"},
        {"hostname": "a", "resources": "cpus:many", "color": 1},
        {"resources": "cpus:few"},
        7,
        {"hostname": "b", "resources": "ports:[100-200]"},
        {"hostname": "c", "resources": "cpus:x;ports:[200-300]"},
    ]
    said = complaints(tmp_path, json.dumps(agents))
    expected = [
        "resources 2",
        "attribute 'rack'",
        "'many'",
        "'color'",
        "hostname is missing",
        "'few'",
        "7 is not",
        "'x'",
    ]
    for part in (*expected, "duplicate hostname 'a'", "ports of b and c overlap at 200"):
        assert part in said


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """As in options files: some editors write one."""
    assert "a" == load(tmp_path, b"\xef\xbb\xbf" + with_hostname("a").encode())[0].hostname


def test_other_encodings_are_explained(tmp_path: Path) -> None:
    """The error names the position."""
    assert "can't decode byte 0xff in position 0" in complaints(tmp_path, b"\xff\xfe[")


def test_absent_file_is_explained(tmp_path: Path) -> None:
    """No traceback for a wrong path."""
    with pytest.raises(MesosLocalError, match="No such file"):
        load_agents(tmp_path / "none.json")


def test_non_regular_file_is_rejected_without_waiting(tmp_path: Path) -> None:
    """A pipe without a writer, an endless device, a folder."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(MesosLocalError, match=f"agents file {path}: not a regular file"):
            load_agents(path)


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    """Probably the wrong file."""
    path = tmp_path / "agents.json"
    with path.open("wb") as content:
        content.truncate(1 << 40)
    with pytest.raises(MesosLocalError, match="too large; maximum: 10 MB"):
        load_agents(path)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(content=JSON_VALUES | st.lists(st.dictionaries(KEYS, JSON_VALUES, max_size=3), max_size=3))
def test_any_json_is_accepted_or_explained(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    """The only error is MesosLocalError."""
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(content))
    with suppress(MesosLocalError):
        load_agents(path)


def test_cluster_refuses_bad_agents_before_it_starts() -> None:
    """The constructor checks; nothing has been started then."""
    with pytest.raises(MesosLocalError, match="'many' is not a number"):
        LocalCluster([AgentSpec("a", "cpus:many")])
