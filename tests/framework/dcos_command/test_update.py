"""Merged options, and secrets that are not stored with configurations."""

import contextlib
import json
from functools import partial

import pytest

from dcos_command import update
from dcos_command.documents import merge_options, read_document
from dcos_command.errors import CommandError, NothingToDoError, RefusedError, UnreachableError
from dcos_command.output import Line
from dcos_command.update import (
    MASK,
    Change,
    preview_rollback,
    preview_start,
    restore_secrets,
    select_earlier,
    start_change,
)
from tf_scheduler.cli.common.options_file import load_document
from tf_scheduler.cli.local_run.installed import InstalledService, LocalInstallation
from tf_scheduler.model import redaction


class Stored:
    """Answers of a service and its cluster: configurations, newest first, and options."""

    name, program, job = "tensorflow", "x", ""
    installation: LocalInstallation | None = None

    def __init__(self, *options, user=None, rejected=()):
        self.rejected = list(rejected)
        self.configurations = {f"id-{number}": {"options": document} for number, document in enumerate(options)}
        self.user = user or {}

    def get(self, path):
        if path == "v1/configurations/target":
            return {"rejected": self.rejected} if self.rejected else {}
        return (
            list(self.configurations) if path == "v1/configurations" else self.configurations[path.rpartition("/")[2]]
        )

    def cosmos(self, name, *_):
        if name == "package.render":
            return {"marathonJson": {}}
        return {"userProvidedOptions": self.user, "package": {"name": "tensorflow", "version": "1"}}

    def post(self, *_):
        return {"changed": [], "refused": [], "restarted": [], "added": [], "removed": []}


def test_options_merge_like_cosmos():
    """Nested objects; any other value is replaced."""
    below = {"worker": {"count": 2, "uris": ["a"]}, "service": {"name": "x"}}

    assert {"worker": {"count": 3, "uris": ["a"]}, "service": {"name": "x"}} == merge_options(
        below, {"worker": {"count": 3}}
    )
    assert {"worker": 1, "service": {"name": "x"}} == merge_options(below, {"worker": 1})


def test_mask_is_the_schedulers():
    assert redaction.MASK == MASK


def test_masked_secrets_get_present_values():
    """Variables by name, passwords in URLs by the text around them."""
    stored = {
        "worker": {"environment": [{"name": "B_KEY", "value": MASK}, {"name": "A", "value": "1"}]},
        "service": {"uri": f"hdfs://me:{MASK}@host/"},
    }
    present = {
        "worker": {"environment": [{"name": "A", "value": "2"}, {"name": "B_KEY", "value": "hidden"}]},
        "service": {"uri": "hdfs://me:secret@host/"},
    }

    restored = restore_secrets(stored, present)

    assert [{"name": "B_KEY", "value": "hidden"}, {"name": "A", "value": "1"}] == restored["worker"]["environment"]
    assert "hdfs://me:secret@host/" == restored["service"]["uri"]


def test_rollback_selects_previous_or_named_configuration():
    stored = Stored({"a": 1}, {"a": 2}, {"a": 3})

    assert ("id-1", {"a": 2}) == select_earlier(stored)
    assert ("id-2", {"a": 3}) == select_earlier(stored, "id-2")


