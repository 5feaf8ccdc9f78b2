"""Each rule of a package, broken once; and the schemas against the Universe's."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.package import universe
from tf_scheduler.package.render import mismatches
from tf_scheduler.package.sources import FILES, PACKAGE_FOLDER, read_sources
from tf_scheduler.package.validate import PACKAGE_SHAPE, RESOURCE_SHAPE, app_problems, validate

SOURCES = universe.check_and_fill(read_sources())


@pytest.fixture
def folder(tmp_path: Path):
    for name in FILES:
        (tmp_path / name).write_bytes((PACKAGE_FOLDER / name).read_bytes())
    return tmp_path


def problems(folder):
    return [str(problem) for problem in validate(read_sources(folder))]


def edit(folder, name, change) -> None:
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))


def replace(folder, name, old, new) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


def test_package_has_no_problem(folder) -> None:
    assert [] == problems(folder)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("package.json", lambda d: d.update(version="0.1_0"), "package.json: version: "),
        ("package.json", lambda d: d.update(releaseVersion=0), "('releaseVersion' was unexpected)"),
        ("package.json", lambda d: d.pop("maintainer"), "package.json: 'maintainer' is a required property"),
        ("package.json", lambda d: d.update(tags=["machine learning"]), "package.json: tags.0: "),
        ("package.json", lambda d: d.update(licenses=[{"name": "x", "url": "ftp://x"}]), "licenses.0.url: "),
        ("package.json", lambda d: d.pop("website"), "package.json: website: missing"),
        ("package.json", lambda d: d.update(maintainer="us"), "package.json: maintainer: must contain an address"),
        ("resource.json", lambda d: d["images"].update(icon="x"), "images: Additional properties are not "),
        ("resource.json", lambda d: d["cli"]["binaries"].clear(), "resource.json: cli.binaries: "),
        ("config.json", lambda d: d["properties"].update(x={"type": "text"}), "config.json: properties.x.type: "),
        ("config.json", lambda d: d.pop("additionalProperties"), "config.json: top level: missing additional"),
        (
            "config.json",
            lambda d: d["properties"]["worker"]["properties"]["count"].pop("description"),
            "config.json: worker.count: has no description",
        ),
        (
            "config.json",
            lambda d: d["properties"]["worker"]["properties"]["count"].pop("title"),
            "config.json: worker.count: has no title",
        ),
        ("config.json", lambda d: d["properties"]["tls"].pop("title"), "config.json: tls: has no title"),
        (
            "config.json",
            lambda d: d["properties"]["secrets"]["items"]["properties"]["env"].pop("title"),
            "config.json: secrets.env: has no title",
        ),
        (
            "config.json",
            lambda d: d["properties"]["worker"]["properties"]["count"].update(default="two"),
            "config.json: worker.count: 'two' is not of type 'integer'",
        ),
        (
            "config.json",
            lambda d: d["properties"]["worker"]["properties"].update(new={"default": 1, "description": "x"}),
            "config.json: worker.new: is not used in marathon.json.mustache",
        ),
    ],
)  # fmt: skip
def test_problem_names_file_and_path(folder, file, change, message) -> None:
    edit(folder, file, change)

    assert any(message in problem for problem in problems(folder))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"{{service.user}}",\n  "cmd"', '"{{service.usr}}",\n  "cmd"', "{{service.usr}} is neither an option nor"),
        ("{{resource.assets.uris.scheduler}}", "{{resource.assets.uris.shed}}", "{{resource.assets.uris.shed}} is nei"),
        ("{{/scheduler.containerized}}", "", "{{#scheduler.containerized}} has no end tag"),
        ('"instances": 1,', '"instances": 2,', "/instances: must be at most 1 for a single instance app"),
        ('"instances": 1,', '"instances": 1', "does not render with the defaults"),
        ('"WORKER_COUNT"', '"WORKERS"', "its options block differs from the schema"),
        ("{{! options: end }}", "", "missing lines {{! options: "),
        ('"portIndex": 0', '"portIndex": 1', "/healthChecks/0/portIndex: out of range: the app has 1 ports"),
    ],
)
def test_unusable_template_is_a_problem(folder, old, new, message) -> None:
    """Also what Cosmos would accept and only Marathon refuse."""
    replace(folder, "marathon.json.mustache", old, new)

    assert any(message in problem for problem in problems(folder))


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_one_problem(folder, name) -> None:
    """Not one for each rule that reads it."""
    (folder / name).unlink()

    assert [f"{name}: cannot be read: No such file or directory"] == [
        problem for problem in problems(folder) if problem.startswith(name)
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1, "a": 2}', "package.json: a: is repeated in one object of the file"),
        (b'{"description": "caf\xc3\xa9"}', "package.json: line 1: only ASCII"),
        (b'{"description": "caf\\u00e9"}', "package.json: a Universe package must not contain non-ASCII"),
        (b"[1]", "package.json: the file must hold a JSON object"),
        (b'{"a": 1;}', "package.json: 1:8: expecting ',' delimiter"),
        (b"[" * 100_000, "package.json: the file is not JSON: "),
        (b"9" * 90_000, "package.json: the file is not JSON: "),
    ],
)
def test_files_are_strict_ascii_json(folder, content, message) -> None:
    """The Universe's validator reads ASCII without \\u escapes."""
    (folder / "package.json").write_bytes(content)

    assert any(problem.startswith(message) for problem in problems(folder))


