"""Load and check options files for this machine; add this machine's defaults."""

from __future__ import annotations

import getpass
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

from dcos_command.command import echo
from dcos_command.documents import with_settings
from mesos_local.images import unknown_image
from tf_executor.contract.advice import (
    KERAS_2,
    ignored_keras_2,
    keras_2_command,
    keras_3_problem,
    missing_command,
    missing_keras_2,
)
from tf_executor.contract.strategies import Strategy
from tf_executor.contract.text import format_size, pluralize
from tf_scheduler.cli.common.folders import folder_size, read_bytes, short_path
from tf_scheduler.cli.common.output import say
from tf_scheduler.cli.common.programs import (
    MAX_COPY,
    folder_files,
    import_root,
    is_shared_folder,
    missing_modules,
    pack_folder,
    program_files,
    program_folder,
    program_sources,
    read_only_copy,
    size_problem,
    unpacked_reason,
)
from tf_scheduler.convert.program import (
    FOLDER,
    NOT_IN_JOB,
    PIP_NAMES,
    always_imported,
    lone_tasks,
    missing_flags,
    scan,
    start_problem,
)
from tf_scheduler.errors import JobError, OptionsError, Problem
from tf_scheduler.model.digests import DataFile, join_data, split_data
from tf_scheduler.model.spec import ServiceSpec, Uri
from tf_scheduler.options.job_file import split_job
from tf_scheduler.options.load import as_lists, parse, resolve
from tf_scheduler.options.schema.document import is_default
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.schema.scheduler_options import LINK
from tf_scheduler.options.schema.service import RUNTIME_PREFIX, runs_check_job
from tf_scheduler.options.schema.values import split_names
from tf_scheduler.options.spec import image_of, jobs_with_image, to_spec
from tf_scheduler.options.warnings import find_local_warnings
from tf_scheduler.package.sources import PACKAGE_FOLDER
from tf_scheduler.zipapp_builder import build_bundle

#: Options whose defaults need the hosts, the containers or the isolators of DC/OS.
_DCOS_DEFAULTS = ("mesos.master", "scheduler.containerized", "scheduler.state", "executor.volumes")
#: Resources of the check job's tasks, less than the package's defaults.
_SMALL_TASK = {"cpus": 0.1, "mem": 64, "disk": 0}
#: Seconds that Mesos keeps the tasks of a local run whose command was killed: no scheduler will return.
FAILOVER_TIMEOUT = 10.0

Options = Mapping[str, Any]


def _for_this_machine(document: Options) -> dict[str, Any]:
    """Replace `runtime:NAME` by a path; omit default values that only DC/OS can use.

    Raises OptionsError for an unknown runtime.
    """
    completed, problems = _with_runtimes(_without_dcos_defaults(document))
    if problems:
        raise OptionsError(problems)
    return completed


def _with_runtimes(document: Options) -> tuple[dict[str, Any], list[Problem]]:
    """Replace `runtime:NAME` by a path, or unknown runtimes by ""; return problems."""
    completed, problems = dict(document), []
    for name, section in document.items():
        python = section.get("python") if isinstance(section, Mapping) else None
        if isinstance(python, str) and python.startswith(RUNTIME_PREFIX):
            from tf_scheduler.runtimes.runtimes import find_runtime  # slow import, rarely needed

            try:
                path = find_runtime(python.removeprefix(RUNTIME_PREFIX)).python
            except JobError as error:
                path = ""
                problems.append(Problem(f"{name}.python", f"{error}; create it with `dcos-tensorflow runtime create`"))
            completed[name] = {**section, "python": path}
    return completed, problems


def _without_dcos_defaults(document: Options) -> dict[str, Any]:
    paths, is_check = list(_DCOS_DEFAULTS), runs_check_job(document)
    if is_check:
        paths += [f"{section}.{name}" for section in JOBS for name in _SMALL_TASK]
    if is_check or os.geteuid():  # only root can run tasks as another user, who may not read root's Python
        paths.append("service.user")
    kept = dict(document)
    for section, name in (path.split(".") for path in paths):
        values = kept.get(section)
        if isinstance(values, Mapping) and is_default(f"{section}.{name}", values.get(name)):
            kept[section] = {other: value for other, value in values.items() if other != name}
    return kept


