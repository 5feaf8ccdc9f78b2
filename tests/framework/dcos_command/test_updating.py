"""Options on top of others, and secrets that are not stored with what was before."""

import contextlib

import pytest

from dcos_command import update, updating
from dcos_command.errors import CommandError, NothingToDo
from dcos_command.updating import MASK, earlier, merged, unmasked
from tf_scheduler.model import masking


class Stored:
    """What a service and its cluster answer: configurations, newest first, and the options it has."""

    name = "tensorflow"

    def __init__(self, *options, user=None, rejected=()):
        self.rejected = list(rejected)
        self.found = {f"id-{number}": {"options": document} for number, document in enumerate(options)}
        self.user = user or {}

    def get(self, path):
        if path == "v1/configurations/target":
            return {"rejected": self.rejected} if self.rejected else {}
        return list(self.found) if path == "v1/configurations" else self.found[path.rpartition("/")[2]]

    def cosmos(self, name, *_):
        if name == "package.render":
            return {"marathonJson": {}}
        return {"userProvidedOptions": self.user, "package": {"name": "tensorflow", "version": "1"}}

    def post(self, *_):
        return {"changed": [], "refused": [], "restarted": [], "added": [], "removed": []}


def test_options_are_merged_as_dc_os_does_it():
    """Objects inside each other; everything else is replaced."""
    below = {"worker": {"count": 2, "uris": ["a"]}, "service": {"name": "x"}}

    assert {"worker": {"count": 3, "uris": ["a"]}, "service": {"name": "x"}} == merged(below, {"worker": {"count": 3}})
    assert {"worker": 1, "service": {"name": "x"}} == merged(below, {"worker": 1})


def test_the_mask_is_that_of_the_scheduler():
    """Users' machines have nothing of it."""
    assert masking.MASK == MASK


def test_secrets_are_those_that_the_service_has_now():
    """Variables by name, passwords in addresses by what is around them."""
    stored = {
        "worker": {"environment": [{"name": "B_KEY", "value": MASK}, {"name": "A", "value": "1"}]},
        "service": {"uri": f"hdfs://me:{MASK}@host/"},
    }
    present = {
        "worker": {"environment": [{"name": "A", "value": "2"}, {"name": "B_KEY", "value": "hidden"}]},
        "service": {"uri": "hdfs://me:secret@host/"},
    }

    found = unmasked(stored, present)

    assert [{"name": "B_KEY", "value": "hidden"}, {"name": "A", "value": "1"}] == found["worker"]["environment"]
    assert "hdfs://me:secret@host/" == found["service"]["uri"]


def test_the_one_before_is_gone_back_to():
    """Or the one that is named."""
    stored = Stored({"a": 1}, {"a": 2}, {"a": 3})

    assert ("id-1", {"a": 2}) == earlier(stored, {"program": "x"})
    assert ("id-2", {"a": 3}) == earlier(stored, {"program": "x", "id": "id-2"})


def test_refused_options_are_undone_by_those_in_force():
    """By a roll-back without an id, and by giving them again, though they change nothing of what runs."""
    reason = "service.user: cannot change"
    stored = Stored({"a": 1}, {"a": 2}, rejected=[reason])

    assert ("id-0", {"a": 1}) == earlier(stored, {"program": "x"})
    assert reason in "".join(map(str, updating.foretold(stored, {"a": 1}, None)))
    with pytest.raises(NothingToDo):
        updating.foretold(Stored({"a": 1}), {"a": 1}, None)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (Stored({}), "there is no configuration before"),
        (Stored({}, {"vault": {"token": MASK}}), "secrets that are not stored: vault.token"),
    ],
)
def test_what_cannot_be_gone_back_to_is_told(stored, words):
    """With what to do instead."""
    with pytest.raises(CommandError, match=words):
        earlier(stored, {"program": "x"})


class Asked:
    """A cluster that takes every update, after which it has the options `after`; `bodies`: what it was sent."""

    name, program = "tensorflow", "x"

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
def test_an_update_that_another_has_replaced_is_no_success(tmp_path, monkeypatch, replace, after, lost):
    """DC/OS takes both. Only what is to change is sent, so that the other's changes can stay."""
    monkeypatch.setattr(updating, "_MOMENT", 0.0)
    (tmp_path / "options.json").write_text('{"worker": {"count": 3}}')
    asked, given = Asked(after), {"program": "x", "options": str(tmp_path / "options.json"), "replace": replace}

    with pytest.raises(CommandError, match="has replaced this one") if lost else contextlib.nullcontext():
        update._start(asked, given)

    assert [{"appId": "/tensorflow", "options": {"worker": {"count": 3}}, "replace": replace}] == asked.bodies


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe{}", "is no text in UTF-8: see its byte 0"),
        (b'{"a":', "is no JSON: "),
        (b"[" * 200_000, "is nested too deeply"),
        (b"[]", ": must be a JSON object"),
    ],
)
def test_an_options_file_that_cannot_be_taken_is_named(own, tmp_path, content, words):
    """With what is wrong, in one line."""
    file = tmp_path / "changes.json"
    if content is not None:
        file.write_bytes(content)

    refused = own("update", "start", "--replace", "--options", str(file))

    assert 1 == refused.code
    assert refused.err.startswith(f"--options {file}")
    assert words in refused.err
    assert 1 == len(refused.err.splitlines())
