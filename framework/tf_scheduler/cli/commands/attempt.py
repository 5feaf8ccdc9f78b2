"""`dcos-tensorflow try`: run a program on this machine, without an options file."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import click

from dcos_command.command import IntRange, echo, examples
from dcos_command.documents import with_settings
from tf_executor.contract.strategies import Strategy
from tf_scheduler.cli.common.folders import UserPath, has_containers, state_home, write_private
from tf_scheduler.cli.common.options_file import check_options, interpreter_path
from tf_scheduler.cli.common.output import json_switch, print_notices
from tf_scheduler.cli.common.programs import program_sources
from tf_scheduler.cli.local_run.fitting import check_feasible, own_agents
from tf_scheduler.cli.local_run.new_options import new_options
from tf_scheduler.convert.program import COMMON_NAMES, strategy_named
from tf_scheduler.convert.tables import command_line
from tf_scheduler.errors import JobError, OptionsError, Problem
from tf_scheduler.options.spec import to_spec

from .local import clean_up_on_signals, fit_option, prepare, settings_option
from .run import print_errors, run


class _ProgramCommand(click.Command):
    """A command that passes unknown options after PROGRAM on, as `python` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options before PROGRAM strictly: a wrong one is a typing error.

        `-m MODULE` names PROGRAM as `python -m` does.
        """
        if len(args) > 1 and args[0] == "-m":
            path = Path(*args[1].split("."))
            args = [str(path / "__main__.py" if path.is_dir() else path.with_suffix(".py")), *args[2:]]
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options = parser.allow_interspersed_args = False
        ctx.meta[__name__] = list(parser.parse_args(list(args))[0].get("arguments") or ())
        return super().parse_args(ctx, args)


@click.command("try", cls=_ProgramCommand, context_settings={"ignore_unknown_options": True})
@examples("try train.py --workers 2", "try train.py --workers 2 --ps 1 --epochs 3 --dir '{checkpoint_dir}'")
@click.argument("program", type=UserPath(exists=True))
@click.option("--workers", type=IntRange(min=1, max=100_000), help="Number of workers. Default: 2; independent: 1.")
@click.option("--ps", type=IntRange(min=0, max=100_000), help="Number of parameter servers. Default: by strategy.")
@click.option("--strategy", default="", help="Value of service.strategy, or a class name. Default: from the source.")
@settings_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@json_switch("Print the result as one JSON object.")
@fit_option
@click.pass_context
def try_(
    context: click.Context,
    program: Path,
    settings: tuple[str, ...],
    workers: int | None,
    ps: int | None,
    strategy: str,
    arguments: tuple[str, ...],
    as_json: bool,
    fit: bool,
) -> None:
    """Run PROGRAM on this machine, without an options file.

    The tasks get the folder of PROGRAM. PROGRAM gets ARGUMENTS: options that `try` does not know, and all words after
    `--`. The strategy is guessed from the source. The options are stored in NAME-try.json, to run the job again or to
    change it.

    Exit code: 0 succeeded, 1 failed or refused, 4 stopped, also by Ctrl-C.
    """
    context.with_resource(clean_up_on_signals(4))
    program = program / "__main__.py" if (program / "__main__.py").is_file() else program
    check_program(program)
    prepare(context)
    chosen = strategy_named(strategy) if strategy else None
    made = new_options(program, Path(), chosen, (workers, ps), arguments, pack=True)
    document, wrong = with_settings(made.document, settings)
    service = document["service"]
    reason = "as requested" if chosen else f"because {program.name} uses {made.evidence or 'no distribution strategy'}"
    if ps and not (chosen or made.evidence):
        reason = f"because of --ps ({program.name} names no strategy)"
    echo(f"{service['name']}: {service['strategy']}, {reason}: {made.summary}", err=True)
    with print_errors(as_json):  # before the file is written
        own = service.get("python", "") == made.document["service"].get("python", "")
        if missing := [each for each in made.notices if each.path == "service.python" and own]:
            raise OptionsError(missing)
        print_notices(made.notices)
        problems = [*(Problem(*each) for each in wrong), *syntax_problems(program, service.get("python", ""))]
        spec = to_spec(check_options(document, Path(), problems, containers=has_containers()))
        if not fit:
            check_feasible(spec, own_agents())
    if not Strategy(service["strategy"]).traits.has_peers and document["worker"]["count"] > 1:
        is_torch = any("import torch" in source for source in program_sources(program).values())
        joins = (Strategy.PYTORCH_DDP if is_torch else Strategy.MULTI_WORKER_MIRRORED).traits.joins
        why = f"notice: each worker trains a model of its own; to train one together, {program.name} needs a strategy"
        echo(f"{why}, such as {joins} before anything else", err=True)
    print_notices(tuple(_lost_variables(arguments)))
    path = _save_attempt(document)
    echo(f"to repeat: dcos-tensorflow local run {path}{' --fit' if fit else ''}", err=True)
    about = "".join(_shared_words(context, program, arguments))
    context.invoke(run, options=path, as_json=as_json, fit=fit, about=about)


def _shared_words(context: click.Context, program: Path, arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield which words after PROGRAM it gets, and which options both may know."""
    words = context.meta[__name__]
    options = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    own = {name for each in context.command.params for name in each.opts if name.startswith("-")}
    source = "\n".join(program_sources(program).values())
    if unknown := [name for name in options if name.startswith("-") and name not in own]:
        yield f"; {program.name} gets `{command_line(list(arguments))}`"
        for name in (each for each in unknown if each.strip("-") not in source):
            near = get_close_matches(name.strip("-"), [each.strip("-") for each in own], n=1)
            yield f" (did you mean --{near[0]} of `try`, instead of {name}?)" if near else ""
    # In quotes, as for argparse, click and absl.
    for name in (each for each in dict.fromkeys(options) if each in own):
        shared = re.search(rf"""["'](--)?{name.strip("-")}["']""", source)
        yield "" if shared is None else f"; {name} is an option of `try`: write it after `--` for {program.name}"