def test_rollback_of_refused_options_selects_those_in_force():
    """Passing them again works, too, although nothing that runs changes."""
    reason = "service.user: cannot change"
    stored = Stored({"a": 1}, {"a": 2}, rejected=[reason])

    assert ("id-0", {"a": 1}) == select_earlier(stored)
    assert reason in "".join(map(str, update.describe_changes(stored, {"a": 1}, None)))
    with pytest.raises(NothingToDoError):
        update.describe_changes(Stored({"a": 1}), {"a": 1}, None)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ({"step": 48, "saved_step": 20}, "; 28 steps since its last checkpoint are lost"),
        ({"step": 2021, "saved_step": 2020}, "; 1 step since its last checkpoint is lost"),
        ({"step": 1406, "saved_step": None}, ", at step 1,406; what it has not saved is lost"),
        ({"step": None, "saved_step": None}, ""),
        ({}, ""),  # an older scheduler
    ],
)
def test_preview_shows_loss_of_restarts(monkeypatch, steps, words):
    """The user decides whether to wait for the next checkpoint."""
    stored = Stored({"a": 1})
    restarted = [{"task": "worker-0", "reason": "its command changed", **steps}]
    monkeypatch.setattr(stored, "post", lambda *_: {**Stored().post(), "restarted": restarted})

    blocks = update.describe_changes(stored, {}, "2")
    lines = ["".join(getattr(cell, "text", cell) for cell in line.words) for line in blocks if isinstance(line, Line)]

    assert f"worker-0 restarts: its command changed{words}" in lines


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (Stored({}), "no earlier configuration"),
        (Stored({}, {"vault": {"token": MASK}}), "its secrets are not stored: vault.token"),
    ],
)
def test_impossible_rollback_names_the_reason(stored, words):
    with pytest.raises(CommandError, match=words):
        select_earlier(stored)


class Asked:
    """A cluster that takes every update and then has `after`; `bodies`: its requests."""

    name, program, installation, job = "tensorflow", "x", None, ""

    def __init__(self, after):
        self.after, self.bodies = after, []

    def cosmos(self, name, _path, body):
        self.bodies += [body] if name == "service.update" else []
        return {"userProvidedOptions": self.after}


@pytest.mark.parametrize(
    ("replace", "after", "lost"),
    [
        (False, {"worker": {"count": 3, "cpus": 1}}, False),
        (False, {"worker": {"count": 2, "cpus": 1}}, True),
        (True, {"worker": {"count": 3}}, False),
        (True, {"worker": {"count": 3, "cpus": 1}}, True),
    ],
)
def test_update_lost_to_another_one_fails(monkeypatch, replace, after, lost):
    """DC/OS accepts both. Only changed options are sent, so the other's remain."""
    monkeypatch.setattr(update, "_CHECK_SECONDS", 0.0)
    asked, change = Asked(after), Change({"worker": {"count": 3}}, after, (), replace)

    with pytest.raises(CommandError, match="update lost: a concurrent update") if lost else contextlib.nullcontext():
        start_change(asked, change)

    assert [{"appId": "/tensorflow", "options": {"worker": {"count": 3}}, "replace": replace}] == asked.bodies


def test_options_changed_meanwhile_are_not_replaced():
    update.check_unchanged(Asked({"worker": {"count": 3}}), {"worker": {"count": 3}, "ps": {}})

    with pytest.raises(CommandError, match=r"meanwhile changed worker\.count, a; this"):
        update.check_unchanged(Asked({"worker": {"count": 3}}), {"worker": {"count": 4}, "a": 1})


class Ahead(Stored):
    """DC/OS has the options `user`; its scheduler runs the newest configuration."""

    def cosmos(self, name, _path, body):
        return {"marathonJson": {"env": body["options"]}} if name == "package.render" else super().cosmos(name)

    def post(self, _path, body):
        (now, *_), wanted = self.configurations.values(), body["environment"]
        names = sorted(name for name in wanted if wanted[name] != now["options"].get(name))
        rows = [{"option": name, "old": now["options"].get(name), "new": wanted[name]} for name in names]
        return {**super().post(), "changed": rows}


@pytest.mark.parametrize("preview", [partial(preview_start, options={"a": 1}, replace=True), preview_rollback])
def test_unstarted_update_is_overwritten_only_with_force(preview):
    service = Ahead({"a": 1}, {"a": 0}, user={"a": 2})

    with pytest.raises(CommandError, match=r"(?s)not started with:\na: DC/OS has 2, scheduler 1\n.*--force"):
        preview(service)
    change = preview(service, force=True)

    assert [("a", "2", "1")] == list(change.effects[1].rows)
    assert {"a": 2} == change.present
    assert preview(Ahead({"a": 3}, {"a": 2}, user={"a": 3})).effects


