"""Derive options from the source of a program: strategy, tasks, libraries. Pure.

A source is not a proof: the program may not use a name that it contains, and a library may use a name that it does not
contain. Messages therefore quote the name that was found.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from tf_executor.contract.advice import KERAS_2
from tf_executor.contract.payload import setter_of
from tf_executor.contract.strategies import Strategy
from tf_executor.contract.text import pluralize
from tf_scheduler.errors import JobError, Problem
from tf_scheduler.options.schema.fields import ALIASES
from tf_scheduler.options.schema.jobs import JOBS

from .tables import command_line

Options = dict[str, Any]
#: End of a dotted name in a program -> strategy. The first entry counts.
_NAMES = {name: strategy for strategy in Strategy for name in strategy.traits.names}
#: Amounts of a task, the largest first: cpus and MB.
SIZES = ((0.5, 1024), (0.25, 1024), (0.1, 1024), (0.1, 512))
#: Maximum cpus of a parameter server and of a worker of the data service.
_SERVER_CPUS = 0.3
#: Names of programs that do not tell jobs apart.
COMMON_NAMES = ("train", "main", "run", "trainer", "program", "script", "__main__")
_STRINGS = re.compile(r"'''.*?'''|\"\"\".*?\"\"\"", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([\w.]+)")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")

_TF_1 = re.compile(r"\btensorflow\.(contrib|examples)\b|\btf\.contrib\b")
#: Names that only TensorFlow 1 has at the top.
_TF_1_NAMES = re.compile(r"\btf\.(app|flags|placeholder|Session|ConfigProto|get_variable)\b")
_ESTIMATOR = re.compile(r"\b(tf|tensorflow)\.estimator\b|\btensorflow_estimator\b")
_IMAGE_VERSION = re.compile(r"tensorflow[^/:]*:v?([12])\.(\d+)")
#: Newest TensorFlow with Estimators, and the first with Keras 3.
_LAST_ESTIMATOR, _KERAS_3 = (2, 15), (2, 16)
_TENSORFLOW_MODULES = {"tensorflow", "tf_keras", "keras"}
_TORCH_VERSION = re.compile(r"(?:^|/)pytorch:v?(\d+\.\d+(?:\.\d+)?)")
#: Module that programs often use -> its package.
PACKAGES = {
    **{name: name for name in ("torchvision", "torchaudio", "tensorboardX", "scipy", "pandas", "matplotlib", "tqdm")},
    **{name: name for name in ("portpicker", "pydot", "h5py", "seaborn")},
    "jax": "jax",
    "transformers": "transformers",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "cv2": "opencv-python-headless",
    "Crypto": "pycryptodome",
    "MySQLdb": "mysqlclient",
    "faiss": "faiss-cpu",
    "skimage": "scikit-image",
}
#: The same, with what `runtime create` names otherwise. A package of any other name may be a stranger's.
PIP_NAMES = {**PACKAGES, **{name: name for name in ("tensorflow", "keras", "torch", "numpy", "requests")}}


# --- source


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """What the sources of a program use."""

    strategy: Strategy = Strategy.INDEPENDENT
    #: Name from which the strategy was guessed; empty: there is none.
    evidence: str = ""
    #: First call of `fit` as FILE:LINE; empty: there is none, or the program selects Keras 2 itself.
    fit: str = ""
    #: Imported modules, without what follows the first dot.
    modules: frozenset[str] = frozenset()
    #: Those that are imported outside of `try`.
    required: frozenset[str] = frozenset()
    #: Whether the program reads batches of a tf.data service.
    data_service: bool = False
    #: All strategies that the program uses.
    strategies: Collection[Strategy] = ()
    #: (`sets` or `removes`, environment variable) -> where the program does it unconditionally, as FILE:LINE.
    variables: Mapping[tuple[str, str], str] = field(default_factory=dict)
    #: Options of the started file that its parser requires, such as `-d, --data` -> where, as FILE:LINE.
    flags: Mapping[str, str] = field(default_factory=dict)
    #: Whether the started file has the `main(server, log_dir, context)` of the original package, and does not call it.
    is_job: bool = False


@dataclass(slots=True)
class _Names:
    """Dotted names, texts and imports of one source, and the line of the first `fit`."""

    names: set[str]
    texts: set[str]
    #: With dots before a relative import.
    imports: set[str]
    fit: int = 0
    #: Those of `imports` in a `try` with a handler.
    optional: set[str] = field(default_factory=set)
    #: Those outside of functions and blocks.
    always: set[str] = field(default_factory=set)
    #: (`sets` or `removes`, environment variable) -> first line that does it, unless on a condition that reads it.
    variables: dict[tuple[str, str], int] = field(default_factory=dict)
    flags: dict[str, int] = field(default_factory=dict)
    is_job: bool = False


def scan(sources: Mapping[str, str]) -> ProgramFacts:
    """Return facts about a program. `sources`: file -> source, the started file first."""
    names_of = {file: _names(source) for file, source in sources.items()}
    names = set[str]().union(*(each.names for each in names_of.values()))
    texts = set[str]().union(*(each.texts for each in names_of.values()))
    imports = frozenset(name.split(".")[0] for each in names_of.values() for name in each.imports)
    used = _evidence(names, imports, sources.values())
    strategy, evidence = next(iter(used.items()), (Strategy.INDEPENDENT, ""))
    selects = "tf_keras" in imports or KERAS_2 in texts
    fits = (f"{file}:{each.fit}" for file, each in names_of.items() if each.fit and not selects)
    required = frozenset(name.split(".")[0] for each in names_of.values() for name in each.imports - each.optional)
    variables = {key: f"{file}:{line}" for file, each in names_of.items() for key, line in each.variables.items()}
    reads_data = "DATA_SERVICE_ADDRESS" in texts
    # Estimators start the server themselves.
    servers = {Strategy.BETWEEN_GRAPH} if any(name.endswith("train_and_evaluate") for name in names) else set()
    first, started = next(iter(names_of.items()), ("", _names("")))
    strategies, flags = servers.union(used), {name: f"{first}:{line}" for name, line in started.flags.items()}
    return ProgramFacts(
        strategy,
        evidence,
        next(fits, ""),
        imports,
        required,
        reads_data,
        strategies,
        variables,
        flags,
        started.is_job,
    )


def _evidence(names: set[str], imports: Collection[str], texts: Collection[str]) -> dict[Strategy, str]:
    """Return the strategies, the likeliest first, each with the name that shows it."""
    used: dict[Strategy, str] = {}
    for name, strategy in _NAMES.items():
        if any(f".{each}".endswith(f".{name}") for each in names):
            used.setdefault(strategy, name)
    for strategy, traits in ((each, each.traits) for each in Strategy):
        if traits.module and traits.module in imports:
            used.setdefault(strategy, traits.module)
    for strategy, traits in ((each, each.traits) for each in Strategy):
        if traits.launcher and traits.library in imports and any(traits.launcher in text for text in texts):
            used.setdefault(strategy, traits.launcher)
    return used


#: Libraries that join the other tasks for the program.
_TRAINERS = re.compile("accelerate|composer|deepspeed|fastai|ignite|lightning|pytorch_lightning|transformers")


def lone_tasks(options: Mapping[str, Any], facts: ProgramFacts) -> Iterator[Problem]:
    """Yield why tasks may train alone, although the strategy lets them train together."""
    strategy = Strategy(options["service"]["strategy"])
    for (verb, name), where in facts.variables.items():
        if setter := setter_of(name, strategy):
            yield Problem(where, f"{verb} {name}, which {setter} sets for each task; remove this line")
    tasks, names = sum(options[name]["count"] for name in ("chief", "worker", "gpu_worker")), strategy.traits.names
    is_used = strategy in facts.strategies or any(map(_TRAINERS.fullmatch, facts.modules))
    if names and tasks > 1 and not is_used:
        why = f"{strategy.value}, but the program has no {names[0]}, so that each task may train a model of its own"
        yield Problem("service.strategy", f"{why}; add {strategy.traits.joins}")


def missing_flags(facts: ProgramFacts, commands: Sequence[str]) -> Iterator[Problem]:
    """Yield options that the started file requires, and no command has."""
    words = set(" ".join(commands).replace("=", " ").split())
    for flags, where in facts.flags.items():
        if flags.startswith("-") and not words.intersection(flags.split(", ")):
            yield Problem(where, f"the program requires {flags}, and the command lacks it")


def imported_modules(source: str) -> set[str]:
    """Return the modules that a source imports; relative imports begin with dots."""
    return _names(source).imports


def always_imported(source: str) -> set[str]:
    """Return the modules that a source imports outside of functions and blocks."""
    return _names(source).always


def _names(source: str) -> _Names:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in texts of the program
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # such as a program of Python 2
        return _names_of_text(source)
    result = _Names(set(), set(), set(), always=set[str]().union(*map(_imports, tree.body)))
    _rename_environ(tree)
    conditions = _conditions(tree)
    for node in ast.walk(tree):
        for verb, name in _overrides(node):
            if name not in conditions.get(node, ()):
                result.variables.setdefault((verb, name), getattr(node, "lineno", 0))
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument" | "option"), args=words, keywords=values) if any(
                each.arg == "required" and getattr(each.value, "value", False) is True for each in values
            ):
                flags = [str(each.value) for each in words if isinstance(each, ast.Constant)]
                result.flags[", ".join(flags)] = node.lineno
            case ast.Attribute() | ast.Name():
                result.names.add(_dotted(node))
            case ast.Constant(value=str(text)):
                result.texts.add(text)
            case ast.Import() | ast.ImportFrom():
                result.imports |= _imports(node)
                result.names |= _imports(node) if isinstance(node, ast.ImportFrom) else set()
            case ast.Call(func=ast.Attribute(attr="fit")):
                result.fit = min(result.fit or node.lineno, node.lineno)
            case ast.Try(body=body, handlers=[_, *_]):
                result.optional |= set[str]().union(*(_imports(each) for part in body for each in ast.walk(part)))
    mains = (each.args.args for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "main")
    result.is_job = "main" not in result.names and any(len(arguments) == 3 for arguments in mains)
    return result


def _conditions(tree: ast.AST) -> dict[ast.AST, set[object]]:
    """Return the constants in the conditions on which a node runs, by node."""
    result: dict[ast.AST, set[object]] = {}
    blocks = (block for node in ast.walk(tree) for _, block in ast.iter_fields(node) if isinstance(block, list))
    for block in blocks:
        for at, each in enumerate(block):
            if isinstance(each, ast.If):
                constants = {part.value for part in ast.walk(each.test) if isinstance(part, ast.Constant)}
                leaves = isinstance(each.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
                for part in (*each.body, *each.orelse, *(block[at + 1 :] if leaves else ())):
                    for inner in ast.walk(part):
                        result.setdefault(inner, set()).update(constants)
    return result


def _rename_environ(tree: ast.AST) -> None:
    """Replace the names that always mean `os.environ` by `environ`."""
    bound: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="os", names=names):
                bound |= {each.asname: {each.name} for each in names if each.asname}
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                bound.setdefault(name, set()).add(_dotted(value))
            case ast.arg(arg=name):
                bound.setdefault(name, set()).add("")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and all(each.endswith("environ") for each in bound.get(node.id, {""})):
            node.id = "environ"


def _overrides(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield `sets` or `removes`, and the environment variable that a node changes."""
    match node:
        case ast.Subscript(value=owner, slice=ast.Constant(value=str(name)), ctx=ast.Store() | ast.Del() as ctx):
            if _dotted(owner).endswith("environ"):
                yield "sets" if isinstance(ctx, ast.Store) else "removes", name
        case ast.AugAssign(target=owner, value=added) if _dotted(owner).endswith("environ"):
            yield from (("sets", name) for name in _keys(added))
        case ast.Call(func=function, args=arguments):
            call = re.search(r"\b(putenv|unsetenv|environ\.(?:pop|update|clear))$", _dotted(function))
            match call and call[1], arguments:
                case "putenv", [ast.Constant(value=str(name)), *_]:
                    yield "sets", name
                case "unsetenv" | "environ.pop", [ast.Constant(value=str(name)), *_]:
                    yield "removes", name
                case "environ.update", _:
                    yield from (("sets", name) for name in _keys(node))
                case "environ.clear", _:
                    yield "removes", "TF_CONFIG"  # which every task has