def load_document(path: Path, settings: Collection[str] = ()) -> dict[str, Any]:
    """Return options with `settings` (--set), `localized`; load_options checks them."""
    return localized(_read_options(path, settings), path.parent)


def _read_options(path: Path, settings: Collection[str]) -> dict[str, Any]:
    """Return options with `settings`, without the section that only a queue uses."""
    return split_job(with_settings(parse(read_bytes(path), str(path)), settings)[0])[1]


def localized(document: Options, folder: Path) -> dict[str, Any]:
    """Return valid options in Cosmos' form: environments as lists, absolute paths."""
    return dict(_with_absolute_paths(as_lists(_for_this_machine(document)), folder.resolve()))


def can_check_gpus() -> bool:
    """Whether executors can check GPUs: local agents may offer GPUs that do not exist."""
    return shutil.which("nvidia-smi") is not None


def _with_absolute_paths(options: Options, folder: Path) -> Options:
    """Make paths absolute, as agents have other working directories; pack folders."""
    service, executor = dict(options.get("service", {})), dict(options.get("executor", {}))
    for section, name in ((service, "job_url"), (executor, "url")):
        path = _local_path(section.get(name, ""), folder)
        if path is not None:
            packed = pack_folder(path, packed_files(options, path, folder)[0]) if path.is_dir() else path
            section[name] = packed.resolve().as_uri()
    files = split_data(service.get("data", ""))
    if any(_local_path(file.url, folder) for file in files):
        is_own = service.get("user", getpass.getuser()) == getpass.getuser()
        service["data"] = join_data(_with_local_copy(file, folder, is_own) for file in files)
    checkpoints = service.get("checkpoint_dir", "")
    if checkpoints and "://" not in checkpoints:
        service["checkpoint_dir"] = str(folder / Path(checkpoints).expanduser())
    return {**options, "service": service, "executor": executor}


def packed_files(options: Options, program: Path, folder: Path) -> tuple[list[Path], str]:
    """Return the files of the folder `program` that tasks get, and why not all.

    Of a folder that is too large, and of one such as `~`: only the programs and the modules that they import.
    """
    apart = [_local_path(file.url, folder) for file in split_data(options["service"].get("data", ""))]
    apart.append(_local_path(options["service"].get("checkpoint_dir", ""), folder))
    is_shared = is_shared_folder(program)
    files = [] if is_shared else folder_files(program, {os.path.relpath(path, program) for path in apart if path})
    why = "the folder holds more than one program" if is_shared else size_problem(files)
    if not why:
        return files, ""
    commands = [options.get(section, {}).get("command", "") for section in ("service", *JOBS)]
    commands.append(f"python -m {options['service'].get('job_name', '')}")
    names = {name for each in _programs(program, program, commands) for name in program_sources(*each)}
    paths = (Path(os.path.normpath(program / name)) for name in names)
    return sorted(path for path in paths if program in path.parents), why


#: Errors of a missing file, and what may be its path: quoted text, or a word.
_MISSING_FILE = re.compile(
    r"(?i)no such file|not ?found|(does not|doesn't) exist|no (matching )?files|unable to.* open"
)
_NAMES = re.compile(r"'([^']+)'|\"([^\"]+)\"|([^\s'\";:,()]+)")


def unpacked_hint(path: Path, settings: Collection[str], error: str) -> str:
    """Return why tasks lack a file beside the program that an error names.

    `path` and `settings` as in `load_options`. Empty: the error has another cause.
    """
    options, folder = resolve(_read_options(path, settings)), path.parent
    program = _local_path(options["service"]["job_url"], folder)
    if program is None or not _MISSING_FILE.search(error):
        return ""
    home = program if program.is_dir() else program.parent
    packed, part = (
        packed_files(options, program, folder) if program.is_dir() else ([program], f"tasks get only {program.name}")
    )
    names = [PurePath(first or second or word) for first, second, word in _NAMES.findall(error)]
    for name in (each for each in names if each.parts and not each.is_absolute() and (home / each).exists()):
        file = home / name
        if not any(file in (each, *each.parents) for each in packed):
            why = unpacked_reason(file, home) or part or "git ignores it"
            remedy = f'"data": ["{os.path.relpath(file, folder)}"] in service links it'
            return f"{name} is in {short_path(str(home.resolve()))}, but was not packed, because {why}; {remedy}"
    return ""


