"""The package, and the repository that is built from it."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import tf_scheduler
from kit import cosmos
from options_strategies import documents
from tf_scheduler.errors import PackageError
from tf_scheduler.options.environment import to_document
from tf_scheduler.options.load import merge, resolve
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.package import sources as package_sources
from tf_scheduler.package import universe
from tf_scheduler.package.artefacts import COMMAND, command_bytes, sha256
from tf_scheduler.package.render import render_app
from tf_scheduler.package.sources import PACKAGE_FOLDER, read_sources
from tf_scheduler.package.validate import validate

ROOT = PACKAGE_FOLDER.parent
SOURCES = universe.check_and_fill(read_sources())
PACKAGE = package_sources.repository_entry(SOURCES)
IMAGE = PACKAGE["resource"]["assets"]["container"]["docker"]["scheduler"]
#: What Marathon 1.7 does not know yet.
NEW_IN_MARATHON = ("check", "role", "resourceLimits")

#: Repositories that the Universe makes (its script gen_universe.py): DC/OS -> version of the media type.
UNIVERSE_REPOSITORIES = {"1.8": "v3", "1.9": "v3", "1.10": "v4", "1.11": "v4", "1.12": "v5", "1.13": "v5", "2.0": "v5"}
#: A checkout of github.com/mesosphere/universe. Its scripts need Python 3.11 or older, jsonschema and pystache.
UNIVERSE = Path(os.environ.get("UNIVERSE_CHECKOUT", "/nonexistent"))

#: The options that the documentation of the original package shows, and what its users deploy.
ORIGINAL = {
    "none": {},
    "counts only": {"service": {"job_url": "https://example.com/job.zip", "job_name": "mnist"}, "worker": {"count": 5}},
    "gpu": {"service": {"name": "gan"}, "worker": {"count": 0}, "gpu_worker": {"count": 2, "gpus": 2}},
    "tensorboard": {"service": {"use_tensorboard": True, "shared_filesystem": "hdfs://default/mnist"}},
    "hdfs": {"service": {"hdfs": {"config_uri": "http://api.hdfs.marathon.l4lb.thisdcos.directory/v1/endpoints"}}},
    "job context": {"service": {"job_context": '{"learning_rate": 0.5, "text": "a\\"b"}'}},
    "placement": {"worker": {"placement_constraint": '[["hostname", "UNIQUE"]]'}},
    "virtual network": {
        "service": {"virtual_network_enabled": True, "virtual_network_plugin_labels": "k_0:v_0,k_1:v_1"}
    },
    "folder": {"service": {"name": "/dev/team/mnist"}},
    "strict": {
        "service": {
            "name": "/dev/tensorflow/mnist",
            "service_account": "dev_tensorflow",
            "service_account_secret": "dev/tensorflow/serviceCredential",
        }
    },
    "secrets": {"secrets": [{"source": "dev/key", "env": "KEY", "jobs": "worker,chief"}, {"source": "a", "file": "b"}]},
    "volumes": {"volumes": [{"host_path": "/mnt/a", "container_path": "a", "mode": "RO", "jobs": "worker"}]},
    "kerberos": {
        "service": {
            "security": {
                "kerberos": {
                    "enabled": True,
                    "kdc": {"hostname": "kdc.example.com", "port": 88},
                    "realm": "EXAMPLE.COM",
                    "keytab_secret": "__dcos_base64__keytab",
                }
            }
        }
    },
    "no image": {"scheduler": {"containerized": False, "python": "/opt/python/bin/python3"}},
    "own image": {"scheduler": {"image": "registry.example.com/python:3.13"}},
}  # fmt: skip


def numbers(version):
    return [int(part) for part in version.split(".")]


EXAMPLES = {path.parent.name: json.loads(path.read_text()) for path in (ROOT / "examples").glob("*/options*.json")}


def test_committed_repository_is_of_a_release() -> None:
    """A build for a test or an option's default does not belong into it."""
    committed = {path for path in (ROOT / "universe").rglob("*") if path.is_file()}
    placeholder = universe.PLACEHOLDER_URL.encode()

    assert ROOT / "universe" / "README.md" in committed
    assert [] == [path for path in committed if placeholder in path.read_bytes()]


def test_sources_are_valid() -> None:
    assert [] == validate(read_sources())


@pytest.mark.parametrize("version", package_sources.VERSIONS)
def test_documents_match_universe_schemas(fits, version) -> None:
    """v4 for DC/OS 1.10 and 1.11, v5 from 1.12."""
    document = json.loads(universe.universe_files(SOURCES)[f"universe-{version}.json"])

    assert [] == fits(document, f"universe/{version}-repo-schema.json")
    assert ["4.0"] == [package["packagingVersion"] for package in document["packages"]]


def test_each_claimed_dcos_has_a_document() -> None:
    """No other DC/OS: the Universe leaves the package out of its repository."""
    minimum = numbers(PACKAGE["minDcosReleaseVersion"])

    claimed = {version for dcos, version in UNIVERSE_REPOSITORIES.items() if numbers(dcos) >= minimum}

    assert set(package_sources.VERSIONS) == claimed


