"""Secrets of a task: fetched once, in memory only, removed at the end."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobs import gone
from kit.certificates import Certificates
from kit.http_server import HttpServer, QuietHandler
from tf_executor.contract.payload import RENEW_SECRETS
from tf_executor.process import temporary
from tf_executor.process.temporary import PREFIX, SHARED_MEMORY, MemoryFiles, remove_orphans
from tf_executor.secrets.task_secrets import Secret, SecretFetchError, SecretRequest, decode, fetch_secrets

CANARY = "canary-7f3a9c51"
AUTHORITIES = ("ca.pem", "stranger.pem")
CLAIM = {"secrets_token": "the-token"}


class Desk:
    """A scheduler API that returns the responses in order, then repeats the last."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.asked: list[dict[str, str]] = []
        self.answers = list(answers)
        desk = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                desk.asked.append(json.loads(self.body()))
                code, body = desk.answers.pop(0) if len(desk.answers) > 1 else desk.answers[0]
                content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.answer(code, content, Location="http://127.0.0.1:9/elsewhere")

        self.server = HttpServer(Handler)
        self.close = self.server.close

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1/secrets"


@pytest.fixture
def desk_of() -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(*answers: tuple[int, Any]) -> Desk:
        made.append(Desk(*answers))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


def response(*items: tuple[str, str, bytes], reload: tuple[str, ...] = ()) -> tuple[int, Any]:
    """Return a response; `reload`: files that the program wants to reload."""
    entries = [{"env": a, "file": b, "value": base64.b64encode(c).decode(), "reload": b in reload} for a, b, c in items]
    return 200, {"secrets": entries}


def claim(url: str) -> SecretRequest:
    return SecretRequest(url, "t1", "the-token", "nonce")


# Task.


def test_only_the_program_gets_secrets(executor: Any, desk_of: Any) -> None:
    desk = desk_of(response(("KEY", "", CANARY.encode()), ("KEY_FILE", "certs/key", b"\0bytes")))
    show = 'echo "$KEY"; stat -Lc "%a %u" certs/key; readlink certs/key; od -c "$KEY_FILE"'
    executor.launch(show, secrets_url=desk.url, **CLAIM)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    words = executor.output().split("\n")
    assert [CANARY, f"600 {os.getuid()}"] == words[:2]
    assert words[2].startswith(f"{SHARED_MEMORY}/tf-executor-")
    assert not Path(words[2]).exists()
    assert "b   y   t   e   s" in words[3]
    (asked,) = desk.asked
    assert ("t1", "the-token") == (asked["task_id"], asked["token"])
    # What is left in the working directory is the program's own output.
    files = [path for path in executor.sandbox.rglob("*") if path.is_file() and path.name != "stdout"]
    assert [] == [path for path in files if CANARY.encode() in path.read_bytes()]


def test_checks_get_no_secrets(executor: Any, desk_of: Any) -> None:
    desk = desk_of(response(("KEY", "", CANARY.encode())))
    liveness = {"kind": "command", "target": 'test -z "$KEY"', "interval": 0.05, "grace": 0.0, "failures": 1}
    executor.launch('mkfifo go; test -n "$KEY" && sleep 0.5', liveness=liveness, secrets_url=desk.url, **CLAIM)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")


def test_failed_program_output_is_redacted(executor: Any, desk_of: Any) -> None:
    """The message goes to the master, which shows it to every user."""
    desk = desk_of(response(("KEY", "", CANARY.encode())))
    expressions = ("$KEY", '$(printf %s "$KEY" | base64 -w 0)', '$(printf %s "user:$KEY" | base64 -w 0)')
    executor.launch(f'echo "the key is {" ".join(expressions)}" >&2; exit 3', secrets_url=desk.url, **CLAIM)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert "the key is *** ***" in status["message"]
    assert 3 == status["message"].count("***")


def test_refused_request_fails_task(executor: Any, desk_of: Any) -> None:
    desk = desk_of((403, "invalid token"))
    executor.launch("touch ran", secrets_url=desk.url, **CLAIM)
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    assert "cannot fetch secrets: the scheduler returned 403: invalid token" in status["message"]
    assert not (executor.sandbox / "ran").exists()


def test_task_is_killed_while_fetching_secrets(executor: Any, desk_of: Any) -> None:
    desk = desk_of((503, "later"))
    executor.launch("touch ran", secrets_url=desk.url, **CLAIM)
    executor.states("TASK_STARTING")
    executor.kill()
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert "the program had not started" in status["message"]


def test_variable_with_nul_is_refused(executor: Any, desk_of: Any) -> None:
    desk = desk_of(response(("KEY", "", b"a\0b")))
    executor.launch("true", secrets_url=desk.url, **CLAIM)
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    assert "variable KEY: the value contains a NUL character; use a file" in status["message"]


def test_files_of_killed_executor_are_removed(executor: Any, desk_of: Any) -> None:
    """By its watchdog; other executors keep them while it lives."""
    desk = desk_of(response(("", "key", CANARY.encode())))
    executor.launch_ready("echo on > ready; exec sleep 1000", secrets_url=desk.url, **CLAIM)
    place = (executor.sandbox / "key").readlink()
    remove_orphans(SHARED_MEMORY, PREFIX)
    assert place.exists()
    executor.process.kill()
    executor.process.wait()
    assert gone(place.parent)