def _keys(node: ast.AST) -> Iterator[str]:
    """Yield the constant keys in a dictionary or in a call of `dict` or `update`."""
    match node:
        case ast.Dict(keys=keys):
            yield from (str(key.value) for key in keys if isinstance(key, ast.Constant))
        case ast.Call(func=ast.Name(id="dict") | ast.Attribute(attr="update"), args=arguments, keywords=keywords):
            yield from (each.arg for each in keywords if each.arg)
            yield from (key for each in arguments for key in _keys(each))


def _imports(node: ast.AST) -> set[str]:
    """Return the modules and names that a statement imports; empty if it imports none."""
    match node:
        case ast.Import():
            return {alias.name for alias in node.names}
        case ast.ImportFrom():
            base = "." * node.level + (node.module or "")
            return {base, *(f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names)}
    return set()


def _dotted(node: ast.expr) -> str:
    """Return a dotted name such as `a.b.c`, without a call or index before it."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([*([node.id] if isinstance(node, ast.Name) else []), *reversed(parts)])


def _names_of_text(source: str) -> _Names:
    """Read the words of a source that this Python cannot parse."""
    code = _STRINGS.sub(lambda text: "\n" * text[0].count("\n"), source)
    lines = [line.partition("#")[0] for line in code.splitlines()]
    words = {word for line in lines for word in _WORD.findall(line)}
    imports = {match[1] for line in lines if (match := _IMPORT.match(line))}
    fit = next((number for number, line in enumerate(lines, 1) if re.search(r"\.fit\s*\(", line)), 0)
    return _Names(words, words, imports, fit)


# --- libraries


@dataclass(frozen=True, slots=True)
class Libraries:
    """Libraries that the images and the program need."""

    torch: bool = False
    #: Version in the tag of the image; empty: the newest.
    torch_version: str = ""
    #: Newest suitable TensorFlow; `None`: the newest.
    tensorflow: tuple[int, int] | None = None
    horovod: bool = False
    #: Modules that the program imports, except those of Python.
    modules: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages of the imported modules, as far as PACKAGES lists them."""
        return tuple(PACKAGES[name] for name in sorted(self.modules) if name in PACKAGES)

    @property
    def has_keras_3(self) -> bool:
        """Whether tf.keras is Keras 3."""
        return self.tensorflow is None or self.tensorflow >= _KERAS_3