@pytest.mark.skipif(not UNIVERSE.is_dir(), reason="needs a copy of mesosphere/universe in UNIVERSE_CHECKOUT")
def test_universe_accepts_the_package(tmp_path: Path) -> None:
    """Its generator uses the package for the published repositories only."""
    for name in ("scripts", "repo/meta"):
        shutil.copytree(UNIVERSE / name, tmp_path / name)
    universe.build_universe(read_sources(), tmp_path)
    (tmp_path / "target").mkdir()
    python = os.environ.get("UNIVERSE_PYTHON", sys.executable)

    generate = ["gen_universe.py", f"--repository={tmp_path / 'repo' / 'packages'}", f"--out-dir={tmp_path / 'target'}"]
    for command in (["validate_packages.py"], generate):
        subprocess.run([python, tmp_path / "scripts" / command[0], *command[1:]], check=True)

    for dcos, version in UNIVERSE_REPOSITORIES.items():
        document = json.loads((tmp_path / "target" / f"repo-up-to-{dcos}.json").read_text())
        media_type = (tmp_path / "target" / f"repo-up-to-{dcos}.content_type").read_text()
        assert package_sources.content_type(version) == media_type
        assert {"packages": [PACKAGE] if version in package_sources.VERSIONS else []} == document


@pytest.mark.parametrize(
    ("file", "name"),
    [("package", "package-schema"), ("config", "config-schema"), ("resource", "v3-resource-schema")],
)
def test_files_match_universe_schemas(fits, file, name) -> None:
    assert [] == fits(getattr(SOURCES, file), f"universe/{name}.json")


def test_repository_holds_template_and_digest() -> None:
    template = base64.b64decode(PACKAGE["marathon"]["v2AppMustacheTemplate"]).decode()
    binaries = PACKAGE["resource"]["cli"]["binaries"]

    assert (PACKAGE_FOLDER / "marathon.json.mustache").read_text() == template
    for platform in binaries.values():
        assert [{"algo": "sha256", "value": sha256(command_bytes())}] == platform["x86-64"]["contentHash"]


def test_versions_agree() -> None:
    """Package, program and sub-command are released together."""
    assert tf_scheduler.__version__ == PACKAGE["version"] == render_app(SOURCES)["env"]["PACKAGE_VERSION"]
    assert PACKAGE["name"] == render_app(SOURCES)["env"]["PACKAGE_NAME"]


def test_upgrades_name_released_versions() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()

    for version in (*PACKAGE["upgradesFrom"], *PACKAGE["downgradesTo"]):
        assert version == "*" or f"## {version}" in changelog


@pytest.mark.parametrize("options", [*ORIGINAL.values(), *EXAMPLES.values()], ids=[*ORIGINAL, *EXAMPLES])
def test_marathon_accepts_the_app(fits, options) -> None:
    """By both of its schemas; and Cosmos renders the same app."""
    app = render_app(SOURCES, options, "https://example.com/universe.json", "dev/mnist")

    assert cosmos.render_app(PACKAGE, options, "https://example.com/universe.json", "dev/mnist") == app
    assert [] == fits(app, "marathon/app-from-raml.schema.json")
    old = {name: value for name, value in app.items() if name not in NEW_IN_MARATHON}
    assert [] == fits(old, "marathon/AppDefinition-1.7.schema.json")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(options=documents())
def test_valid_options_reach_the_scheduler(fits, options) -> None:
    """Property: Marathon accepts and keeps valid options, as Cosmos does."""
    for app in (render_app(SOURCES, options), cosmos.render_app(PACKAGE, options)):
        assert [] == fits(app, "marathon/app-from-raml.schema.json")
        assert resolve(options) == resolve(to_document(app["env"]))


def test_omitted_list_fields_have_defaults() -> None:
    """Cosmos renders them as empty texts."""
    options = {"service": {"command": "x"}, "volumes": [{"host_path": "/data", "container_path": "/data"}]}

    (volume,) = resolve(to_document(render_app(SOURCES, options)["env"]))["volumes"]

    assert "RW" == volume["mode"]


def test_secrets_and_images_are_optional() -> None:
    """A cluster without a secret store must accept the default app."""
    plain, strict, bare = (render_app(SOURCES, ORIGINAL[name]) for name in ("none", "strict", "no image"))

    assert {"docker": {"image": IMAGE}, "type": "MESOS"} == plain["container"]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", IMAGE)
    assert {"container", "secrets"} == {"container", "secrets"} - bare.keys()
    assert "secrets" not in plain
    assert {"serviceCredential": {"source": "dev/tensorflow/serviceCredential"}} == strict["secrets"]
    assert {"secret": "serviceCredential"} == strict["env"]["DCOS_SERVICE_ACCOUNT_CREDENTIAL"]
    assert (
        "registry.example.com/python:3.13" == render_app(SOURCES, ORIGINAL["own image"])["container"]["docker"]["image"]
    )