def test_reload_signals_program(executor: Any, desk_of: Any) -> None:
    """SIGHUP goes only to processes with a handler; the former value stays redacted."""

    def answer(text: str, *more: tuple[str, str]) -> tuple[int, Any]:
        names = [("KEY", ""), ("KEY_FILE", "certs/key"), ("", "other"), *more]
        return response(*((*name, f"{text}{CANARY}".encode()) for name in names), reload=("", "certs/key", "unknown"))

    desk = desk_of(answer("one"))
    show = 'cat certs/key; echo " $KEY"; cat other; stat -Lc " %a" "$KEY_FILE"; ls'
    handler = f"kill -0 $! && ({show}) > ready; cat certs/key >&2; exit 3"
    command = f"sleep 1000 & trap '{handler}' HUP; cat certs/key >&2; echo on > ready; while :; do wait; done"
    executor.launch_running(command, secrets_url=desk.url, secrets_reload=0.05, **CLAIM)
    assert "on\n" == executor.await_file("ready")
    desk.answers = [(503, "later"), answer("two", ("", "unknown"))]
    content = executor.await_file("ready")
    assert f"two{CANARY} one{CANARY}\none{CANARY} 600\n" in content
    assert "unknown" not in content
    message = executor.states("TASK_FAILED")["message"]
    assert "***" in message
    assert CANARY not in message
    assert 1 == len({json.dumps(one) for one in desk.asked})


def test_reload_on_request_is_immediate(executor: Any, desk_of: Any) -> None:
    def answer(text: bytes) -> tuple[int, Any]:
        return response(("", "key", text), reload=("key",))

    desk = desk_of(answer(b"one"))
    command = "trap 'cat key > ready; exit 3' HUP; echo on > ready; while :; do sleep 0.05; done"
    executor.launch_running(command, secrets_url=desk.url, secrets_reload=86_400.0, **CLAIM)
    assert "on\n" == executor.await_file("ready")
    desk.answers = [answer(b"two")]

    for text in (b"something else", RENEW_SECRETS):
        executor.say("MESSAGE", data=base64.b64encode(text).decode())

    assert "two" == executor.await_file("ready")
    executor.states("TASK_FAILED")
    assert 2 == len(desk.asked)


# Requests.


def test_lost_response_is_retried_with_same_nonce(desk_of: Any) -> None:
    """The scheduler returns the secrets once per nonce, but repeats its answer."""
    desk = desk_of((503, "later"), (502, ""), (200, "{"), response(("A", "", b"1")))
    pauses: list[float] = []
    assert [Secret("A", "", b"1")] == fetch_secrets(claim(desk.url), wait=pauses.append)
    assert [0.25, 0.5, 1.0] == pauses
    assert 1 == len({json.dumps(one) for one in desk.asked})


def test_unavailable_scheduler_is_given_up() -> None:
    now = [0.0]
    with pytest.raises(SecretFetchError, match=r"127.0.0.1:9.* request failed: .*refused.*retried for 9 s") as caught:
        fetch_secrets(
            claim("http://127.0.0.1:9/v1/secrets"), 9, lambda: now[0], lambda pause: now.append(now.pop() + pause)
        )
    assert "the-token" not in str(caught.value)


@pytest.mark.parametrize(("code", "text"), [(403, "no"), (424, "env:A: missing variable")])
def test_final_status_codes_are_not_retried(desk_of: Any, code: int, text: str) -> None:
    desk = desk_of((code, text))
    with pytest.raises(SecretFetchError, match=f"the scheduler returned {code}: {text}"):
        fetch_secrets(claim(desk.url))
    assert 1 == len(desk.asked)


def test_redirect_and_other_schemes_are_refused(desk_of: Any) -> None:
    desk = desk_of((302, ""))
    with pytest.raises(SecretFetchError, match="returned 302"):
        fetch_secrets(claim(desk.url), retry_seconds=0.0)
    with pytest.raises(SecretFetchError, match="invalid URL of the scheduler"):
        fetch_secrets(claim("file:///etc/passwd"))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"secrets": [{}]}', b'{"secrets": [{"env": "", "file": "", "value": "%"}]}']
)
def test_invalid_response_is_not_quoted(body: bytes) -> None:
    with pytest.raises(ValueError, match="invalid response"):
        decode(body)


def test_values_are_not_in_reprs() -> None:
    assert "hush" not in repr([Secret("A", "", b"hush"), SecretRequest("", "", "hush", "hush")])


def test_server_certificate_is_verified(desk_of: Any, certificates: Certificates) -> None:
    desk = desk_of(response(("A", "", b"1")))
    desk.server.encrypt(certificates.server_context())
    texts = ((certificates.folder / name).read_text() for name in AUTHORITIES)
    good, bad = (SecretRequest(desk.url, "t1", "the-token", "n", text) for text in texts)
    assert [Secret("A", "", b"1")] == fetch_secrets(good)
    with pytest.raises(SecretFetchError, match=r"untrusted certificate: .*certificate verify failed"):
        fetch_secrets(bad)
    assert 1 == len(desk.asked)