def _lost_variables(arguments: tuple[str, ...]) -> Iterator[Problem]:
    """Yield arguments from which this shell may have removed a variable of tasks."""
    for word in arguments:
        name, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        is_lost = value.startswith("/") and (value == "/" or not Path(*Path(value).parts[:2]).exists())
        if is_lost or (not value and (equals or not name)):
            right = f"{name}{equals}{{checkpoint_dir}}{value}"
            yield Problem(f"`{word}`", f"\"$CHECKPOINT_DIR\" is empty in this shell; if you mean it, write '{right}'")


def _save_attempt(document: Mapping[str, Any]) -> Path:
    """Write the options to NAME-try.json; to another file if the user edited it."""
    name, text = document["service"]["name"], json.dumps(document, indent=2) + "\n"
    for number in count(1):
        path = Path(f"{name}-try{'' if number == 1 else f'-{number}'}.json")
        written = state_home() / "attempts" / f"{sha256(bytes(path.absolute())).hexdigest()[:16]}.json"
        last = written.read_text() if written.exists() else text
        if not path.exists() or path.read_text(errors="replace") in (text, last):
            break
    path.write_text(text)
    written.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(written, text)
    return path


def check_program(program: Path) -> None:
    """Raise UsageError for a folder, and JobError for a file of another language."""
    if program.is_dir():
        names = sorted(program.glob("*.py"), key=lambda path: (path.stem not in COMMON_NAMES, path))[:3]
        tries = " or ".join(f"`dcos-tensorflow try {command_line([name])}`" for name in names)
        raise click.UsageError(f"{program} is a folder; try takes a program: {tries or 'the folder has none'}")
    if program.suffix not in ("", ".py"):
        notebook = "; `jupyter nbconvert --to script` makes one of a notebook" if program.suffix == ".ipynb" else ""
        raise JobError(f"{program}: not a Python program{notebook}")


#: Prints place and text of a syntax error, in the Python of the tasks.
_COMPILE = """import sys
try: compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec")
except SyntaxError as error: print(error.lineno, "%s: `%s`" % (error.msg, (error.text or "").strip()))
"""


def syntax_problems(program: Path, python: str) -> Iterator[Problem]:
    """Yield the syntax error that the interpreter `python` finds in the program."""
    with suppress(OSError):  # no such interpreter, reported by other checks
        ask = [interpreter_path(python), "-I", "-W", "ignore", "-c", _COMPILE, str(program)]
        line, _, text = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip().partition(" ")
        yield from [Problem(f"{program}:{line}", text)] if text else []