def _with_local_copy(file: DataFile, folder: Path, is_own: bool) -> DataFile:
    """Link one copy of a file or folder in all tasks; copy a file of another user."""
    path = _local_path(file.url, folder)
    if path is None:
        return file
    is_folder, inner = path.is_dir(), os.path.normpath(file.url)
    is_copied = is_own and not file.link and (not is_folder or folder_size(path) <= MAX_COPY)
    if not (is_copied or is_folder):
        return replace(file, url=path.absolute().as_uri())
    is_inner = is_folder and not inner.startswith(("..", "/", "~", "file:"))
    name = file.path or (inner if is_inner else path.resolve().name if is_folder else Uri(file.url).file_name)
    source = read_only_copy(path) if is_copied else path.absolute()
    return replace(file, url=source.as_uri(), path=name, link=True, extract=file.extract and not is_folder)


def _local_path(url: str, folder: Path) -> Path | None:
    """Return the file of a path or file:// URL; None for other or empty URLs."""
    if url.startswith("file://"):
        return Path(unquote(url.removeprefix("file://")))
    return folder / Path(url).expanduser() if url and "://" not in url else None


def load_options(
    path: Path, settings: Collection[str] = (), *, containers: bool = False, about: str = ""
) -> ServiceSpec:
    """Return the spec of an options file, changed by `settings` (--set).

    Raises OptionsError with all problems. Default user and interpreter are those of this process. Paths are relative to
    the file. `containers`: whether the cluster has containers. Prints notices on standard error, and what is packed,
    with the text `about` at the end.
    """
    document, wrong = with_settings(parse(read_bytes(path), str(path)), settings)
    options = check_options(
        split_job(document)[1], path.parent, [Problem(*each) for each in wrong], containers=containers
    )
    for notice in (*find_local_warnings(document, options), *program_warnings(options, path.parent)):
        echo(f"notice: {notice}", err=True)
    for line in _packed_lines(options, path.parent, about):
        say(line)
    return to_spec(_with_absolute_paths(options, path.parent.resolve()))


def _packed_lines(options: Options, folder: Path, about: str) -> Iterator[str]:
    """Yield what tasks get from this machine."""
    path = _local_path(options["service"]["job_url"], folder)
    if path is not None:
        files, why = packed_files(options, path, folder) if path.is_dir() else ([path], "")
        of, about = (
            path if path.is_dir() else path.parent,
            f": only imported modules, because {why}{about}" if why else about,
        )
        size = format_size(sum(file.stat().st_size for file in files))
        yield f"packed {pluralize(len(files), 'file')}, {size}, of {short_path(str(of.resolve()))}{about}"
    for data in (_local_path(file.url, folder) for file in split_data(options["service"]["data"]) if not file.link):
        if data is not None and data.is_dir() and (large := folder_size(data)) > MAX_COPY:
            yield f"linked {data}, {format_size(large)}: too large for a read-only copy, tasks may change it"


def check_options(
    document: Options, folder: Path, wrong: Collection[Problem] = (), *, containers: bool = False
) -> Options:
    """Resolve options for this machine. Raises OptionsError with all problems."""
    rules = (
        lambda _: iter(wrong),
        lambda options: _missing_files(options, folder),
        _missing_programs,
        lambda options: _missing_commands(options, folder),
        _invalid_user,
        lambda options: _unsupported_isolation(options, containers),
    )
    return resolve(_for_this_machine(document), _local_defaults(document, containers), rules)


def scheduler_defaults(document: Options, *, containers: bool) -> dict[str, Any]:
    """Return this machine's defaults for a document, by path, except executor.url."""
    defaults = _local_defaults(document, containers)
    return {f"{part}.{name}": value for part in defaults for name, value in defaults[part].items() if name != "url"}