def needed_libraries(images: Sequence[str], source: str, *, is_torch: bool) -> Libraries:
    """Return the newest libraries that suit the tags of the images and the imports."""
    facts = scan({"": source})
    modules, others = facts.modules, facts.required - sys.stdlib_module_names - {""}
    if is_torch or ("torch" in modules and not modules & _TENSORFLOW_MODULES):
        versions = (match[1] for image in images if (match := _TORCH_VERSION.search(image)))
        return Libraries(torch=True, torch_version=next(versions, ""), modules=others)
    tags = [(int(match[1]), int(match[2])) for image in images if (match := _IMAGE_VERSION.search(image))]
    if _TF_1.search(source) or (_TF_1_NAMES.search(source) and "compat.v1" not in source):
        tags.append((1, 15))
    elif _ESTIMATOR.search(source):
        tags.append(_LAST_ESTIMATOR)
    return Libraries(tensorflow=min(tags, default=None), horovod="horovod" in modules, modules=others)


# --- command

#: The folder in which a command starts.
FOLDER = re.compile(r"^\s*cd\s+('[^']*'|\S+)\s*&&\s*")
_STARTED = re.compile(
    r"(?:(?:\S*/)?python[\d.]*(?:\s+-[bBdEiIOqsSuvx]+)*\s+(?:-m\s+(?P<module>\w[\w.]*)|(?P<script>[\w./][\w./-]*))"
    r"|torchrun(?:\s+[\w./=:-]+)*?\s+(?P<ddp>[\w./][\w./-]*\.py)|(?P<file>\.?[\w.-]*/[\w./-]+))(?=\s|$)"
)


