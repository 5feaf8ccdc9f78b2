"""Adapt converted options to a local run: program, small tasks, no images. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tf_executor.contract.advice import KERAS_2
from tf_executor.contract.strategies import strategies_with
from tf_scheduler.model.spec import CleanupPolicy
from tf_scheduler.options.schema.jobs import JOBS

from .program import FOLDER, SIZES, Libraries, Options, ProgramFacts, missing_flags, needed_libraries, scan
from .tables import Note, command_line, display_value

#: Options that need a prepared cluster.
_OF_CLUSTERS = (
    *("checkpoint_dir", "shared_filesystem", "hdfs", "role", "region", "user", "principal"),
    *("service_account", "service_account_secret", "virtual_network_enabled", "virtual_network_name"),
)
_IMAGES = ("tf_image", "gpu_tf_image", "image")
_SCRIPT = re.compile(r"(?<![\w./~-])[\w./~-]+\.py\b")
#: Arguments of programs and of torchrun that need GPUs, MPI or etcd, and absolute paths.
_BACKEND = re.compile(r"(--(?:dist[-_])?backend(?:=|\s+))(?:nccl|mpi)\b")
_ENDPOINT = re.compile(r"\s--rdzv[-_]endpoint(?:=|\s+)\S+")
_ETCD, _RDZV = re.compile(r"--rdzv[-_]backend(?:=|\s+)etcd"), re.compile(r"\s--rdzv[-_]backend(?:=|\s+)\S+")
_PATH = re.compile(r"(?<![\w./:~)}-])/[\w.-]+(?:/[\w.-]+)*")
_PYTHON = re.compile(r"(?<!\S)(?:\S*/)?python[\d.]*(?=\s)")


def localize(
    options: Options,
    programs: Collection[str],
    url: str,
    fits: Callable[[Options], bool],
    read: Callable[[Sequence[str]], Mapping[str, str]],
    exists: Callable[[str], bool],
) -> tuple[list[Note], Libraries]:
    """Change converted options in place; return notes, and the needed libraries.

    Args:
        options: The options.
        programs: Python files of the program, relative to its folder; empty: unknown.
        url: Path of the program; empty: unknown.
        fits: Whether this machine can run the job.
        read: Returns file name -> source of these programs and of their modules.
        exists: Whether this machine has a path.
    """
    images, notes = list(_take_images(options)), list(_omit(options))
    notes += [*_drop_gpus(options), *_use_program(options, programs, url), *_change_arguments(options, exists)]
    commands = [options.get(section, {}).get("command") or "" for section in ("service", *JOBS)]
    sources = read([name for name in programs if any(name in _SCRIPT.findall(command) for command in commands)])
    facts = scan(sources)
    notes += [*_use_strategy(options, facts), *_shrink(options, fits)]
    notes += [Note(item.path, item.message) for item in missing_flags(facts, commands)]
    is_torch = options["service"].get("strategy") in strategies_with(lambda traits: traits.library == "torch")
    needed = needed_libraries(images, "\n".join(sources.values()), is_torch=is_torch)
    return [*notes, *_use_legacy_keras(options, needed, facts)], needed


def _use_strategy(options: Options, facts: ProgramFacts) -> Iterator[Note]:
    service, strategy = options["service"], facts.strategy.value
    if not facts.evidence:
        return
    if not service.get("strategy"):
        service["strategy"] = strategy
        yield Note("service.strategy", f"{strategy}, because the program uses {facts.evidence}")
    elif service["strategy"] != strategy:
        why = f"{service['strategy']}, but the program uses {facts.evidence} ({strategy})"
        yield Note("service.strategy", f"{why}; choose another with --strategy")


def _change_arguments(options: Options, exists: Callable[[str], bool]) -> Iterator[Note]:
    """Replace nccl and mpi by gloo; omit rendezvous options; note missing paths."""
    for section in ("service", *JOBS):
        if not (command := options.get(section, {}).get("command")):
            continue
        changed = _BACKEND.sub(r"\1gloo", command)
        if changed != command:
            yield Note(f"{section}.command", "gloo is the backend: nccl needs GPUs, and PyTorch from PyPI has no mpi")
        without = _ENDPOINT.sub("", changed)
        if _ETCD.search(without):
            without = _RDZV.sub("", without)
        if without != changed:
            why = "tasks find each other without an endpoint or etcd"
            yield Note(f"{section}.command", f"rendezvous omitted: {why}: `{without}`")
        options[section]["command"] = without
        for path in dict.fromkeys(_PATH.findall(without)):
            if not (exists(path) or path.endswith(".py")):
                yield Note(f"{section}.command", f"{path}: does not exist on this machine; the program may need it")


def missing_programs(options: Options, exists: Callable[[str], bool]) -> list[str]:
    """Return the programs that only the images have; `command` for a missing command."""
    service = options.get("service", {})
    # Other files are in the program's folder.
    prefix = "/" if service.get("job_url") and "://" not in service["job_url"] else ""
    sections = [options[section] for section in JOBS if options.get(section, {}).get("count", 0)]
    commands = [section.get("command") or service.get("command", "") for section in sections]
    scripts = [file for command in commands for file in _SCRIPT.findall(command) if file.startswith(prefix)]
    files = [file for file in scripts if not exists(file)]
    return list(dict.fromkeys([*([] if prefix or all(commands) else ["command"]), *files]))


def _take_images(options: Options) -> Iterator[str]:
    for section in ("service", *JOBS):
        for name in _IMAGES:
            image = options.get(section, {}).pop(name, None)
            if image:
                yield str(image)


def _omit(options: Options) -> Iterator[Note]:
    service = options.setdefault("service", {})
    omitted: Options = {name: options.pop(name) for name in ("volumes", "secrets") if name in options}
    omitted |= {f"service.{name}": service.pop(name) for name in _OF_CLUSTERS if name in service}
    for section in JOBS:
        if "placement_constraint" in options.get(section, {}):
            omitted[f"{section}.placement_constraint"] = options[section].pop("placement_constraint")
    for path, value in omitted.items():
        yield Note(path, f"{display_value(value)} omitted: a local run has its own, or none")
    if options.get("finish", {}).get("clean_up") == CleanupPolicy.NONE.value:  # the run would wait for its servers
        yield Note("finish.clean_up", f"{options['finish'].pop('clean_up')} omitted: a local run stops its tasks")


def _drop_gpus(options: Options) -> Iterator[Note]:
    moved = options.pop("gpu_worker", {})
    if count := moved.get("count", 0):
        worker = options.setdefault("worker", {})
        options["worker"] = {**moved, **worker, "count": worker.get("count", 0) + count}
    for section in JOBS:
        if gpus := options.get(section, {}).pop("gpus", 0):
            yield Note(f"{section}.gpus", f"{gpus} omitted: tasks use CPUs only; set it again if this machine has GPUs")


def _shrink(options: Options, fits: Callable[[Options], bool]) -> Iterator[Note]:
    sections = [section for section in JOBS if options.get(section, {}).get("count", 0)]
    old = {section: dict(options[section]) for section in sections}
    largest = max((before.get("mem", 0) for before in old.values()), default=0)
    amounts = range(largest, SIZES[0][1], -max(256, largest // 16))
    for cpus, mem in [*((SIZES[0][0], mem) for mem in amounts), *SIZES]:
        for section in sections:
            before = old[section]
            sizes = {"cpus": min(before.get("cpus", cpus), cpus), "mem": min(before.get("mem", mem), mem), "disk": 0}
            options[section].update(sizes)
        if fits(options):
            break
    worker = options.get("worker", {})
    while worker.get("count", 0) > 1 and not fits(options):
        worker["count"] -= 1
    for section, before in old.items():
        names = [name for name in ("count", "cpus", "mem", "disk") if name in before]
        changes = [f"{name} {before[name]:g} to {options[section][name]:g}" for name in names]
        changes = [text for text in changes if text.split()[1] != text.split()[3]]
        if changes:
            yield Note(section, f"reduced to fit this machine: {', '.join(changes)}")


def _use_program(options: Options, programs: Collection[str], url: str) -> Iterator[Note]:
    service = options["service"]
    if url:
        if "job_url" in service:
            yield Note("service.job_url", f"{service['job_url']} replaced by {url}")
        service["job_url"] = url
    for section in ("service", *JOBS):
        if command := options.get(section, {}).get("command"):
            options[section]["command"] = changed = _local_command(command, programs)
            if changed != command:
                yield Note(f"{section}.command", f"`{command}` became `{changed}`")
    has_own = all(options[section].get("command") for section in JOBS if options.get(section, {}).get("count", 0))
    if len(programs) == 1 and not has_own:
        service.setdefault("command", f"python {command_line([*programs])}")


def _local_command(command: str, programs: Collection[str]) -> str:
    """Replace paths of the image: the interpreter, the working directory, the program."""
    local = _PYTHON.sub("python", FOLDER.sub("", command))
    scripts = list(dict.fromkeys(_SCRIPT.findall(local)))
    same = {script: program for script in scripts if (program := _own(script, programs))}
    if not same and len(programs) == len(scripts) == 1:
        same = {scripts[0]: next(iter(programs))}
    for script, program in same.items():
        local = local.replace(script, command_line([program]))
    return local


def _own(script: str, programs: Collection[str]) -> str:
    """Return the longest end of the path `script` that is a program; empty: none."""
    parts = posixpath.normpath(script).split("/")
    return next((path for each in range(len(parts)) if (path := "/".join(parts[each:])) in programs), "")


def _use_legacy_keras(options: Options, needed: Libraries, facts: ProgramFacts) -> Iterator[Note]:
    """Select Keras 2 for Model.fit with a strategy that Keras 3 does not support."""
    strategies = strategies_with(lambda traits: traits.fit_needs_keras_2)
    if options["service"].get("strategy") in strategies and needed.has_keras_3 and facts.fit:
        options["service"].setdefault("environment", {})[KERAS_2] = "1"
        yield Note("service.environment", f"{KERAS_2}=1 added: Model.fit of Keras 3 has no such strategy")