def _local_defaults(document: Options, containers: bool) -> Mapping[str, Mapping[str, Any]]:
    """Return this machine's defaults; with a check job if no program is named."""
    program, small = (_check_job(), _SMALL_TASK) if runs_check_job(document) else ({}, {})
    user, gpus = {"user": getpass.getuser()}, {} if can_check_gpus() else {"gpu_check": False}
    python, volumes = {"python": sys.executable}, {} if containers else {"volumes": LINK}
    images = jobs_with_image(document)
    everywhere = {} if images else python  # an image has an interpreter of its own
    return {
        "service": {**user, **everywhere, "failover_timeout": FAILOVER_TIMEOUT, **program},
        "executor": {"url": build_bundle().as_uri(), **everywhere, **volumes},
        **{section: {**gpus, **small, **(python if images and section not in images else {})} for section in JOBS},
    }


def _check_job() -> dict[str, str]:
    """Return a program that checks that the tasks reach each other."""
    program = PACKAGE_FOLDER.parent / "examples" / "sanity" / "check.py"
    command, strategy = f"python {program.name}", Strategy.BETWEEN_GRAPH.value
    return {"job_url": program.as_uri(), "command": command, "strategy": strategy}


def _missing_files(options: Options, folder: Path) -> Iterator[Problem]:
    """Yield problems of local files. `folder`: folder of the options file."""
    for section, name in (("service", "job_url"), ("executor", "url")):
        path = _local_path(options[section][name], folder)
        if path is not None and not path.exists():
            yield Problem(f"{section}.{name}", f"{path}: file does not exist")
        elif path is not None and not path.is_file():
            is_program = section == "service"
            problem = "contains no program to pack" if is_program else "is a folder; use a file"
            if not (is_program and packed_files(options, path, folder)[0]):
                yield Problem(f"{section}.{name}", f"{path}: {problem}")
    for file in split_data(options["service"]["data"]):
        path = _local_path(file.url, folder)
        if path is not None and (file.digest if path.is_dir() else not path.is_file()):
            problem = "is a folder, which has no digest" if path.is_dir() else "file does not exist"
            yield Problem("service.data", f"{path}: {problem}")
    for index, record in enumerate(options["volumes"]):
        path = Path(record["host_path"])
        if path.is_absolute() and not path.exists():
            yield Problem(f"volumes.{index}.host_path", f"{path}: does not exist on this machine")


def local_problems(
    options: Options, folder: Path, may_start: Callable[[str], bool] = bool
) -> Iterator[tuple[Problem, bool]]:
    """Yield missing files, programs and runtimes; needs resolved options.

    True: the problem is an error, because the job can only run on this machine. False: other agents may have the file.
    `may_start`: whether an interpreter may be started, to check it.
    """
    service = options["service"]
    urls = (service["job_url"], *(file.url for file in split_data(service["data"])))
    completed, unknown = _with_runtimes(options)
    is_local = bool(unknown) or any(url and "://" not in url and not url.startswith("/") for url in urls)
    commands = _missing_commands(completed, folder, may_start) if service["job_url"] else ()
    if is_default("service.python", service["python"]):  # as in a local run
        completed["service"] = {**service, "python": sys.executable}
    for problem in (*unknown, *_missing_files(completed, folder), *_missing_programs(completed, may_start), *commands):
        yield problem, is_local


def _missing_programs(options: Options, may_start: Callable[[str], bool] = bool) -> Iterator[Problem]:
    images = jobs_with_image(options)  # these have interpreters of their own
    for section in sorted(set(JOBS).difference(images)) if images else ("service", "executor", *JOBS):
        if (python := options[section]["python"]) and python != sys.executable:
            from tf_scheduler.runtimes.runtimes import interpreter_problem  # slow import, rarely needed

            if may_start(python) and (problem := interpreter_problem(python, SYSTEM_PATH)):
                yield Problem(f"{section}.python", problem)


