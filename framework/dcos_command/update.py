"""`update ...`, `uninstall`: change options after a preview; remove the service."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path, app_id, installation_of
from .command import (
    SERVICE,
    Command,
    CommandArgument,
    CommandOption,
    Params,
    merge_options,
    read_document,
    relative_job_url,
    show_json,
    show_message,
)
from .errors import CommandError, NothingToDoError, RefusedError, UnreachableError, UsageError
from .output import Line, Renderable, Screen, Table, Word
from .plans import PHASE, STEP, fetch_plan, plan_command, plan_tree, restart_loss, rollout_plan
from .service import changed_options, value_text

#: Placeholder of a secret in stored options.
MASK = "********"
#: Number of checks, and seconds between them, whether another update replaced this one.
_CHECKS, _CHECK_SECONDS = 2, 0.5

Options = Mapping[str, Any]


def user_options(service: ServiceClient) -> Options:
    """Options given to DC/OS for the service; all others have their defaults."""
    options: Options = installation_of(service).describe().get("userProvidedOptions") or {}
    return options


def verify_stored(service: ServiceClient, options: Options, params: Params, *, whole: bool) -> None:
    """Check that DC/OS still has these options (`whole`: only these) after an update.

    Cosmos may lose one of two concurrent updates (ServiceUpdateHandler). Raise CommandError if it is this one.
    """
    for _ in range(_CHECKS):
        time.sleep(_CHECK_SECONDS)
        try:
            now = user_options(service)
        except UnreachableError:
            return  # the update was accepted; more is not known
        if now != (options if whole else merge_options(now, options)):
            raise CommandError(
                "update lost: a concurrent update has changed the options; "
                f"see them with `{params['program']} describe` and update again"
            )


def preview(service: ServiceClient, options: Options, version: str | None) -> Any:
    """The scheduler's preview of an update to exactly these options.

    Raise UnreachableError if the scheduler does not answer, CommandError with the problems of the options.
    """
    path = api_path("tf", "update", "preview")
    try:
        body = installation_of(service).preview(options, version)
    except RefusedError:
        # The scheduler names options and allowed values; Cosmos names rules of the JSON Schema.
        with suppress(UnreachableError):
            service.post(path, {"options": options})
        raise
    return service.post(path, body)


def describe_changes(
    service: ServiceClient, options: Options, version: str | None, *, anyway: bool = False
) -> Renderable:
    """Describe the effects of an update to exactly these options.

    `anyway`: allow no effect. Raise CommandError with problems or reasons, NothingToDoError if nothing changes.
    """
    try:
        answer = preview(service, options, version)
    except UnreachableError:
        changes = ", ".join(changed_options(options, user_options(service))) or "none"
        return (f"The scheduler does not answer, so the effects are unknown. Options that change: {changes}.",)
    if answer["refused"]:
        lines = [f"{item['option']}: {item['reason']}" for item in answer["refused"]]
        raise CommandError("update refused, nothing was changed:\n" + "\n".join(lines))
    refused = rejection_reasons(service)
    if not (answer["changed"] or version or refused or anyway):
        raise NothingToDoError("nothing to do: the service has these options already")
    replaced = "The scheduler refused the options that it was started with; this update replaces them."
    return (*(f"{replaced} {why}" for why in refused), *_change_blocks(answer))


def rejection_reasons(service: ServiceClient) -> list[str]:
    """Reasons why the scheduler rejected its latest options; usually empty."""
    return list(service.get(api_path("configurations", "target")).get("rejected") or ())


def _change_blocks(answer: Mapping[str, Any]) -> Iterator[Any]:
    rows = [(item["option"], value_text(item["old"]), value_text(item["new"])) for item in answer["changed"]]
    yield Table(("option", "now", "then"), rows, empty="No option changes.")
    for item in answer["restarted"]:
        yield Line((item["task"], " ", Word("restarts", "wait"), f": {item['reason']}{restart_loss(item)}"))
    for word, meaning in (("added", "good"), ("removed", "bad")):
        if tasks := answer[word]:
            yield Line((", ".join(tasks), " ", Word(f"{'is' if len(tasks) == 1 else 'are'} {word}", meaning)))
    if not (answer["restarted"] or answer["added"] or answer["removed"]):
        yield Line(("No task restarts.",))


def select_earlier(service: ServiceClient, params: Params) -> tuple[str, Options]:
    """Select the configuration to roll back to: the one with the id, or the previous.

    If the newest options are refused, the previous ones are in force. Secrets are not stored with configurations:
    the present values are used. Raise CommandError if a secret has none.
    """
    ids = service.get(api_path("configurations"))
    earlier = ids if not params.get("id") and rejection_reasons(service) else ids[1:]
    if not params.get("id") and not earlier:
        raise CommandError("no earlier configuration to roll back to")
    selected = params.get("id") or earlier[0]
    configuration = service.get(api_path("configurations", selected))
    if "options" not in configuration:
        raise CommandError(f"configuration `{selected}`: its options are not stored")
    options = restore_secrets(configuration["options"], user_options(service))
    if hidden := list(_hidden(options, "")):
        program = params["program"]
        raise CommandError(
            f"configuration `{selected}`: its secrets are not stored: {', '.join(hidden)}; add them to the options "
            f"of `{program} config show {selected}`, then run: {program} update start --replace --options FILE"
        )
    return selected, options


def restore_secrets(options: Any, present: Any) -> Any:
    """The options with each masked secret replaced by its present value."""
    if isinstance(options, Mapping):
        now = present if isinstance(present, Mapping) else {}
        return {name: restore_secrets(value, now.get(name)) for name, value in options.items()}
    if isinstance(options, list):
        return [_restore_entry(entry, present) for entry in options]
    if isinstance(options, str) and MASK in options and isinstance(present, str):
        before, _, after = options.partition(MASK)
        return present if present.startswith(before) and present.endswith(after) else options
    return options


def _restore_entry(entry: Any, present: Any) -> Any:
    """Match an entry of a list, such as an environment variable, by its name."""
    if not isinstance(entry, Mapping):
        return entry
    named = (item for item in present or () if isinstance(item, Mapping))
    same = [item for item in named if item.get("name") == entry.get("name")]
    return restore_secrets(entry, same[0]) if len(same) == 1 else entry


def _hidden(options: Any, path: str) -> Iterator[str]:
    if isinstance(options, Mapping):
        for name, value in options.items():
            yield from _hidden(value, f"{path}.{name}" if path else name)
    elif isinstance(options, list):
        for index, value in enumerate(options):
            yield from _hidden(value, f"{path}[{index}]")
    elif isinstance(options, str) and MASK in options:
        yield path


def check_unstarted(service: ServiceClient, present: Options, params: Params) -> Renderable:
    """Warn of unstarted options in DC/OS that the update would overwrite.

    Raise CommandError with them, unless `force` is given.
    """
    unstarted = _unstarted_options(service, present)
    rows = [(item["option"], value_text(item["new"]), value_text(item["old"])) for item in unstarted]
    if rows and not params.get("force"):
        lines = "\n".join(f"{option}: DC/OS has {stored}, scheduler {running}" for option, stored, running in rows)
        raise CommandError(
            f"DC/OS has options for this service that its scheduler was not started with:\n{lines}\n"
            "This command changed nothing: another update is running, or the Marathon app was edited. Check "
            f"`{params['program']} update status`, or overwrite these options with --force"
        )
    heading = "This update overwrites options in DC/OS that the scheduler was not started with:"
    return (heading, Table(("option", "DC/OS", "scheduler"), rows)) if rows else ()


def _unstarted_options(service: ServiceClient, present: Options) -> Sequence[Mapping[str, Any]]:
    """Options in DC/OS not started yet; empty if refused or the scheduler is down."""
    try:
        if rejection_reasons(service):
            return ()
        changed: Sequence[Mapping[str, Any]] = preview(service, present, None)["changed"]
    except (RefusedError, UnreachableError):
        return ()
    return changed


def check_unchanged(service: ServiceClient, present: Options, params: Params) -> None:
    """Raise CommandError if the service has changed since the user saw `present`."""
    if changes := changed_options(user_options(service), present):
        raise CommandError(
            f"another update meanwhile changed {', '.join(changes)}; this command changed nothing. "
            f"See the present options with `{params['program']} describe` and repeat the command"
        )


def _start(service: ServiceClient, params: Params) -> Any:
    """Send the previewed options; without `replace` only new ones, to keep others."""
    options, replace_all = params["wanted"], bool(params.get("replace"))
    if options is None:
        return service.post(api_path("tf", "scale"), {"worker": int(params["count"])})
    if replace_all:
        check_unchanged(service, params["present"], params)
    answer = installation_of(service).update(options, params.get("package_version"), replace_all=replace_all)
    verify_stored(service, options, params, whole=replace_all)
    return {name: value for name, value in answer.items() if name != "package"}  # without the package's files


def _preview_start(service: ServiceClient, params: Params) -> tuple[Renderable, Params]:
    replaces, folder = bool(params.get("replace")), Path(params.get("options") or "").parent
    options = installation_of(service).localize(_requested_options(params), folder, replace_all=replaces)
    present = user_options(service)
    lost = check_unstarted(service, present, params) if replaces else ()
    wanted = options if replaces else merge_options(present, options)
    try:
        effects = describe_changes(service, wanted, params.get("package_version"), anyway=bool(lost))
    except NothingToDoError:
        requested = preview(service, wanted, None).get("requested") if params.get("job") == "worker" else None
        if requested is None:
            raise
        return (f"The request for {requested} workers ends; worker.count stays {params['count']}.",), {"wanted": None}
    return (*_relative_path_notice(options), *lost, *effects), {"present": present, "wanted": options}


def _relative_path_notice(options: Options) -> Renderable:
    if url := relative_job_url(options):
        yield f"notice: service.job_url: {url}: agents need an address, such as https://...; only local runs use a path"


def _requested_options(params: Params) -> Options:
    if "job" in params:
        if not params["count"].isdecimal():
            raise UsageError(f"COUNT must be a whole number from 0, not `{params['count']}`")
        return {"parameter_server" if params["job"] == "ps" else params["job"]: {"count": int(params["count"])}}
    if not params.get("options") and not params.get("package_version"):
        raise UsageError("nothing to update: pass --options FILE or --package-version VERSION")
    return read_document(params["options"], "--options ") if params.get("options") else {}


def _preview_rollback(service: ServiceClient, params: Params) -> tuple[Renderable, Params]:
    present = user_options(service)  # read first, so that later changes are detected
    lost = check_unstarted(service, present, params)
    selected, options = select_earlier(service, params)
    effects = describe_changes(service, options, None, anyway=bool(lost))
    more = {"present": present, "wanted": options, "replace": True}
    return (*lost, f"Roll back to configuration {selected}:", *effects), more


def _show_start(answer: Any, params: Params) -> Renderable:
    if params["wanted"] is None:
        return (answer["message"],)
    return (f"The update has started. Follow it with: {params['program']} update status",)


def _status(service: ServiceClient, _params: Params) -> Any:
    name = rollout_plan(service)
    return {"plan": name, **fetch_plan(service, name)}


def _show_status(answer: Mapping[str, Any], _params: Params) -> Renderable:
    return plan_tree(answer["plan"], answer)


def _versions(service: ServiceClient, _params: Params) -> Any:
    answer = installation_of(service).describe()
    more = {"upgrades": answer.get("upgradesTo", []), "downgrades": answer.get("downgradesTo", [])}
    return {"current": answer["package"]["version"], **more}


# --- uninstall

#: Last step of the plan that removes a service; its message lists what is left behind.
LAST_STEP = "forget-state"
_POLL_SECONDS = 0.5
#: Default timeout in seconds. The scheduler's own timeouts are shorter (docs/reference/plans.md), but it has to run.
TIMEOUT = 900


def _uninstall(service: ServiceClient, params: Params) -> Any:
    if service.keep is not None:
        service.keep(service)
    answer = installation_of(service).uninstall()
    if params.get("no_wait"):
        return answer
    message = wait_for_end(service, params["timeout"])
    return {**answer, "results": [{**result, "message": message} for result in answer["results"]]}


def _show_uninstall(answer: Mapping[str, Any], params: Params) -> Renderable:
    for result in answer["results"]:
        if "message" in result:
            yield uninstalled_message(result["appId"], result["message"])
        else:
            yield f"{result['appId']} is being uninstalled. Follow it with: {params['program']} plan status deploy"


def uninstalled_message(app_id: str, message: str) -> str:
    """Last line of a successful `uninstall`; `message`: what is left behind, or empty."""
    return f"{app_id} is uninstalled{f': {message}' if message else ''}"


def wait_for_end(service: ServiceClient, limit: float = TIMEOUT) -> str:
    """Wait until the service is removed; return what is left behind, or "".

    Failures and restarts of the scheduler are reported on standard error meanwhile. Raise CommandError if the service
    still exists after `limit` seconds.
    """
    name, screen = app_id(service), Screen(sys.stderr)
    screen.show((f"{name} is being uninstalled. Ctrl-C stops waiting; the uninstall continues.",))
    last_step, failure, waiting, deadline = LastStep(), "", "", time.monotonic() + limit
    installation = installation_of(service)
    while (last := installation.last_failure(finished=last_step.done)) is not None:
        newer = last_uninstall_step(_removal_plan(service))
        # A restarted scheduler no longer knows what its predecessor left behind.
        kept = last_step if last_step.left_behind and not newer.left_behind else newer
        last_step = replace(kept, message=kept.message or last_step.message, done=newer.done)
        if newer.waiting not in ("", waiting):
            waiting = newer.waiting
            screen.show((waiting,))
        if last not in ("", failure):
            failure = last
            screen.show((f"the scheduler exited and is being restarted: {failure}",))
        if time.monotonic() > deadline:
            reason = last_step.message or failure or waiting or "the scheduler reported no reason"
            raise CommandError(
                f"{name} still exists after {limit:g} s: {reason}. "
                "The uninstall continues; repeat this command to wait longer. If the scheduler cannot run, remove the "
                f"app with `dcos marathon app remove {name}`: Mesos then stops the tasks after the failover timeout"
            )
        time.sleep(_POLL_SECONDS)
    return last_step.message


# --- cancel


def _preview_cancel(service: ServiceClient, _params: Params) -> tuple[Renderable, Params]:
    """What is stopped. Raise NothingToDoError if the job has already ended."""
    try:
        overview = service.get(api_path("tf", "overview"))
    except UnreachableError:
        if service.run is None:
            raise
        return (), {}  # the run is ending
    if overview["verdict"]:
        raise NothingToDoError(_already_ended(overview))
    live = ", ".join(task["name"] for task in overview["tasks"] if task.get("live"))
    return (f"{overview['service']} {overview.get('activity') or 'runs'}; stops {live or 'before its first task'}",), {}


def _already_ended(answer: Mapping[str, Any]) -> str:
    return f"{answer['service']} has already ended: {answer['verdict']}: {answer['reason']}"


def _cancel(service: ServiceClient, params: Params) -> Any:
    if service.run is None:
        return _uninstall(service, params)
    if service.run.result() is None:
        service.run.cancel()
    deadline = time.monotonic() + params["timeout"]
    while (result := service.run.result()) is None:
        if time.monotonic() > deadline:
            raise CommandError(f"{service.name} still runs after {params['timeout']} s; it is being stopped")
        time.sleep(_POLL_SECONDS)
    return {"service": service.name, **result}


def _show_cancel(answer: Mapping[str, Any], params: Params) -> Renderable:
    if "results" in answer:
        return _show_uninstall(answer, params)
    return (f"{answer['service']}: {answer['verdict']}: {answer['reason']}",)


def _removal_plan(service: ServiceClient) -> Mapping[str, Any]:
    try:
        plan: Mapping[str, Any] = fetch_plan(service, "deploy")
    except CommandError:
        return {"phases": []}  # the scheduler is starting or exiting
    return plan


@dataclass(frozen=True)
class LastStep:
    """Last step of an uninstall plan."""

    #: About what is left behind; empty while that is unknown.
    message: str = ""
    done: bool = False
    left_behind: bool = False
    #: What the removal of the framework waits for.
    waiting: str = ""


def last_uninstall_step(plan: Mapping[str, Any]) -> LastStep:
    """Return the last step of an uninstall plan; of any other plan, an empty one."""
    steps = (step for phase in plan["phases"] for step in phase["steps"])
    last = next((step for step in steps if step["name"] == LAST_STEP), None)
    if last is None:
        return LastStep()
    done, left_behind = last["status"] == "COMPLETE", bool(last.get("left_behind"))
    waiting = str(last["message"]) if last.get("waits_for") else ""
    return LastStep(str(last["message"]) if done or left_behind else "", done, left_behind, waiting)


def _control(words: str, help_text: str, verb: str, *arguments: CommandArgument) -> Command:
    return Command(words, help_text, plan_command(verb), show_message, arguments)


_TIMEOUT = CommandOption("timeout", "Maximum time to wait.", "number", metavar="SECONDS", default=TIMEOUT, minimum=0)
_UPDATE_CODES = "0 started, or nothing to change; 1 refused, 2 not confirmed"
_FORCE = CommandOption("force", "Overwrite options in DC/OS that are not in effect yet.", "flag")
_ID = CommandArgument("id", "config", required=False, help="Id of a configuration, see `config list`.", example="ID")
COMMANDS = (
    Command(
        "update start",
        "Change options and restart the affected tasks.",
        _start,
        _show_start,
        (),
        (
            CommandOption("options", "JSON file of options, or `-` for standard input.", metavar="FILE"),
            CommandOption("replace", "Replace all options instead of merging.", "flag"),
            CommandOption("package-version", "Change to this version of the package.", metavar="VERSION"),
            _FORCE,
        ),
        preview=_preview_start,
        confirm="Update the service?",
        exit_codes=_UPDATE_CODES,
        examples=("--options options.json", "--options options.json --replace --yes"),
    ),
    Command(
        "update rollback",
        "Restore the options of an earlier configuration.",
        _start,
        _show_start,
        (_ID,),
        (_FORCE,),
        preview=_preview_rollback,
        confirm="Update the service?",
        exit_codes=_UPDATE_CODES,
    ),
    Command(
        "scale",
        "Change the number of tasks of a job.",
        _start,
        _show_start,
        (CommandArgument("job", example="worker"), CommandArgument("count", help="Number of tasks.", example="6")),
        preview=_preview_start,
        confirm="Update the service?",
        exit_codes=_UPDATE_CODES,
    ),
    Command("update status", "Show the progress of the update.", _status, _show_status, aliases=("update show",)),
    _control("update pause", "Stop starting new steps; running steps continue.", "interrupt", PHASE),
    _control("update resume", "Resume a paused update.", "continue", PHASE),
    _control("update force-restart", "Restart the update, a phase or a step.", "restart", PHASE, STEP),
    _control("update force-complete", "Mark the update, a phase or a step as complete.", "forceComplete", PHASE, STEP),
    Command("update package-versions", "Show the package version, upgrades and downgrades.", _versions, show_json),
    Command(
        "cancel",
        "Stop the job as Ctrl-C does, and remove the service.",
        _cancel,
        _show_cancel,
        (SERVICE,),
        (_TIMEOUT,),
        preview=_preview_cancel,
        confirm="Stop the job?",
        exit_codes="0 stopped, or ended before; 1 still running after --timeout, 2 not confirmed",
        show_ended=lambda answer, _: (_already_ended(answer),),
        examples=("", "mnist --yes"),
    ),
    Command(
        "uninstall",
        "Remove the service with its tasks and its state.",
        _uninstall,
        _show_uninstall,
        (),
        (
            CommandOption("no-wait", "Do not wait until the service is removed.", "flag"),
            _TIMEOUT,
        ),
        confirm="Remove the service, its tasks and its stored state?",
        exit_codes="0 removed, 1 still there after --timeout, 2 not confirmed",
        examples=("", "--yes --no-wait"),
    ),
)
