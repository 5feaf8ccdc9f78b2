"""All commands against a server whose answers are random JSON."""

import io
import json
import os
import random
import re
import traceback
import webbrowser
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints, is_typeddict
from urllib.parse import urlsplit

import click
import pytest

from dcos_command import logs, service
from dcos_command.answers import parse_json, type_of
from dcos_command.client import parse_error_body
from dcos_command.command import ServiceCommand
from dcos_command.main import main
from kit.fuzzing import ROUNDS
from kit.http_server import HttpServer, QuietHandler
from tf_scheduler.cli.main import cli
from tf_scheduler.cli.main import main as run_local

EXIT_CODES = {0, 1, 2, 3, 4, 5, 124, 131}
_WORDS = ("", "worker-0", "deploy", "RUNNING", "COMPLETE", "tensorflow")
_MEMBERS = ("name", "status", "tasks", "message", "error", "phases", "app")
_ODD = ("1e999", "NaN", "-1", "1" * 400, "1e308", '"\\ud800"', '"\\u001b]0;x"', "[" * 400 + "]" * 400, "null", "")


class Answers:
    """Random answers; `requests` counts those of one command, which end after some."""

    def __init__(self, seed: int) -> None:
        self.random, self.requests = random.Random(seed), 0

    def valid(self, kind: Any) -> Any:
        """A value of a body's type."""
        origin, inner = get_origin(kind), get_args(kind)
        if is_typeddict(kind):
            return {name: self.valid(part) for name, part in get_type_hints(kind).items()}
        if origin is list:
            return [self.valid(inner[0]) for _ in range(2)]
        if origin is dict:
            return {} if inner[1] is NoReturn else {"worker": self.valid(inner[1])}
        if origin is Union:
            return self.valid(self.random.choice(inner))
        if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
            return self.random.choice(inner or list(kind))
        if kind is str:
            return self.random.choice(_WORDS)
        return {int: 3, float: 1000.5, bool: self.random.random() < 0.5}.get(kind)

    def text(self, request: str) -> str:
        """A valid answer, one with up to three odd places, or random JSON."""
        kind = self.random.random()
        if kind < 0.2:
            return self.random.choice((self.odd(), json.dumps(self.value(0))))
        document = [self.valid(type_of(request))]
        for _ in range(self.random.randrange(4)):
            self.spoil(document)
        return json.dumps(document[0]).replace('"ODD"', self.odd())

    def odd(self) -> str:
        return self.random.choice(_ODD)

    def spoil(self, document: Any) -> None:
        """Replace or remove something below the document."""
        while True:
            keys = list(document) if isinstance(document, dict) else list(range(len(document)))
            key = self.random.choice(keys)
            below = document[key]
            if not isinstance(below, (dict, list)) or not below or self.random.random() < 0.3:
                break
            document = below
        if self.random.random() < 0.3 and isinstance(document, dict):
            del document[key]
        else:
            document[key] = self.random.choice(("ODD", self.value(0)))

    def value(self, depth: int) -> Any:
        choices: list[Any] = [None, True, 0, -5, 2.5, 10**30, "", "x\ny", [], {}, "\ud800"]
        if depth < 3:
            choices += [[self.value(depth + 1)], {self.random.choice(_MEMBERS): self.value(depth + 1)}] * 4
        return self.random.choice(choices)


def server(answers: Answers) -> HttpServer:
    class Handler(QuietHandler):
        def respond(self) -> None:
            self.body()
            answers.requests += 1
            path = re.sub(r"^/(service/[^/]+/)?", "", urlsplit(self.path).path)
            if answers.requests > 25:
                self.answer(503, b"")
            elif "text/event-stream" in self.headers["Accept"] and answers.random.random() < 0.8:
                kind = answers.random.choice(("log", "launch", "end", "error", "event", "", "GET"))
                text = f"id: 1\nevent: {kind}\ndata: {answers.text(f'event {kind} {path}')}\n\n" * 2
                self.answer(200, text.encode(errors="replace"), Content_Type="text/event-stream")
            else:
                codes = [200] * 8 + [202, 205, 206, 208, 400, 404, 500, 777]
                self.answer(
                    answers.random.choice(codes), answers.text(f"{self.command} {path}").encode(errors="replace")
                )

    return HttpServer(Handler)


class Terminal(io.TextIOWrapper):
    """Standard output with strict UTF-8, which may be a terminal."""

    def __init__(self, *, interactive: bool) -> None:
        super().__init__(io.BytesIO(), "utf-8")
        self._interactive = interactive

    def isatty(self) -> bool:
        return self._interactive


def all_commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command that asks a service with its words, without other spellings."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group) and not command.hidden:
            yield from all_commands(command, f"{above}{name} ")
        elif not command.hidden and any("--url" in each.opts for each in command.params):
            yield f"{above}{name}", command