def start_problem(
    command: str, files: Collection[str], exists: Callable[[str], bool], missing: Callable[[Sequence[str]], object]
) -> str:
    """Return why a command cannot start its file or module; empty if it can.

    `files`: names in the working directory. `exists`: whether a file with this absolute path exists. `missing`: returns
    those of these modules that the interpreter lacks.
    """
    change, paths = FOLDER.match(command), {*files, *(str(path) for name in files for path in PurePath(name).parents)}
    folder = posixpath.normpath(change[1]) if change else "."
    if folder.startswith(("/", "~", "$", "'", '"')):
        return ""
    if folder not in {".", *paths}:
        return _not_in_program(folder, paths)
    started = _STARTED.match(command[change.end() :] if change else command)
    if started is None:
        return ""
    if module := started["module"]:
        top = module.partition(".")[0]
        base, first = (posixpath.normpath(f"{folder}/{name}") for name in (module.replace(".", "/"), top))
        is_there = {base, f"{base}.py"} & paths or (not {first, f"{first}.py"} & paths and not missing([top]))
        return "" if is_there else _not_in_program(f"{base}.py", paths)
    name = posixpath.normpath(posixpath.join(folder, started["script"] or started["ddp"] or started["file"]))
    if name.startswith("/"):
        return "" if exists(name) else f"{name}: does not exist on this machine"
    return "" if name in paths else _not_in_program(name, paths)


