"""Commands `update ...`, `uninstall` and `cancel`: change options, end a service."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import click

from tf_executor.contract.reports import describe_restart_loss

from .client import RunProcess, ServiceClient, api_path, app_id, installation_of, run_of
from .command import (
    CommandCall,
    IntRange,
    argument,
    command,
    group,
    service_argument,
    show_json,
    show_message,
    yes_option,
)
from .documents import merge_options, read_document, relative_job_url
from .errors import CommandError, NothingToDoError, NotStartedError, RefusedError, UnreachableError, UsageError
from .output import Line, Renderable, Screen, Table, Word
from .plans import control_plan, fetch_plan, phase_argument, plan_tree, rollout_plan, step_argument
from .service import CONFIGURATION, changed_options, value_text

#: Placeholder of a secret in stored options.
MASK = "********"
#: Number of checks, and seconds between them, whether another update replaced this one.
_CHECKS, _CHECK_SECONDS = 2, 0.5

Options = Mapping[str, Any]


def user_options(service: ServiceClient) -> Options:
    """Return the options that the user set for the service; others have defaults."""
    options: Options = installation_of(service).describe().get("userProvidedOptions") or {}
    return options


def verify_stored(service: ServiceClient, options: Options, *, whole: bool) -> None:
    """Check that DC/OS still has these options (`whole`: only these) after an update.

    Cosmos may lose one of two concurrent updates (ServiceUpdateHandler). Raise CommandError if this update is lost.
    """
    for _ in range(0 if service.job else _CHECKS):  # a queue service has one update after the other
        time.sleep(_CHECK_SECONDS)
        try:
            now = user_options(service)
        except UnreachableError:
            return  # the update was accepted; more is not known
        if now != (options if whole else merge_options(now, options)):
            raise CommandError(
                "update lost: a concurrent update has changed the options; "
                f"see them with `{service.program} describe` and update again"
            )


def preview(service: ServiceClient, options: Options, version: str | None) -> Any:
    """Return the scheduler's preview of an update to exactly these options.

    Raise UnreachableError if the scheduler does not answer. Raise CommandError, with all problems, for invalid options.
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

    Raise CommandError, with the reasons, if the options are invalid or the update is refused. Raise NothingToDoError
    if nothing changes, unless `anyway`.
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
    """Return why the scheduler rejected its latest options; empty if it did not."""
    return list(service.get(api_path("configurations", "target")).get("rejected") or ())


def _change_blocks(answer: Mapping[str, Any]) -> Iterator[Any]:
    rows = [(item["option"], value_text(item["old"]), value_text(item["new"])) for item in answer["changed"]]
    yield Table(("option", "now", "then"), rows, empty="No option changes.")
    for item in answer["restarted"]:
        loss = describe_restart_loss(item.get("step"), item.get("saved_step"))
        yield Line((item["task"], " ", Word("restarts", "wait"), f": {item['reason']}{loss}"))
    for word, meaning in (("added", "good"), ("removed", "bad")):
        if tasks := answer[word]:
            yield Line((", ".join(tasks), " ", Word(f"{'is' if len(tasks) == 1 else 'are'} {word}", meaning)))
    if not (answer["restarted"] or answer["added"] or answer["removed"]):
        yield Line(("No task restarts.",))


def select_earlier(service: ServiceClient, name: str | None = None) -> tuple[str, Options]:
    """Return id and options of the configuration to roll back to, by default the last.

    Without a name it is the previous configuration; if the newest options are refused, the target in force. Secrets
    get their present values, as configurations are stored without them. Raise CommandError if a value is missing.
    """
    ids = service.get(api_path("configurations"))
    earlier = ids if not name and rejection_reasons(service) else ids[1:]
    if not name and not earlier:
        raise CommandError("no earlier configuration to roll back to")
    selected = name or earlier[0]
    configuration = service.get(api_path("configurations", selected))
    if "options" not in configuration:
        raise CommandError(f"configuration `{selected}`: its options are not stored")
    options = restore_secrets(configuration["options"], user_options(service))
    if hidden := list(_hidden(options, "")):
        program = service.program
        raise CommandError(
            f"configuration `{selected}`: its secrets are not stored: {', '.join(hidden)}; add them to the options "
            f"of `{program} config show {selected}`, then run: {program} update start --replace --options FILE"
        )
    return selected, options


def restore_secrets(options: Any, present: Any) -> Any:
    """Return the options with each masked secret replaced by its present value."""
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
    """Restore masked secrets of a list entry from the present entry of the same name."""
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