class InvalidForCosmos(Stored):
    """Cosmos refuses the options; its scheduler may name the problem."""

    answer: Exception = RefusedError("worker.cont: unknown option; did you mean `count`?", 409)

    def cosmos(self, name, *_):
        if name == "package.render":
            raise RefusedError('object instance has properties which are not allowed by the schema: ["cont"]', 400)
        return super().cosmos(name)

    def post(self, _path, body):
        assert {"options": {"worker": {"cont": 4}}} == body
        raise self.answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (InvalidForCosmos.answer, "did you mean `count`"),
        (UnreachableError("no scheduler"), "not allowed by the schema"),
    ],
)
def test_invalid_options_are_explained_by_the_scheduler(answer, words):
    service = InvalidForCosmos({}, {}, user={})
    service.answer = answer

    with pytest.raises(RefusedError, match=words):
        preview_start(service, {"worker": {"cont": 4}})


def test_rollback_restores_the_previewed_options():
    """Also if the previous configuration is another one by now."""
    service = Ahead({"a": 1}, {"a": 0}, user={"a": 1})
    change = preview_rollback(service)
    service.user = {"a": 5}

    assert {"a": 0} == change.options
    with pytest.raises(CommandError, match="another update meanwhile changed a;"):
        start_change(service, change)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ": No such file"),
        (b"\xff\xfe{}", ": invalid UTF-8 at byte 0"),
        (b'{"a":', ": invalid JSON: "),
        (b"[" * 200_000, ": nested too deeply"),
        (b"[]", ": must be a JSON object"),
    ],
)
def test_invalid_options_file_is_named(own, tmp_path, content, words):
    file = tmp_path / "changes.json"
    if content is not None:
        file.write_bytes(content)

    refused = own("update", "start", "--replace", "--options", str(file))

    assert 1 == refused.code
    assert str(file) in refused.err
    assert words in refused.err
    assert 1 == len(refused.err.splitlines())


class Local(Stored):
    """A service of `local install`; `previewed`: the options of the last preview."""

    def __init__(self, folder, document):
        super().__init__()
        self.file = folder / "svc.json"
        self.write(document)
        (folder / "long.py").touch()
        self.installed = InstalledService(folder / "cluster", "svc")
        self.installed.folder.mkdir(parents=True)
        self.installed.write(self.installed.with_checkpoints(load_document(self.file)))
        self.installation = LocalInstallation(self.installed)

    def write(self, document):
        self.file.write_text(json.dumps(document))

    def post(self, _path, body):
        self.previewed = body["options"]
        return super().post()


LONG = {"service": {"name": "svc", "command": "python long.py", "job_url": "long.py", "environment": {"A": "1"}}}


@pytest.mark.parametrize("replace", [False, True])
def test_unchanged_file_of_local_service_updates_nothing(tmp_path, replace):
    """Relative paths are resolved as in `local install`, and defaults are the same."""
    local = Local(tmp_path, LONG)

    with pytest.raises(NothingToDoError):
        preview_start(local, read_document(str(local.file)), tmp_path, replace=replace)

    assert local.installed.completed(local.installed.options()) == local.previewed
    assert (tmp_path / "long.py").as_uri() == local.previewed["service"]["job_url"]


@pytest.mark.parametrize(
    ("service", "problem"),
    [({"job_url": "gone.py"}, "gone.py: file does not exist"), ("text", "service: must be an object")],
)
def test_update_of_local_service_validates_the_file(tmp_path, service, problem):
    local = Local(tmp_path, LONG)
    local.write({"service": service})

    with pytest.raises(CommandError, match=problem):
        preview_start(local, read_document(str(local.file)), tmp_path)


def test_update_of_local_service_names_misspelt_option(tmp_path):
    """The whole text, in the words of the validator, not those of Cosmos."""
    local = Local(tmp_path, LONG)
    local.file.write_text(json.dumps({**LONG, "worker": {"cont": 4}}))

    with pytest.raises(CommandError) as caught:
        preview_start(local, read_document(str(local.file)), tmp_path)

    assert "worker.cont: unknown option; did you mean `count`?" == str(caught.value)


def test_update_on_dcos_warns_of_a_relative_path():
    change = preview_start(Stored(), LONG, version="2")

    assert "service.job_url: long.py: agents need an address" in change.effects[0]
    assert LONG == change.options
