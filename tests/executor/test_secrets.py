"""Secrets on the agent: fetched once, in memory only, for the user's programs only, and gone with the task."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tf_executor import locked_folders
from tf_executor.handover import Claim, HandoverError, Secret, decode, fetch
from tf_executor.memory_files import MEMORY, MemoryFiles, sweep
from tf_executor.payload import RENEW_SECRETS
from wire.certificates import Certificates

CANARY = "canary-7f3a9c51"
AUTHORITIES = ("ca.pem", "stranger.pem")
CLAIM = {"secrets_token": "the-token"}


class Desk:
    """A scheduler's API that gives what it is told to, in this order, and the last for ever."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.asked: list[dict[str, str]] = []
        self.answers = list(answers)
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                desk.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                code, body = desk.answers.pop(0) if len(desk.answers) > 1 else desk.answers[0]
                content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/secrets"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def encrypt(self, certificate: str, key: str) -> None:
        """From the next connection on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def desk_of() -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(*answers: tuple[int, Any]) -> Desk:
        made.append(Desk(*answers))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


def given(*items: tuple[str, str, bytes], reload: tuple[str, ...] = ()) -> tuple[int, Any]:
    """`reload`: the files that the program wants to hear of."""
    entries = [{"env": a, "file": b, "value": base64.b64encode(c).decode(), "reload": b in reload} for a, b, c in items]
    return 200, {"secrets": entries}


def claim(url: str) -> Claim:
    return Claim(url, "t1", "the-token", "nonce")


# In a task.


def test_the_program_finds_its_secrets_and_nobody_else_does(executor: Any, desk_of: Any) -> None:
    """A variable and a file of mode 0600 in memory, with its path in another variable; the file goes with the task."""
    desk = desk_of(given(("KEY", "", CANARY.encode()), ("KEY_FILE", "certs/key", b"\0bytes")))
    show = 'echo "$KEY"; stat -Lc "%a %u" certs/key; readlink certs/key; od -c "$KEY_FILE"'
    executor.launch(show, secrets_url=desk.url, **CLAIM)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    words = executor.output().split("\n")
    assert [CANARY, f"600 {os.getuid()}"] == words[:2]
    assert words[2].startswith(f"{MEMORY}/tf-executor-")
    assert not Path(words[2]).exists()
    assert "b   y   t   e   s" in words[3]
    (asked,) = desk.asked
    assert ("t1", "the-token") == (asked["task_id"], asked["token"])
    # What is left in the working directory is the program's own output.
    files = [path for path in executor.sandbox.rglob("*") if path.is_file() and path.name != "stdout"]
    assert [] == [path for path in files if CANARY.encode() in path.read_bytes()]


def test_checks_of_ours_get_no_secret(executor: Any, desk_of: Any) -> None:
    """The command that looks whether the program lives is none that needs one."""
    desk = desk_of(given(("KEY", "", CANARY.encode())))
    liveness = {"kind": "command", "target": 'test -z "$KEY"', "interval": 0.05, "grace": 0.0, "failures": 1}
    executor.launch('mkfifo go; test -n "$KEY" && sleep 0.5', liveness=liveness, secrets_url=desk.url, **CLAIM)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")


def test_what_a_failing_program_prints_is_masked(executor: Any, desk_of: Any) -> None:
    """Its last words go to the master, who tells everybody."""
    desk = desk_of(given(("KEY", "", CANARY.encode())))
    shown = ("$KEY", '$(printf %s "$KEY" | base64 -w 0)', '$(printf %s "user:$KEY" | base64 -w 0)')
    executor.launch(f'echo "the key is {" ".join(shown)}" >&2; exit 3', secrets_url=desk.url, **CLAIM)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert "the key is *** ***" in status["message"]
    assert 3 == status["message"].count("***")


def test_a_refusal_fails_the_task_with_the_reason(executor: Any, desk_of: Any) -> None:
    """The program does not start."""
    desk = desk_of((403, "its token has been used by somebody else before"))
    executor.launch("touch ran", secrets_url=desk.url, **CLAIM)
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    assert "no secrets: the scheduler answers 403: its token has been used by somebody" in status["message"]
    assert not (executor.sandbox / "ran").exists()


def test_a_task_can_be_killed_while_it_waits_for_its_secrets(executor: Any, desk_of: Any) -> None:
    """The scheduler is away; what comes after the end is not written any more."""
    desk = desk_of((503, "later"))
    executor.launch("touch ran", secrets_url=desk.url, **CLAIM)
    executor.states("TASK_STARTING")
    executor.kill()
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert "the program had not started" in status["message"]


def test_a_variable_cannot_hold_nul(executor: Any, desk_of: Any) -> None:
    """Told with what to do; the value is not quoted."""
    desk = desk_of(given(("KEY", "", b"a\0b")))
    executor.launch("true", secrets_url=desk.url, **CLAIM)
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    assert "the value for KEY holds a NUL character, which no variable can; use a file" in status["message"]


def test_an_executor_that_is_killed_leaves_nothing_for_long(executor: Any, desk_of: Any, start: Any) -> None:
    """The next one on the host removes the files; those of executors that live stay."""
    desk = desk_of(given(("", "key", CANARY.encode())))
    executor.launch("echo on > ready; exec sleep 1000", secrets_url=desk.url, **CLAIM)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    place = (executor.sandbox / "key").readlink()
    sweep()
    assert place.exists()
    executor.process.kill()
    executor.process.wait()
    sweep()
    assert not place.parent.exists()


def test_a_program_hears_of_another_value_and_reads_it(executor: Any, desk_of: Any) -> None:
    """SIGHUP for who has a handler, nobody else dies of it; other files stay. The former value is masked as the new."""

    def answer(text: str, *more: tuple[str, str]) -> tuple[int, Any]:
        names = [("KEY", ""), ("KEY_FILE", "certs/key"), ("", "other"), *more]
        return given(*((*name, f"{text}{CANARY}".encode()) for name in names), reload=("", "certs/key", "unknown"))

    desk = desk_of(answer("one"))
    show = 'cat certs/key; echo " $KEY"; cat other; stat -Lc " %a" "$KEY_FILE"; ls'
    handler = f"kill -0 $! && ({show}) > ready; cat certs/key >&2; exit 3"
    command = f"sleep 1000 & trap '{handler}' HUP; cat certs/key >&2; echo on > ready; while :; do wait; done"
    executor.launch(command, secrets_url=desk.url, secrets_reload=0.05, **CLAIM)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    assert "on\n" == executor.await_file("ready")
    desk.answers = [(503, "later"), answer("two", ("", "unknown"))]
    found = executor.await_file("ready")
    assert f"two{CANARY} one{CANARY}\none{CANARY} 600\n" in found
    assert "unknown" not in found
    message = executor.states("TASK_FAILED")["message"]
    assert "***" in message
    assert CANARY not in message
    assert 1 == len({json.dumps(one) for one in desk.asked})


def test_a_program_hears_of_another_value_at_once_when_the_scheduler_says_so(executor: Any, desk_of: Any) -> None:
    """Long before it is time to ask; other messages are nothing."""

    def answer(text: bytes) -> tuple[int, Any]:
        return given(("", "key", text), reload=("key",))

    desk = desk_of(answer(b"one"))
    command = "trap 'cat key > ready; exit 3' HUP; echo on > ready; while :; do sleep 0.05; done"
    executor.launch(command, secrets_url=desk.url, secrets_reload=86_400.0, **CLAIM)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    assert "on\n" == executor.await_file("ready")
    desk.answers = [answer(b"two")]

    for text in (b"something else", RENEW_SECRETS):
        executor.say("MESSAGE", data=base64.b64encode(text).decode())

    assert "two" == executor.await_file("ready")
    executor.states("TASK_FAILED")
    assert 2 == len(desk.asked)


# Asking.


def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_nonce(desk_of: Any) -> None:
    """The scheduler restarts, or has just begun to: it gives once, but may answer twice."""
    desk = desk_of((503, "later"), (502, ""), (200, "{"), given(("A", "", b"1")))
    pauses: list[float] = []
    assert [Secret("A", "", b"1")] == fetch(claim(desk.url), wait=pauses.append)
    assert [0.25, 0.5, 1.0] == pauses
    assert 1 == len({json.dumps(one) for one in desk.asked})


def test_a_scheduler_that_stays_away_is_given_up() -> None:
    """With what was the matter last."""
    now = [0.0]
    with pytest.raises(HandoverError, match=r"127.0.0.1:9.* does not answer: .*refused.*tried for 9 s") as caught:
        fetch(claim("http://127.0.0.1:9/v1/secrets"), 9, lambda: now[0], lambda pause: now.append(now.pop() + pause))
    assert "the-token" not in str(caught.value)


@pytest.mark.parametrize(("code", "text"), [(403, "no"), (424, "env:A: the scheduler has no such variable")])
def test_what_another_attempt_does_not_change_is_told_at_once(desk_of: Any, code: int, text: str) -> None:
    """No waiting."""
    desk = desk_of((code, text))
    with pytest.raises(HandoverError, match=f"the scheduler answers {code}: {text}"):
        fetch(claim(desk.url))
    assert 1 == len(desk.asked)


def test_a_token_is_sent_nowhere_else(desk_of: Any) -> None:
    """A redirect is no answer, and what is no web address is not opened."""
    desk = desk_of((302, ""))
    with pytest.raises(HandoverError, match="answers 302"):
        fetch(claim(desk.url), patience=0.0)
    with pytest.raises(HandoverError, match="no address of the scheduler's API"):
        fetch(claim("file:///etc/passwd"))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"secrets": [{}]}', b'{"secrets": [{"env": "", "file": "", "value": "%"}]}']
)
def test_what_is_no_answer_is_not_quoted(body: bytes) -> None:
    """It may hold what nobody should see."""
    with pytest.raises(ValueError, match="the answer is not one of the scheduler's"):
        decode(body)


def test_values_are_not_in_what_is_logged() -> None:
    """Nor is the token."""
    assert "hush" not in repr([Secret("A", "", b"hush"), Claim("", "", "hush", "hush")])


def test_the_scheduler_is_verified_by_its_authority(desk_of: Any, tmp_path: Path) -> None:
    """Over https: by the one that came with the task; a stranger gets no token."""
    certificates = Certificates.make(tmp_path)
    desk = desk_of(given(("A", "", b"1")))
    desk.encrypt(certificates.path("server.pem"), certificates.path("server.key"))
    good, bad = (Claim(desk.url, "t1", "the-token", "n", (tmp_path / name).read_text()) for name in AUTHORITIES)
    assert [Secret("A", "", b"1")] == fetch(good)
    with pytest.raises(HandoverError, match=r"is not to be trusted: .*certificate verify failed"):
        fetch(bad)
    assert 1 == len(desk.asked)


# Files.


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", ""])
def test_files_stay_in_the_working_directory(tmp_path: Path, name: str) -> None:
    """Whatever the scheduler says."""
    files = MemoryFiles()
    try:
        with pytest.raises(ValueError, match="no file in the working directory"):
            files.write(str(tmp_path), {name: b"x"}, None)
    finally:
        files.remove()


def test_a_new_content_goes_into_the_folder_and_not_where_its_name_leads(tmp_path: Path) -> None:
    """The folder is the user's, who may put a link in its place; the executor may be root."""
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
def test_a_new_content_goes_into_a_new_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The task's user may be as fast as to put something by its name there, to read or to write what is not theirs."""
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
def test_files_are_made_as_new_ones_and_through_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    """Each of the two would do for links; what a file system makes of one of them is not relied on."""
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


def test_the_next_secrets_remove_what_was_left(tmp_path: Path) -> None:
    """By an executor that was killed: whoever writes some looks first."""
    left, lock = locked_folders.make(MEMORY, "tf-executor-")
    (left / "0-key").write_bytes(b"secret")
    os.close(lock)
    files = MemoryFiles()
    try:
        files.write(str(tmp_path), {"a": b"x"}, None)
        assert not left.exists()
    finally:
        files.remove()
        shutil.rmtree(left, ignore_errors=True)


def test_secrets_are_not_written_to_a_disk(tmp_path: Path) -> None:
    """A folder that is no tmpfs is none for them."""
    with pytest.raises(OSError, match="is no tmpfs"):
        MemoryFiles(tmp_path).write(str(tmp_path), {"a": b"x"}, None)
    assert [] == list(tmp_path.iterdir())


def test_files_belong_to_the_user_of_the_task(tmp_path: Path) -> None:
    """Folder and file: nobody else can read them."""
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