def check_unstarted(service: ServiceClient, present: Options, *, force: bool) -> Renderable:
    """Warn of options that DC/OS has, but with which the scheduler was not started.

    The update would overwrite them. Raise CommandError, which lists them, unless `force`.
    """
    unstarted = _unstarted_options(service, present)
    rows = [(item["option"], value_text(item["new"]), value_text(item["old"])) for item in unstarted]
    if rows and not force:
        lines = "\n".join(f"{option}: DC/OS has {stored}, scheduler {running}" for option, stored, running in rows)
        raise CommandError(
            f"DC/OS has options for this service that its scheduler was not started with:\n{lines}\n"
            "This command changed nothing: another update is running, or the Marathon app was edited. Check "
            f"`{service.program} update status`, or overwrite these options with --force"
        )
    heading = "This update overwrites options in DC/OS that the scheduler was not started with:"
    return (heading, Table(("option", "DC/OS", "scheduler"), rows)) if rows else ()


def _unstarted_options(service: ServiceClient, present: Options) -> Sequence[Mapping[str, Any]]:
    """Return options in DC/OS with which the scheduler was not started.

    Empty if it has refused them or does not answer.
    """
    try:
        if rejection_reasons(service):
            return ()
        changed: Sequence[Mapping[str, Any]] = preview(service, present, None)["changed"]
    except (RefusedError, UnreachableError):
        return ()
    return changed


def check_unchanged(service: ServiceClient, present: Options) -> None:
    """Raise CommandError if the service has changed since the user saw `present`."""
    if changes := changed_options(user_options(service), present):
        raise CommandError(
            f"another update meanwhile changed {', '.join(changes)}; this command changed nothing. "
            f"See the present options with `{service.program} describe` and repeat the command"
        )


@dataclass(frozen=True)
class Change:
    """A previewed update. `options`: all options if `replace`, else the new options."""

    options: Options
    #: Options that the preview was computed from.
    present: Options
    effects: Renderable
    replace: bool = False
    version: str | None = None


def preview_start(
    service: ServiceClient,
    options: Options,
    folder: Path = Path(),
    *,
    replace: bool = False,
    version: str | None = None,
    force: bool = False,
) -> Change:
    """Preview an update; paths in the options are relative to `folder`."""
    options = installation_of(service).localize(options, folder, replace_all=replace)
    present = user_options(service)
    lost = check_unstarted(service, present, force=force) if replace else ()
    wanted = options if replace else merge_options(present, options)
    effects = describe_changes(service, wanted, version, anyway=bool(lost))
    return Change(options, present, (*_relative_path_notice(options), *lost, *effects), replace, version)


def preview_rollback(service: ServiceClient, name: str | None = None, *, force: bool = False) -> Change:
    """Preview a rollback to the configuration with this id, or to the previous one."""
    present = user_options(service)  # read first, so that later changes are detected
    lost = check_unstarted(service, present, force=force)
    selected, options = select_earlier(service, name)
    effects = describe_changes(service, options, None, anyway=bool(lost))
    return Change(options, present, (*lost, f"Roll back to configuration {selected}:", *effects), replace=True)


def start_change(service: ServiceClient, change: Change) -> Any:
    """Send the previewed options; return the answer without the package's files."""
    if change.replace:
        check_unchanged(service, change.present)
    answer = installation_of(service).update(change.options, change.version, replace_all=change.replace)
    verify_stored(service, change.options, whole=change.replace)
    return {name: value for name, value in answer.items() if name != "package"}


def _confirm_and_start(call: CommandCall, change: Change, *, yes: bool) -> int:
    service = call.service
    call.confirm("Update the service?", yes=yes, effects=change.effects)
    hint = f"The update has started. Follow it with: {service.program} update status"
    return call.show(start_change(service, change), lambda _: (hint,))


def _relative_path_notice(options: Options) -> Renderable:
    if url := relative_job_url(options):
        yield f"notice: service.job_url: {url}: agents need an address, such as https://...; only local runs use a path"


_UPDATE_CODES = "0 started, or nothing to change; 1 refused, 2 not confirmed"
_force_option = click.option("--force", is_flag=True, help="Overwrite options in DC/OS that are not in effect yet.")
group(
    "update",
    "Change or roll back options of the service.",
    "update start --options options.json",
    "update rollback",
)