#: A command without shell syntax, which a pre command cannot create.
_COMMAND = re.compile(r"[A-Za-z][\w.+-]*(?=\s|$)")
#: Folders that agents search in any case.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Commands that start a Python program, whose imports are checked.
_PYTHON = re.compile(r"(python3?|torchrun)\s")
#: Commands that the executor provides, and launchers that packages bring.
_PROVIDED = ("python", "python3")
_LAUNCHERS = (*(name for strategy in Strategy if (name := strategy.traits.launcher)), "tensorboard")


def _missing_commands(options: Options, folder: Path, may_start: Callable[[str], bool] = bool) -> Iterator[Problem]:
    """Yield problems of commands: a missing program, program file or imported module."""
    service, problems, imports = options["service"], {}, {}
    files = _sandbox_files(options, folder)
    for section in (name for name in JOBS if options[name]["count"]):
        job = options[section]
        where, command = (section, job["command"]) if job["command"] else ("service", service["command"])
        variables = {**service["environment"], **job["environment"]}
        if job["pre_command"] or image_of(service, job["image"], job["gpus"] > 0):
            continue
        named = job["python"] or service["python"]
        own = shutil.which(named, path=SYSTEM_PATH)
        python = own or sys.executable
        path = f"{Path(python).parent}:{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
        is_checked = files is not None and "PYTHONPATH" not in variables
        is_startable = may_start(named if own else python)
        lacks = partial(missing_modules, python) if is_startable else lambda _: ()
        problem = start_problem(command, files or (), os.path.exists, lacks) if is_checked else ""
        name, is_of_job, _ = problem.partition(NOT_IN_JOB)
        if is_of_job and not service["job_url"]:
            problem = f"{name}: no file of the job; set service.job_url to the program"
        has_path = is_startable and "PATH" not in variables
        if problem := problem or (_command_problem(FOLDER.sub("", command), path) if has_path else ""):
            problems[f"{where}.command"] = problem
        elif own and is_checked and has_path and _PYTHON.match(command):
            imports[own, command] = f"{section if job['python'] else 'service'}.python"
    yield from (Problem(option, problem) for option, problem in problems.items())
    job_path = _local_path(service["job_url"] or ".", folder) or folder
    for (python, command), option in imports.items():
        yield from (Problem(option, text) for text in _missing_imports(job_path, files or (), python, command))


#: Modules with which other systems start a program.
_OTHER_SYSTEMS = {"pyspark", "tensorflowonspark", "tfmesos"}


def _missing_imports(job: Path, files: Collection[str], python: str, command: str) -> Iterator[str]:
    """Yield messages about modules that a program always imports and `python` lacks."""
    with suppress(OptionsError), program_folder(job) as home:  # files with problems are reported elsewhere
        for program, base in _programs(job, home, [command]):
            sources = program_sources(program, base, always_imported)
            names = (*files, *(path.name for path in base.iterdir()), "tf_executor")
            own = {part.partition(".")[0] for name in names for part in Path(name).parts}
            modules = {name.partition(".")[0] for source in sources.values() for name in always_imported(source)}
            is_known = not any("sys.path" in source for source in sources.values())
            if not is_known or not (lacking := missing_modules(python, sorted(modules - own - {""}))):
                continue
            packages = [PIP_NAMES[name] for name in lacking if name in PIP_NAMES]
            remedy = f"; run `{python} -m pip install {' '.join(packages)}`" if packages else ""
            if (root := import_root(program)) not in (base.absolute(), program.absolute().parent):
                module = ".".join(program.absolute().relative_to(root).with_suffix("").parts)
                remedy += f"; set service.job_url to {root}, and service.command to `python -m {module}`"
            if _OTHER_SYSTEMS.intersection(lacking):
                remedy += "; docs/how-to/migrate has the changes for programs of other systems"
            yield f"{program.name} imports {', '.join(lacking)}, which `{python}` does not have{remedy}"