def arguments_of(words: str, command: click.Command, options: Path, chance: random.Random) -> list[str]:
    """A command line with arguments, and options by chance."""
    examples = {"options.json": str(options), "worker-0:model": chance.choice(("worker-0:.", "worker-0:worker-0"))}
    arguments = [
        word
        for each in command.params
        if isinstance(each, click.Argument) and (each.required or chance.random() < 0.5)
        for word in getattr(each, "example", "options.json" if each.required else "").split()
    ]
    flags = [
        each.opts[0]
        for each in command.params
        if isinstance(each, click.Option) and each.is_flag and chance.random() < 0.4
    ]
    flags = [flag for flag in flags if flag not in ("--stderr", "--json", "-y", "--local", "--help")]
    flags += ["--options", str(options)] if words == "update start" else []
    flags += ["--timeout", "1"] if words in ("uninstall", "cancel", "wait", "exec") else []
    confirmation = ["--yes"] if any("--yes" in each.opts for each in command.params) else []
    flags += [*confirmation, *(["--json"] if chance.random() < 0.2 else [])]
    return [*words.split(), *flags, *(examples.get(word, word) for word in arguments)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without pauses."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr(service, "_MAX_SILENCE", 0.0)
    monkeypatch.setattr(logs, "_MAX_RETRIES", 3)
    monkeypatch.setattr(webbrowser, "open", lambda _url: True)


@pytest.mark.usefixtures("quick")
def test_fuzz_answers_to_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program at the address must not look like a defect of the command."""
    seed = int(os.environ.get("FUZZ_SEED", random.randrange(10**6)))
    print(f"repeat with FUZZ_SEED={seed}")
    answers, options = Answers(seed), tmp_path / "options.json"
    options.write_text('{"worker": {"count": 2}}')
    codes: set[int] = set()
    problems: dict[str, tuple[list[str], str]] = {}
    monkeypatch.chdir(tmp_path)
    commands = [*all_commands(cli)]
    assert {"exec", "history add", "cp", "submit", "doctor"} <= {name for name, _ in commands}
    with server(answers) as live:
        environment = {"DCOS_URL": f"http://{live.address}", "DCOS_DIR": "/nowhere", "XDG_STATE_HOME": str(tmp_path)}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name, command in commands * (3 * ROUNDS):
            words = ["--name=x", *arguments_of(name, command, options, answers.random)]
            answers.requests = 0
            terminal = Terminal(interactive=answers.random.random() < 0.3)
            try:
                with redirect_stdout(terminal), redirect_stderr(io.StringIO()):
                    if isinstance(command, ServiceCommand) and answers.random.random() < 0.5:
                        codes.add(main(words, environment))
                    else:
                        run_local(words)
            except SystemExit as end:
                codes.add(int(end.code or 0))
            except Exception:
                text = traceback.format_exc()
                problems.setdefault(text.splitlines()[-1] + text.splitlines()[-3], (words, text))

    assert not problems, "\n".join(f"{words}\n{text}" for words, text in problems.values())
    assert codes <= EXIT_CODES
    assert {0, 3} <= codes, "both valid and invalid answers were among them"


ENDED = {"state": "ended", "timed_out": False, "cut": False, "error": "", "stdout": "", "stderr": ""}


@pytest.mark.parametrize(
    ("ended", "code"),
    [({}, 3), ({**ENDED, "exit_code": None, "signal": None}, 0), ({**ENDED, "exit_code": "7", "signal": 9}, 3)],
)
def test_exec_result_of_another_server_is_checked(ended: dict[str, Any], code: int) -> None:
    """Random answers seldom contain the result of a command."""

    class Other(QuietHandler):
        def respond(self) -> None:
            started = {"task": "worker-0", "launch": "a", "id": "b"}
            self.answer(200, json.dumps({**started, **(ended if self.command == "GET" else {})}).encode())

    with HttpServer(Other) as other:
        assert code == main([f"--url={other.url}", "exec", "worker-0", "--", "id"], {"DCOS_DIR": "/nowhere"})


@pytest.mark.parametrize("answer", ["[" * 100_000, "[" * 400 + "]" * 400, '{"a":' * 400 + "1" + "}" * 400])
def test_deeply_nested_answer_is_refused(answer: str) -> None:
    """Printing it would exceed the recursion limit."""
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(answer)
    assert parse_error_body(answer).message is None


def test_half_characters_are_replaced() -> None:
    """UTF-8 has no bytes for them, so that `print` would fail."""
    assert ["?", "\N{GRINNING FACE}"] == parse_json('["\\ud83d", "\\ud83d\\ude00"]')