# Files.


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", ""])
def test_files_outside_sandbox_are_refused(tmp_path: Path, name: str) -> None:
    files = MemoryFiles()
    try:
        with pytest.raises(ValueError, match="not a path inside the working directory"):
            files.write(str(tmp_path), {name: b"x"}, None)
    finally:
        files.remove()


def test_replaced_content_uses_open_folder(tmp_path: Path) -> None:
    """The user owns the folder and may replace it by a link; the executor may be root."""
    files, aside = MemoryFiles(), tmp_path / "aside"
    aside.mkdir()
    try:
        files.write(str(tmp_path), {"a": b"x"}, None)
        place = (tmp_path / "a").readlink()
        moved = place.parent.rename(f"{place.parent}-moved")
        place.parent.symlink_to(aside)
        files.replace({"a": b"another"}, None)
        assert [] == list(aside.iterdir())
        assert (b"another", 0o600) == ((moved / place.name).read_bytes(), (moved / place.name).stat().st_mode & 0o777)
        place.parent.unlink()
        moved.rename(place.parent)
    finally:
        files.remove()
    assert not place.exists()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_replaced_content_creates_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The task's user may create a file with the new name first."""
    files, aside = MemoryFiles(), tmp_path / "aside"
    aside.write_bytes(b"old")
    unlink = os.unlink

    def and_put_back(name: str, *, dir_fd: int) -> None:
        with suppress(FileNotFoundError):
            unlink(name, dir_fd=dir_fd)
        if kind == "link":
            os.symlink(aside, name, dir_fd=dir_fd)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o666, dir_fd=dir_fd))

    try:
        files.write(str(tmp_path), {"a": b"x"}, None)
        place = (tmp_path / "a").readlink()
        monkeypatch.setattr(os, "unlink", and_put_back)
        with pytest.raises(FileExistsError):
            files.replace({"a": b"another"}, None)
        monkeypatch.undo()
        assert (b"old", b"x") == (aside.read_bytes(), place.read_bytes())
        assert all(b"another" not in path.read_bytes() for path in place.parent.iterdir())
    finally:
        monkeypatch.undo()
        files.remove()


@pytest.mark.parametrize("flag", ["O_EXCL", "O_NOFOLLOW"])
def test_files_are_not_written_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    files, opened = MemoryFiles(), list[int]()
    real = os.open

    def noted(path: Any, flags: int, *others: Any, **named: Any) -> int:
        opened.extend([flags] if flags & os.O_CREAT else [])
        return real(path, flags, *others, **named)

    monkeypatch.setattr(os, "open", noted)
    try:
        files.write(str(tmp_path), {"a": b"x"}, None)
        files.replace({"a": b"y"}, None)
    finally:
        files.remove()
    assert [True, True] == [bool(flags & getattr(os, flag)) for flags in opened]


@pytest.mark.parametrize("name", ["key", "a/key", "a/b/key"])
def test_file_is_not_linked_through_links(tmp_path: Path, name: str) -> None:
    """Another task of the user may put a link there; the executor may be root."""
    sandbox, other, files = tmp_path / "sandbox", tmp_path / "other", MemoryFiles()
    (sandbox / "a").mkdir(parents=True)
    (other / "b").mkdir(parents=True)
    (other / "b" / "key").write_text("of another user")
    if name == "a/key":
        (sandbox / "a").rmdir()
    (sandbox / {"key": "key", "a/key": "a", "a/b/key": "a/b"}[name]).symlink_to(other / "b")
    try:
        with suppress(OSError):
            files.write(str(sandbox), {name: b"x"}, None)
        assert ["b"] == [path.name for path in other.iterdir()]
        assert "of another user" == (other / "b" / "key").read_text()
    finally:
        files.remove()


def test_next_executor_removes_orphans(tmp_path: Path) -> None:
    """Files of a killed executor must not stay in memory."""
    left, lock = temporary.make_locked_folder(SHARED_MEMORY, "tf-executor-")
    (left / "0-key").write_bytes(b"secret")
    os.close(lock)
    files = MemoryFiles()
    try:
        files.write(str(tmp_path), {"a": b"x"}, None)
        assert not left.exists()
    finally:
        files.remove()
        shutil.rmtree(left, ignore_errors=True)


def test_secrets_are_not_written_to_disk(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is not a tmpfs"):
        MemoryFiles(tmp_path).write(str(tmp_path), {"a": b"x"}, None)
    assert [] == list(tmp_path.iterdir())


def test_files_belong_to_task_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    files = MemoryFiles()
    try:
        files.write(str(tmp_path), {"a": b"x"}, (65534, 65534))
        place = (tmp_path / "a").readlink()
        about = [(path.stat().st_uid, path.stat().st_mode & 0o777) for path in (place, place.parent)]
        assert [(65534, 0o600), (65534, 0o700)] == about
    finally:
        files.remove()
    assert not place.exists()