#: In the problem of a file that the job lacks, after its name.
NOT_IN_JOB = ": not in service.job_url"


def _not_in_program(name: str, files: Collection[str]) -> str:
    same = [file for file in files if PurePath(file).name == PurePath(name).name]
    near = same or get_close_matches(name, sorted(files), n=1)
    return f"{name}{NOT_IN_JOB}" + (f"; did you mean `{near[0]}`?" if near else "")


# --- options


def strategy_named(text: str) -> Strategy:
    """Return the strategy of an option value or a class name. Raises JobError."""
    word = text.rpartition(".")[2]
    aliases = {alias: Strategy(value) for alias, value in ALIASES.items()}
    strategies = {**{one.value: one for one in Strategy}, **_NAMES, **aliases}
    plain = {_plain(name): strategy for name, strategy in strategies.items()}
    if strategy := plain.get(_plain(word)):
        return strategy
    near = get_close_matches(_plain(word), plain, n=1, cutoff=0.5)
    hint = f"; did you mean `{plain[near[0]].value}`?" if near else ""
    raise JobError(f"unknown strategy `{text}`{hint}; valid: {', '.join(one.value for one in Strategy)}")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").removesuffix("v2").removesuffix("strategy")


def job_name(program: PurePath) -> str:
    """Return a service name from an absolute path: from its stem, else from a folder."""
    stems = [program.stem, *(parent.name for parent in program.parents)]
    names = (re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:50].strip("-") for stem in stems)
    return next((name for name in names if name and name not in COMMON_NAMES), "job")


@dataclass(frozen=True, slots=True)
class NewJob:
    """A new job, for which options are written."""

    name: str
    strategy: Strategy
    #: Value of the option job_url.
    url: str
    #: Words after `python` that start the program; empty: `job_name` is run.
    start: Sequence[str]
    workers: int | None = None
    servers: int | None = None
    arguments: Sequence[str] = ()
    python: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    data_service: bool = False
    #: Module with `main(server, log_dir, context)`.
    job_name: str = ""

    def options(self, fits: Callable[[Options], bool]) -> Options:
        """Return options with the largest of SIZES that fit; else with the smallest."""
        sizes = ((0.5, 2048), *SIZES) if self.strategy.traits.library == "torch" else SIZES
        choices = (self._options(cpus, mem) for cpus, mem in sizes)
        return next((options for options in choices if fits(options)), self._options(*SIZES[-1]))

    def _options(self, cpus: float, mem: int) -> Options:
        words = [word.replace("{checkpoint_dir}", "$CHECKPOINT_DIR") for word in self.arguments]
        words = [_VARIABLE.sub(lambda name: f"$({name[1] or name[2]})", word) for word in words]
        service: Options = {"name": self.name, "strategy": self.strategy.value, "job_url": self.url}
        if self.job_name:
            service["job_name"] = self.job_name
        else:
            service["command"] = command_line(["python", *self.start, *words])
        if self.python:
            service["python"] = self.python
        if self.environment:
            service["environment"] = dict(self.environment)
        workers, servers, chiefs = self.strategy.traits.new_counts
        servers, server_cpus = servers if self.servers is None else self.servers, min(cpus, _SERVER_CPUS)
        size, server_size = {"cpus": cpus, "mem": mem}, {"cpus": server_cpus, "mem": mem}
        options: Options = {"service": service}
        if chiefs:
            options["chief"] = {"count": chiefs, **size}
        if servers or self.servers is not None:
            options["parameter_server"] = {"count": servers, **(server_size if servers else {})}
        options["worker"] = {"count": self.workers or workers, **size}
        if self.data_service:
            dispatcher = {"dispatcher_cpus": min(cpus, 0.2), "dispatcher_mem": mem}
            options["data_service"] = {"workers": 1, **server_size, **dispatcher}
        return options


def summary(options: Options) -> str:
    """Describe the tasks, such as `2 workers of 0.5 cpus and 1024 MB`."""
    return ", ".join(_tasks(options))


def _tasks(options: Options) -> Iterator[str]:
    for section in reversed(tuple(JOBS)):
        values = options.get(section, {})
        if count := values.get("count", 0):
            tasks = pluralize(count, section.replace("_", " "))
            yield f"{tasks} of {values['cpus']:g} cpus and {values['mem']} MB"