@command(
    "update start",
    exit_codes=_UPDATE_CODES,
    examples=("--options options.json", "--options options.json --replace --yes"),
)
@click.option("--options", "file", metavar="FILE", help="JSON file of options, or `-` for standard input.")
@click.option("--replace", is_flag=True, help="Replace all options instead of merging.")
@click.option("--package-version", metavar="VERSION", help="Change to this version of the package.")
@_force_option
@yes_option
def start(
    call: CommandCall, file: str | None, replace: bool, package_version: str | None, force: bool, yes: bool
) -> int:
    """Change options and restart the affected tasks."""
    service = call.service
    if not file and not package_version:
        raise UsageError("nothing to update: pass --options FILE or --package-version VERSION")
    options, folder = read_document(file, "--options ") if file else {}, Path(file or "").parent
    change = preview_start(service, options, folder, replace=replace, version=package_version, force=force)
    return _confirm_and_start(call, change, yes=yes)


@command("update rollback", exit_codes=_UPDATE_CODES)
@argument("id", CONFIGURATION, required=False, help="Id of a configuration, see `config list`.", example="ID")
@_force_option
@yes_option
def rollback(call: CommandCall, id: str | None, force: bool, yes: bool) -> int:  # noqa: A002
    """Restore the options of an earlier configuration."""
    return _confirm_and_start(call, preview_rollback(call.service, id, force=force), yes=yes)


@command("scale", exit_codes=_UPDATE_CODES)
@argument("job", example="worker")
@argument("count", help="Number of tasks.", example="6")
@yes_option
def scale(call: CommandCall, job: str, count: str, yes: bool) -> int:
    """Change the number of tasks of a job."""
    service = call.service
    if not count.isdecimal():
        raise UsageError(f"COUNT must be a whole number from 0, not `{count}`")
    options = {"parameter_server" if job == "ps" else job: {"count": int(count)}}
    try:
        change = preview_start(service, options)
    except NothingToDoError:
        wanted = merge_options(user_options(service), options)
        requested = preview(service, wanted, None).get("requested") if job == "worker" else None
        if requested is None:
            raise
        effects = (f"The request for {requested} workers ends; worker.count stays {count}.",)
        call.confirm("Update the service?", yes=yes, effects=effects)
        return call.show(service.post(api_path("tf", "scale"), {"worker": int(count)}), show_message)
    return _confirm_and_start(call, change, yes=yes)


@command("update status", "update show")
def update_status(call: CommandCall) -> int:
    """Show the progress of the update."""
    name = rollout_plan(call.service)
    plan = fetch_plan(call.service, name)
    return call.show({"plan": name, **plan}, lambda answer: plan_tree(answer["plan"], answer))


def _control(words: str, help_text: str, verb: str) -> None:
    @command(words, help=help_text)
    @phase_argument
    def control(call: CommandCall, phase: str | None) -> int:
        return call.show(control_plan(call.service, verb, None, phase, None), show_message)


def _control_step(words: str, help_text: str, verb: str) -> None:
    @command(words, help=help_text)
    @phase_argument
    @step_argument
    def control(call: CommandCall, phase: str | None, step: str | None) -> int:
        return call.show(control_plan(call.service, verb, None, phase, step), show_message)


_control("update pause", "Stop starting new steps; running steps continue.", "interrupt")
_control("update resume", "Resume a paused update.", "continue")
_control_step("update force-restart", "Restart the update, a phase or a step.", "restart")
_control_step("update force-complete", "Mark the update, a phase or a step as complete.", "forceComplete")


@command("update package-versions")
def package_versions(call: CommandCall) -> int:
    """Show the package version, upgrades and downgrades."""
    answer = installation_of(call.service).describe()
    more = {"upgrades": answer.get("upgradesTo", []), "downgrades": answer.get("downgradesTo", [])}
    return call.show({"current": answer["package"]["version"], **more}, show_json)


# --- uninstall

#: Last step of the plan that removes a service; its message lists what is left behind.
LAST_STEP = "forget-state"
_POLL_SECONDS = 0.5
#: Default timeout in seconds. The scheduler's own timeouts are shorter (docs/reference/plans.md), but it has to run.
TIMEOUT = 900


_timeout_option = click.option(
    "--timeout", type=IntRange(0), metavar="SECONDS", default=TIMEOUT, show_default=True, help="Maximum time to wait."
)


@command(
    "uninstall",
    exit_codes="0 removed, 1 still there after --timeout, 2 not confirmed",
    examples=("", "--yes --no-wait"),
)
@click.option("--no-wait", is_flag=True, help="Do not wait until the service is removed.")
@_timeout_option
@yes_option
def uninstall(call: CommandCall, no_wait: bool, timeout: int, yes: bool) -> int:
    """Remove the service with its tasks and its state."""
    call.confirm("Remove the service, its tasks and its stored state?", yes=yes)
    return _uninstall(call, None if no_wait else timeout)