def test_notes_name_the_image_and_what_is_open() -> None:
    notes = PACKAGE["preInstallNotes"]

    assert f"Python 3.10 or newer and runs in the image {IMAGE.partition('@')[0]};" in notes
    options = re.findall(r"\b(?:api|scheduler)\.\w+", notes)
    assert {"api.write_token", "scheduler.state", "scheduler.containerized"} <= set(options)
    assert set(options) <= set(map(str, OPTIONS))


def test_form_begins_with_the_usual_sections() -> None:
    sections = PACKAGE["config"]["properties"]

    assert ["service", "worker", "gpu_worker", "parameter_server"] == list(sections)[:4]
    assert ["name", "user", "strategy", "command"] == list(sections["service"]["properties"])[:4]
    assert ["count", "cpus", "mem"] == list(sections["worker"]["properties"])[:3]
    titles = [sections["worker"]["properties"][name]["title"] for name in ("count", "cpus", "mem", "kill_grace")]
    assert ["Number of tasks", "CPU (cores)", "Memory (MB)", "Kill grace period (seconds)"] == titles


def test_labels_for_dcos() -> None:
    """Uninstall by plan, admin router, `dcos service log`; folders stay in the name."""
    labels = render_app(SOURCES, ORIGINAL["folder"])["labels"]

    assert {
        "DCOS_COMMONS_API_VERSION": "v1",
        "DCOS_COMMONS_UNINSTALL": "true",
        "DCOS_PACKAGE_FRAMEWORK_NAME": "/dev/team/mnist",
        "DCOS_SERVICE_NAME": "/dev/team/mnist",
        "DCOS_SERVICE_PORT_INDEX": "0",
        "DCOS_SERVICE_SCHEME": "http",
        "MARATHON_SINGLE_INSTANCE_APP": "true",
    } == {name: text for name, text in labels.items() if not name.startswith("DCOS_PACKAGE_") or "FRAMEWORK" in name}


def test_api_with_tls_uses_https() -> None:
    """The admin router and Marathon's health check use it."""
    tls = {"api": {"certificate_file": "a.pem", "key_file": "a.key"}}
    apps = [render_app(SOURCES, options) for options in ({}, tls)]

    assert ["http", "https"] == [app["labels"]["DCOS_SERVICE_SCHEME"] for app in apps]
    assert ["MESOS_HTTP", "MESOS_HTTPS"] == [app["healthChecks"][0]["protocol"] for app in apps]


def test_artefacts_url_is_a_parameter() -> None:
    sources = universe.check_and_fill(read_sources(), "https://files.example.com/tf/")

    version = sources.package["version"]
    assert (
        f"https://files.example.com/tf/{version}/{COMMAND}"
        == (sources.resource["cli"]["binaries"]["linux"]["x86-64"]["url"])
    )


def test_invalid_package_is_not_built(tmp_path: Path) -> None:
    sources = read_sources()
    broken = replace(sources, package=merge(sources.package, {"version": "0.1_0"}))

    with pytest.raises(PackageError, match=r"package.json: version: "):
        universe.build_universe(broken, tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_image_with_older_python_is_refused() -> None:
    """The scheduler would exit in it; the Python of other images is unknown."""
    sources = read_sources()
    other = {"assets": {"container": {"docker": {"scheduler": "registry.example.com/scheduler:0.1.0"}}}}

    with pytest.raises(PackageError, match=r"resource.json: .*`python:3\.12.*needs Python 3\.13"):
        universe.check_and_fill(sources, python=(3, 13))
    filled = universe.check_and_fill(replace(sources, resource=merge(sources.resource, other)), python=(3, 13))
    assert (
        "Python 3.13 or newer and runs in the image registry.example.com/scheduler:0.1.0;"
        in (filled.package["preInstallNotes"])
    )


def test_unknown_digest_is_an_error() -> None:
    """The digests of other artefacts depend on the build machine."""
    sources = read_sources()
    binaries = sources.resource["cli"]["binaries"]["linux"]["x86-64"]
    other = {**binaries, "contentHash": [{"algo": "sha256", "value": "{{sha256:other}}"}]}
    resource = merge(sources.resource, {"cli": {"binaries": {"linux": {"x86-64": other}}}})

    with pytest.raises(PackageError, match=r"\{\{sha256:other\}\}: unknown"):
        universe.check_and_fill(replace(sources, resource=resource))


def test_second_generation_changes_nothing(tmp_path: Path) -> None:
    for name in ("config.json", "marathon.json.mustache"):
        (tmp_path / name).write_bytes((PACKAGE_FOLDER / name).read_bytes())

    assert [] == universe.generate_sources(tmp_path)
    Path(tmp_path / "config.json").write_text("{}")
    assert ["config.json"] == universe.generate_sources(tmp_path)
    assert (PACKAGE_FOLDER / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()
