"""Make options for a program without an options file; choose a suitable Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tf_executor.contract.advice import KERAS_2
from tf_executor.contract.strategies import Strategy
from tf_scheduler.cli.common.options_file import has_keras_3, interpreter_path, keras_2_install, model_fit_problem
from tf_scheduler.cli.common.programs import has_module, import_root, missing_modules, program_sources
from tf_scheduler.convert.program import (
    PACKAGES,
    PIP_NAMES,
    Libraries,
    NewJob,
    ProgramFacts,
    job_name,
    needed_libraries,
    scan,
    summary,
)
from tf_scheduler.errors import Problem
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.service import RUNTIME_PREFIX
from tf_scheduler.runtimes.catalogue import creation_arguments, torch_creation_arguments
from tf_scheduler.runtimes.runtimes import list_runtimes

from .fitting import fits_machine

#: Name of the runtime with Horovod, and arguments of `runtime create`.
_HOROVOD = (
    "horovod",
    'horovod --tensorflow 2.13 --package "setuptools<70" --package wheel --package packaging --build horovod==0.28.1',
)
#: Modules for which a runtime may be needed.
_LIBRARIES = {"tensorflow", "tf_keras", "keras", "torch", "horovod"}


@dataclass(frozen=True, slots=True)
class NewOptions:
    """Options for a program, with a summary and notices for the user."""

    document: dict[str, Any]
    #: Tasks, and the variable of Keras 2 with the reason.
    summary: str
    notices: tuple[Problem, ...]
    #: Name in the program from which a strategy can be guessed; empty: there is none.
    evidence: str = ""


def new_options(
    program: Path,
    folder: Path,
    strategy: Strategy | None = None,
    counts: tuple[int | None, int | None] = (None, None),
    arguments: Sequence[str] = (),
    *,
    pack: bool = False,
    fit: bool = True,
) -> NewOptions:
    """Return options for a program, in a file in `folder`. Raises OptionsError.

    Args:
        program: The program; it may not exist yet.
        folder: Folder of the options file.
        strategy: Strategy; `None`: as guessed from the source.
        counts: Number of workers and of parameter servers; `None`: usual for the strategy.
        arguments: Arguments of the program; a task replaces `$NAME`.
        pack: Use the folder of the program, even if the program uses no module in it.
        fit: Choose amounts and a runtime for this machine.
    """
    root = import_root(program) if program.exists() else program.absolute().parent
    is_module = root != program.absolute().parent
    sources = program_sources(program, root) if program.exists() else {}
    facts, notices = scan(sources), [] if sources else [Problem(str(program), "does not exist yet")]
    default = Strategy.BETWEEN_GRAPH if (counts[1] or facts.is_job) and not facts.evidence else facts.strategy
    chosen = strategy or default
    if facts.evidence and facts.strategy is not chosen:
        notices.append(Problem(str(program), f"uses {facts.evidence} ({facts.strategy.value}), not {chosen.value}"))
    python, step, needed = "", "", None
    if fit and facts.modules & _LIBRARIES:
        needed = needed_libraries((), "\n".join(sources.values()), is_torch=chosen.traits.library == "torch")
        python, step = suitable_python(needed)
    if needed and step:
        lacking = [name for name in sorted(needed.modules) if name in PIP_NAMES and find_spec(name) is None]
        problem = f"the program needs other libraries; create them: {step}"
        if lacking and not (needed.tensorflow or needed.torch_version or needed.horovod):
            what = f"{program.name} imports {', '.join(lacking)}, which `{sys.executable}` does not have"
            problem = f"{what}; run `pip install {' '.join(PIP_NAMES[name] for name in lacking)}`, or `{step}`"
        notices.append(Problem("service.python", problem))
    keras_2, more = _choose_keras(facts, chosen, interpreter_path(python), needed if step else None)
    notices += more
    path = root if pack or is_module or len(sources) > 1 else program
    url = os.path.relpath(path.absolute(), folder.absolute())
    inner = program.absolute().relative_to(root)
    module = ".".join(inner.with_suffix("").parts).removesuffix(".__main__")
    environment = {KERAS_2: "1"} if keras_2 else {}
    if is_module and any(name and has_module(program.absolute().parent, name) for name in facts.modules):
        environment["PYTHONPATH"] = str(inner.parent)  # `-m` does not search the folder of the program
    if facts.is_job and arguments:
        notices.append(Problem("service.job_context", "has the arguments of main(server, log_dir, context)"))
    start = ("-m", module) if is_module else (program.name,)
    job = NewJob(
        *(job_name(program.absolute()), chosen, url, start, *counts, arguments, python, environment),
        data_service=facts.data_service,
        job_name=module if facts.is_job else "",
    )
    document = job.options(fits_machine if fit else lambda _: True)
    resolve(document)
    reason = f"; {KERAS_2}=1, because {facts.fit.rpartition(':')[0]} uses Model.fit" if keras_2 else ""
    return NewOptions(document, summary(document) + reason, tuple(notices), facts.evidence)


def _choose_keras(
    facts: ProgramFacts, strategy: Strategy, python: str, planned: Libraries | None
) -> tuple[bool, list[Problem]]:
    """Return whether to select Keras 2, and what the user has to do for it.

    `planned`: libraries of the runtime that the user has to create, which includes tf_keras; None: no such runtime.
    """
    if not facts.fit or not strategy.traits.fit_needs_keras_2:
        return False, []
    if planned is not None:
        return planned.has_keras_3 and "keras" not in facts.modules, []
    if not has_keras_3(python):
        return False, []
    if "keras" in facts.modules:  # which is Keras 3 in any case
        return False, [Problem(facts.fit, model_fit_problem(facts.modules, strategy, python))]
    command = keras_2_install(python)
    return True, [Problem(KERAS_2, f"needs tf_keras: {command}")] if command else []


def suitable_python(needed: Libraries) -> tuple[str, str]:
    """Return the option `python` for a local run, and the command to create a runtime.

    Both are empty if this Python suits; the command is empty if the runtime exists.
    """
    modules = ["torch"] if needed.torch else ["tensorflow", *(["horovod"] if needed.horovod else [])]
    modules += [module for module in needed.modules if module in PACKAGES]
    if needed.tensorflow is None and not needed.torch_version and all(map(find_spec, modules)):
        return "", ""
    own = sys.version_info.minor
    name, arguments = creation_arguments(needed.tensorflow, own)
    if needed.torch:
        name, arguments = torch_creation_arguments(needed.torch_version, own)
    elif needed.horovod:
        name, arguments = _HOROVOD
    for runtime in list_runtimes():
        series = tuple(map(int, runtime.tensorflow.split(".")[:2])) if runtime.tensorflow else ()
        is_suitable = series[:1] == (needed.tensorflow or (2,))[:1] and series <= (needed.tensorflow or series)
        is_torch = needed.torch and (runtime.name == name or not needed.torch_version)
        if (is_torch or (is_suitable and not needed.torch)) and not missing_modules(runtime.python, modules):
            return RUNTIME_PREFIX + runtime.name, ""
    if needed.packages:
        packages = "".join(f" --package {package}" for package in needed.packages)
        longer = "-".join([name, *needed.packages])[:60].strip("-")
        name, arguments = longer, longer + arguments.removeprefix(name) + packages
    return RUNTIME_PREFIX + name, f"dcos-tensorflow runtime create {arguments}"