def test_command_json_is_a_problem(folder) -> None:
    (folder / "command.json").write_text("{}")

    assert ["command.json: not allowed since packaging version 4.0; use `cli` in resource.json"] == problems(folder)


@pytest.mark.parametrize(
    ("app", "path"),
    [
        ({}, "/"),
        ({"id": "/UPPER", "cmd": "x"}, "/id"),
        ({"id": "a"}, "/"),
        ({"id": "a", "cmd": "x", "args": ["y"]}, "/"),
        ({"id": "a", "cmd": "x", "env": {"A": {"secret": "s"}}}, "/env/A"),
        (
            {"id": "a", "cmd": "x", "healthChecks": [{"protocol": "MESOS_TCP"}] * 2, "portDefinitions": [{}]},
            "/healthChecks",
        ),
        (
            {"id": "a", "cmd": "x", "labels": {"MARATHON_SINGLE_INSTANCE_APP": "true"}, "upgradeStrategy": {}},
            "/upgradeStrategy",
        ),
    ],
)
def test_marathons_rules_beyond_its_schema(app, path) -> None:
    assert [path] == [problem.path for problem in app_problems(app)]


def places(document, path=()):
    """The path of everything in a JSON document."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else ())
    )
    for key, value in items:
        yield from places(value, (*path, key))


@st.composite
def mutants(draw, document):
    """The document with one thing in it replaced, removed or added."""
    mutant = copy.deepcopy(document)
    path = draw(st.sampled_from([place for place in places(document) if place]))
    below = mutant
    for key in path[:-1]:
        below = below[key]
    kind = draw(st.sampled_from(["replace", "remove", "add"]))
    value = draw(
        st.sampled_from([None, True, -1, 7, "", "a b", "text", "https://x", "1.10", [], ["x"], {}, {"x": "y"}])
    )
    if kind == "remove":
        del below[path[-1]]
    elif kind == "add" and isinstance(below, dict):
        below["unknown"] = value
    else:
        below[path[-1]] = value
    return mutant


@given(mutants(SOURCES.package))
def test_package_schema_agrees_with_universe(fits, document) -> None:
    """Property: both validators agree. Only packaging version 4.0 is supported."""
    theirs = fits(document, "universe/package-schema.json")

    assert bool(theirs) == bool(mismatches(document, PACKAGE_SHAPE))


@given(mutants(SOURCES.resource))
def test_resource_schema_agrees_with_universe(fits, document) -> None:
    """Property: both accept or both refuse."""
    assert bool(fits(document, "universe/v3-resource-schema.json")) == bool(mismatches(document, RESOURCE_SHAPE))