def _uninstall(call: CommandCall, timeout: int | None) -> int:
    """Remove the service; wait up to `timeout` seconds for the end, None: do not wait."""
    service = call.service
    if service.keep is not None:
        service.keep(service)
    answer = installation_of(service).uninstall()
    if timeout is not None:
        message = wait_for_end(service, timeout)
        answer = {**answer, "results": [{**result, "message": message} for result in answer["results"]]}
    return call.show(answer, lambda answer: _show_uninstall(answer, service.program))


def _show_uninstall(answer: Mapping[str, Any], program: str) -> Renderable:
    for result in answer["results"]:
        if "message" in result:
            yield uninstalled_message(result["appId"], result["message"])
        else:
            yield f"{result['appId']} is being uninstalled. Follow it with: {program} plan status deploy"


def uninstalled_message(app_id: str, message: str) -> str:
    """Return the last line of `uninstall`. `message`: what is left behind, or empty."""
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


@command(
    "cancel",
    exit_codes="0 stopped, or ended before; 1 still running after --timeout, 2 not confirmed",
    examples=("", "mnist --yes"),
)
@service_argument
@_timeout_option
@yes_option
def cancel(call: CommandCall, timeout: int, yes: bool) -> int:
    """Stop the job as Ctrl-C does, and remove the service."""
    if ended := call.ended_run():
        return call.show(ended, lambda answer: (_already_ended(answer),))
    service = call.service
    call.confirm("Stop the job?", yes=yes, effects=_preview_cancel(service))
    run = run_of(service)
    if run is None:
        return _uninstall(call, timeout)
    answer = cancel_run(service, run, timeout)
    return call.show(answer, lambda _: (f"{answer['service']}: {answer['verdict']}: {answer['reason']}",))


def _preview_cancel(service: ServiceClient) -> Renderable:
    """Describe what is stopped. Raise NothingToDoError if the job has already ended."""
    try:
        overview = service.get(api_path("tf", "overview"))
    except NotStartedError as error:
        return (str(error),)
    except UnreachableError:
        if service.run is None:
            raise
        return ()  # the run is ending
    except RefusedError as error:
        if error.http_status != HTTPStatus.NOT_FOUND:
            raise
        queue = service.get(api_path("queue"))
        return (f"{queue['name']} is a queue; stops {', '.join(job['id'] for job in queue['jobs']) or 'nothing'}",)
    if overview["verdict"]:
        raise NothingToDoError(_already_ended(overview))
    live = ", ".join(task["name"] for task in overview["tasks"] if task.get("live"))
    return (f"{overview['service']} {overview.get('activity') or 'runs'}; stops {live or 'before its first task'}",)


def _already_ended(answer: Mapping[str, Any]) -> str:
    return f"{answer['service']} has already ended: {answer['verdict']}: {answer['reason']}"


def cancel_run(service: ServiceClient, run: RunProcess, timeout: float) -> Any:
    """Stop a local run, and wait up to `timeout` seconds for its result."""
    if run.result() is None:
        run.cancel()
    deadline = time.monotonic() + timeout
    while (result := run.result()) is None:
        if time.monotonic() > deadline:
            raise CommandError(f"{service.name} still runs after {timeout} s; it is being stopped")
        time.sleep(_POLL_SECONDS)
    return {"service": service.name, **result}


def _removal_plan(service: ServiceClient) -> Mapping[str, Any]:
    try:
        plan: Mapping[str, Any] = fetch_plan(service, "deploy")
    except CommandError:
        return {"phases": []}  # the scheduler is starting or exiting
    return plan


@dataclass(frozen=True)
class LastStep:
    """Status of the last step of an uninstall plan."""

    #: About what is left behind; empty while that is unknown.
    message: str = ""
    done: bool = False
    left_behind: bool = False
    #: What the removal of the framework waits for.
    waiting: str = ""


def last_uninstall_step(plan: Mapping[str, Any]) -> LastStep:
    """Return the last step of an uninstall plan; an empty step for any other plan."""
    steps = (step for phase in plan["phases"] for step in phase["steps"])
    last = next((step for step in steps if step["name"] == LAST_STEP), None)
    if last is None:
        return LastStep()
    done, left_behind = last["status"] == "COMPLETE", bool(last.get("left_behind"))
    waiting = str(last["message"]) if last.get("waits_for") else ""
    return LastStep(str(last["message"]) if done or left_behind else "", done, left_behind, waiting)