def _sandbox_files(options: Options, folder: Path) -> list[str] | None:
    """Return the names of a task's files; None if they are not known before launch."""
    service, data = options["service"], split_data(options["service"]["data"])
    program = _local_path(service["job_url"], folder)
    names = [Uri(file.url, output_file=file.path).file_name for file in data]
    has_archive = any(re.search(r"\.(zip|tar(\.\w+)?|t[gbx]z2?|gz)$", name) for name in names)
    if options["volumes"] or has_archive or (program is None and service["job_url"]):
        return None
    if program is None:
        return names
    try:
        packed = packed_files(options, program, folder)[0] if program.is_dir() else ()
        names += [path.relative_to(program).as_posix() for path in packed]
        return (names if packed else [*names, *program_files(program)]) if program.exists() else None
    except OptionsError:  # reported by `_missing_files`, or by the agent
        return None


def _command_problem(command: str, path: str) -> str:
    word = _COMMAND.match(command)
    if word is None or word[0] in _PROVIDED:
        return ""
    is_python = not word[0].removeprefix("python").strip(".0123456789")
    ask = ["/bin/sh", "-c", '"$1" -c ""' if is_python else 'command -v "$1"', "sh", word[0]]  # pyenv's may not start
    if not subprocess.run(ask, env={**os.environ, "PATH": path}, capture_output=True, check=False).returncode:
        return ""
    folders = [Path(folder) for folder in path.split(":") if Path(folder).is_dir()]
    names = [*_PROVIDED, *_LAUNCHERS, *(item.name for folder in folders for item in folder.iterdir())]
    starts = [f"python {word[0]}"] if word[0].endswith(".py") else ["python"] if is_python else []
    text, hint = missing_command(word[0], names)
    hint = f"did you mean `{starts[0]}`?" if starts else hint
    return f"{text}; {hint}" if hint else text


def _invalid_user(options: Options) -> Iterator[Problem]:
    user = options["service"]["user"]
    try:
        if os.geteuid() not in (0, pwd.getpwnam(user).pw_uid):
            yield Problem("service.user", f"`{user}`: only root can run tasks as another user; omit this option")
    except KeyError:
        yield Problem("service.user", f"user `{user}` does not exist on this machine")


_NEEDS_CONTAINERS = "needs a local cluster with containers: dcos-tensorflow local up --containers"
_NO_REGISTRY = (
    "; agents of a local cluster pull from no registry: docker save {0} -o image.tar, "
    "then dcos-tensorflow local image build {0} --from image.tar"
)


def _unsupported_isolation(options: Options, containers: bool) -> Iterator[Problem]:
    """Reject images, networks and mount points that the local cluster does not have."""
    service = options["service"]
    for section in (name for name in JOBS if options[name]["count"]):
        image = image_of(service, options[section]["image"], options[section]["gpus"] > 0)
        if image and (why := unknown_image(image) if containers else _NEEDS_CONTAINERS):
            yield Problem(f"{section}.image", f"`{image}`: {why}{_NO_REGISTRY.format(image) if containers else ''}")
        for index, record in enumerate(() if image or not containers else options["volumes"]):
            path, jobs = record["container_path"], split_names(record["jobs"])
            if path.startswith("/") and not Path(path).exists() and section in (jobs or [section]):
                why = f"`{path}`: must exist on this machine, because {section} has no image; or use a relative path"
                yield Problem(f"volumes.{index}.container_path", why)
    if service["virtual_network_enabled"] and not containers:
        yield Problem("service.virtual_network_enabled", _NEEDS_CONTAINERS)


# --- program


_SCRIPT, _MODULE = re.compile(r"[\w./~-]+\.py\b"), re.compile(r"\s-m\s+([\w.]+)")
#: Prints the versions of TensorFlow and Keras as JSON; needs no import of them, which takes seconds.
_VERSIONS = """
import json
from importlib.metadata import distributions
names = {str(each.metadata["Name"]).lower().replace("-", "_"): each.version for each in distributions()}
print(json.dumps({name: version for name, version in names.items() if "keras" in name or "tensorflow" in name}))
"""
_VERSIONS_TIMEOUT = 30  # seconds


@cache
def keras_versions(python: str) -> Mapping[str, str]:
    """Return name -> version of TensorFlow and Keras packages; empty if unknown.

    User packages are excluded, because tasks have another home folder.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-c", _VERSIONS], capture_output=True, text=True, timeout=_VERSIONS_TIMEOUT, check=True
        )
        versions: Mapping[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # Python 3.7 and older have no Keras 3
        return {}
    return versions


def has_keras_3(python: str) -> bool:
    """Return whether an interpreter's Keras is Keras 3 or newer."""
    return int(keras_versions(python).get("keras", "0").partition(".")[0]) > 2


