"""Documents that name no program: the package's check job runs."""

import getpass
import json
import os
import pwd
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.options import WITHOUT_PROGRAM
from tf_scheduler.cli.common.options_file import load_document, load_options
from tf_scheduler.cli.local_run.installed import InstalledService
from tf_scheduler.errors import OptionsError
from tf_scheduler.model.resources import UNIT
from tf_scheduler.options.environment import to_document
from tf_scheduler.options.load import program_is_named, resolve
from tf_scheduler.options.spec import to_spec
from tf_scheduler.service.options import load_settings, package_defaults

NOTICE = "notice: service.command: no program is named: the package's check job runs\n"
#: Addresses of the package's files, as its Marathon app passes them.
PACKAGE = {"PORT_API": "8080", "EXECUTOR_URI": "http://h/e.pyz", "EXAMPLES_URI": "http://h/examples.zip"}
DOCUMENTS = pytest.mark.parametrize("document", WITHOUT_PROGRAM.values(), ids=WITHOUT_PROGRAM.keys())


@pytest.fixture
def run_document(invoke, tmp_path: Path):
    """Run a command with a document as FILE; return exit code, output and errors."""
    path = tmp_path / "options.json"

    def run_document(document, *arguments: str):
        path.write_text(json.dumps(document))
        return invoke(*(str(path) if name == "FILE" else name for name in arguments))

    return run_document


@DOCUMENTS
def test_commands_accept_document_without_program(run_document, document: dict[str, Any]) -> None:
    """What the package installs."""
    code, _, notices = run_document(document, "options", "validate", "FILE")
    assert (0, NOTICE) == (code, notices)

    code, shown, notices = run_document(document, "options", "show", "--all", "FILE")
    assert (0, NOTICE, "") == (code, notices, json.loads(shown)["service"]["command"])

    assert 0 == run_document(document, "options", "diff", "FILE", "FILE")[0]
    assert 0 == run_document(document, "package", "render", "--options", "FILE")[0]


@DOCUMENTS
def test_scheduler_runs_check_job(run_document, document: dict[str, Any]) -> None:
    """From the app's variables and from a file alike, without an image."""
    variables = json.loads(run_document(document, "package", "render", "--options", "FILE")[1])["env"]
    received = to_document(variables)

    specs = [
        to_spec(resolve(options, package_defaults(options, PACKAGE), [program_is_named]))
        for options in (document, received)
    ]

    assert specs[0] == specs[1]
    assert {("python examples/sanity/check.py", "")} == {(job.command, job.image) for job in specs[0].jobs}
    assert ("http://h/e.pyz", "http://h/examples.zip") == (specs[0].executor.uri, specs[0].uris[0].value)


@DOCUMENTS
def test_scheduler_without_check_job_requires_program(document: dict[str, Any]) -> None:
    without = {name: text for name, text in PACKAGE.items() if name != "EXAMPLES_URI"}

    with pytest.raises(OptionsError, match=r"^service.command: required, because no option names a program$"):
        load_settings(document, without)


@DOCUMENTS
@pytest.mark.parametrize("uid", [0, 1000])
def test_local_cluster_runs_small_check_job(
    document: dict[str, Any], uid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that only DC/OS can use are replaced, also the user `nobody`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=uid))
    (tmp_path / "options.json").write_text(json.dumps(document))

    spec = load_options(tmp_path / "options.json")

    assert getpass.getuser() == spec.user
    assert {("python check.py", "", 100, 64 * UNIT, 0)} == {
        (job.command, job.image, job.needs.cpus, job.needs.mem, job.needs.disk) for job in spec.jobs
    }
    options = InstalledService(tmp_path, "t").completed(load_document(tmp_path / "options.json"))
    assert (False, (tmp_path / "services" / "t" / "state.db").as_uri(), sys.executable) == (
        options["scheduler"]["containerized"],
        options["scheduler"]["state"],
        options["service"]["python"],
    )
    assert replace(spec, failover_timeout=604_800.0) == replace(
        to_spec(resolve(options)), executor=spec.executor, failover_timeout=604_800.0
    )


def test_program_of_one_job_is_required_for_others() -> None:
    """A forgotten command must not run the check job."""
    with pytest.raises(OptionsError, match=r"^worker.command: required"):
        resolve({"parameter_server": {"command": "python ps.py"}})
