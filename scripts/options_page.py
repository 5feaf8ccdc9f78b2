"""Generate docs/reference/options.md from the options schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from marshmallow import Schema, fields

from tf_scheduler.cli.commands.options import COMMON_OPTIONS
from tf_scheduler.options.environment import variable_name
from tf_scheduler.options.generate import json_default, option_type
from tf_scheduler.options.schema.document import OPTIONS, Option, Options, options_of
from tf_scheduler.options.schema.fields import RecordList

_HEAD = """\
# Options

The options of a service are one JSON file, the same for `dcos package install tensorflow --options=FILE` and for
`dcos-tensorflow local run FILE`. Omitted options have their defaults. Options files of the DC/OS package
beta-tensorflow (0.2.0-1.5.0) work unchanged, because names, types and defaults of their options are the same.

    {
      "service": {"name": "mnist", "command": "python train.py", "job_url": "https://example.com/train.py"},
      "worker": {"count": 4, "mem": 8192}
    }

This page is generated from the schema by `scripts/generate-options`.
"""

_TAIL = """\
## Commands

| command | purpose |
| --- | --- |
| `dcos-tensorflow options init STRATEGY [PROGRAM]` | write a short file with program, tasks and sizes |
| `dcos-tensorflow options validate FILE` | list errors, at most ten lines; `--json`: all; `--dcos`: for clusters |
| `dcos-tensorflow options show FILE` | print every option with its value; secrets are hidden |
| `dcos-tensorflow options diff OLD NEW` | preview an update: restarted tasks and refused changes |
| `dcos-tensorflow options explain [PATH]` | describe an option or section; without PATH, the usual options |
| `dcos-tensorflow options schema` | print the JSON Schema of the file |

`options init` writes such a file for a program. STRATEGY is a value of `service.strategy`, or the name of a class, such
as `MultiWorkerMirroredStrategy`:

    dcos-tensorflow options init multi_worker_mirrored train.py --workers 2
    dcos-tensorflow local run options.json

The amounts fit this machine if possible. Keras 3 does not support `Model.fit` with `parameter_server` and
`multi_worker_mirrored`. If this Python has Keras 3 and the program calls `fit` with one of them, `options init` sets
`TF_USE_LEGACY_KERAS=1` and reports it. An existing file is replaced only with `--force`. With `--dcos` the file has the
form for `dcos package install`; write the program's URL into `job_url`.
`options init --from options.yaml` writes the options of a YAML file as JSON.

A relative path or a `runtime:NAME` exists on this machine only. `options validate` then reports missing files,
interpreters, runtimes, and commands whose program or module is not in `job_url`, as `local run` does. Otherwise the
agents of a cluster may have them, and it prints notices.

The shell completes commands, files and the options of `explain` after
`eval "$(_DCOS_TENSORFLOW_COMPLETE=bash_source dcos-tensorflow)"` (for zsh: `zsh_source`, for fish: `fish_source`).

## Values and updates

Unknown names are errors. Options without effect are accepted with a warning. Options that name no program
(`service.command`, `service.job_url`, `service.job_name` or the `command` of a job) run the package's check job, which
connects all tasks to each other.

The column *update* of the tables is the effect of a new value on a running service:

- *live*: no task restarts.
- *scale*: tasks are added or removed, and tasks that need every address restart.
- *restart*: the affected tasks restart.
- *fixed*: the change is refused; install another service instead.

Every option has one form: the same value is valid in the options file of `dcos-tensorflow`, in the options of DC/OS
(`dcos package install --options`, or the form), and in an environment variable of the scheduler. An `environment` may
also be an object that maps names to texts, as in earlier releases, but DC/OS refuses it. `options validate --dcos`
reports it, and `options show` prints the list that DC/OS accepts. Paths relative to the file (`job_url`) and
`runtime:NAME` (`python`) work on the local cluster only, and are reported, too.

The column *variable* is the environment variable that carries the option to the scheduler. It contains text without
quotes, and other values as JSON: `WORKER_COUNT=4`, `USE_TENSORBOARD=true`, `RESTART_UNCOUNTED_EXIT_CODES=[42, 143]`,
`SERVICE_ENVIRONMENT=[{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "2"}]`. DC/OS cannot render lists of objects as JSON, so
that in the variables of the package's app the control character 0x1e ends each entry of a list, and 0x1f ends each
field of an object.
"""


def options_page() -> str:
    """Return the content of docs/reference/options.md."""
    schema = Options()
    sections = (_section(name, field) for name, field in schema.fields.items())
    return "\n".join([_HEAD, *_common(list(schema.fields)), _TAIL, *sections])


def _common(sections: list[str]) -> Iterator[str]:
    """Yield the options that most jobs set, and links to the sections with all others."""
    options = {str(option): option for option in OPTIONS}
    yield "## Common options\n"
    yield "Most jobs set only some of these. `worker` stands for any job, for example `chief` or `gpu_worker`.\n"
    yield "| option | type | default | meaning |\n| --- | --- | --- | --- |"
    for name in COMMON_OPTIONS:
        option = options[name]
        yield f"| `{name}` | {option_type(option)} | {_default(option)} | {_meaning(option)} |"
    yield f"\nAll others: {', '.join(f'[{name}](#{name})' for name in sections)}.\n"


def _section(name: str, field: fields.Field[Any]) -> str:
    if isinstance(field, fields.Nested):
        options = tuple(options_of(field.schema, (name,)))
        return _page_part(name, field.metadata["description"], options)
    option = Option((name,), field)
    inner = field.schema if isinstance(field, RecordList) else Schema()
    rows = [f"| `{part}` | {option_type(part)} | {_meaning(part)} |" for part in options_of(inner)]
    table = ["| field | type | meaning |", "| --- | --- | --- |", *rows]
    facts = f"A list of objects; default `[]`; update: {option.on_update.value}; variable `{variable_name(option)}`."
    return "\n".join([f"## {name}", "", option.description, facts, "", *table, ""])


def _page_part(name: str, description: str, options: tuple[Option, ...]) -> str:
    head = ["| option | type | default | meaning | update | variable |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([f"## {name}", "", description, "", *head, *(_row(option) for option in options), ""])


def _row(option: Option) -> str:
    cells = (
        f"`{option}`",
        option_type(option),
        _default(option),
        _meaning(option),
        option.on_update.value,
        f"`{variable_name(option)}`",
    )
    return f"| {' | '.join(cells)} |"


def _default(option: Option) -> str:
    return "" if option.default is None else f"`{_escaped(_json(json_default(option)))}`"


def _meaning(option: Option) -> str:
    examples = option.metadata("examples")
    suffix = f" Examples: {', '.join(f'`{_json(example)}`' for example in examples)}." if examples else ""
    return _escaped(f"{option.description}{suffix}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _escaped(text: str) -> str:
    """Escape bars, which would end the table cell."""
    return text.replace("|", "\\|")