def keras_2_install(python: str) -> str:
    """Return the command that installs Keras 2; empty if Keras 2 is installed."""
    versions = keras_versions(python)
    return "" if "tf_keras" in versions else keras_2_command(versions, _pip(python))


def _pip(python: str) -> str:
    return "pip" if python == sys.executable else f"{python} -m pip"


def program_warnings(options: Options, folder: Path, may_start: Callable[[str], bool] = bool) -> Iterator[Problem]:
    """Warn of programs that may train alone, or that Keras 3 cannot train.

    Needs resolved options. These are only warnings, because the source of a program does not prove the problem.
    """
    service = options["service"]
    sections = [options[name] for name in JOBS if options[name]["count"]]
    environment = {**service["environment"]}
    for section in sections:
        environment |= section["environment"]
    commands = [section["command"] or service["command"] for section in sections]
    # Without job_url, commands may have absolute paths.
    sources = _sources(_local_path(service["job_url"] or ".", folder), commands)
    facts = scan(sources)
    yield from lone_tasks(options, facts) if sources else ()
    yield from missing_flags(facts, commands)
    has_image = any(image_of(service, section["image"], section["gpus"] > 0) for section in sections)
    if has_image or any(KERAS_2 in command for command in commands):
        return
    python = interpreter_path(next((each["python"] for each in sections if each["python"]), service["python"]))
    if not (python and may_start(python)):
        return
    if value := environment.get(KERAS_2):
        yield from _keras_2_problems(value, python)
        return
    if facts.fit and facts.strategy.traits.fit_needs_keras_2 and has_keras_3(python):
        yield Problem(facts.fit, model_fit_problem(facts.modules, facts.strategy, python))


def _sources(job: Path | None, commands: Iterable[str]) -> dict[str, str]:
    """Return the sources of the programs that commands start, as far as they are here."""
    sources: dict[str, str] = {}
    with suppress(OptionsError), program_folder(job or Path(os.devnull)) as folder:
        for program in _programs(job or folder, folder, commands):
            with suppress(OptionsError):  # an unreadable module
                sources |= program_sources(*program)
    return sources


def interpreter_path(python: str) -> str:
    """Return the path of an option `python`; empty if its runtime is unknown."""
    from tf_scheduler.runtimes.runtimes import find_runtime  # slow import, rarely needed

    with suppress(JobError):
        name = python.removeprefix(RUNTIME_PREFIX)
        return find_runtime(name).python if name != python else python or sys.executable
    return ""


def _keras_2_problems(value: str, python: str) -> Iterator[Problem]:
    path = f"service.environment.{KERAS_2}"
    versions = keras_versions(python)
    if problem := ignored_keras_2(value):
        yield Problem(path, problem)
    elif "tf_keras" not in versions and "keras" in versions:
        remedy = missing_keras_2(versions, _pip(python))
        yield Problem(path, f"needs tf_keras, which `{python}` does not have: {remedy}")


def model_fit_problem(modules: Collection[str], strategy: Strategy, python: str) -> str:
    """Return why Model.fit fails with Keras 3 and this strategy, and the remedy."""
    versions, name = keras_versions(python), strategy.traits.names[0]
    return keras_3_problem(versions, name, _pip(python), imports_keras="keras" in modules)


def _programs(job: Path, folder: Path, commands: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """Yield the Python files that commands start, with the folders of their modules."""
    for command in commands:
        scripts = [folder / name for name in _SCRIPT.findall(command)]
        named = [(path, path.parent) for path in scripts]
        for module in _MODULE.findall(command):
            path = folder.joinpath(*module.split("."))
            named += [(path.with_suffix(".py"), folder), (path / "__main__.py", folder)]
        if job.is_file() and job.parent == folder:
            named = [(job, folder) for path, _ in named if path.name == job.name]
        yield from (each for each in named if each[0].is_file())
