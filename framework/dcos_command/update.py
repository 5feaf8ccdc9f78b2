"""`update ...`: change or roll back options, after a preview, and control the plan that follows."""

from __future__ import annotations

import json
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path, installation_of
from .command import Command, CommandArgument, CommandOption, Fetch, Params
from .errors import CommandError, NothingToDoError, RefusedError, UnreachableError, UsageError
from .output import Line, Renderable, Table, Word
from .plans import PLAN_ERROR_CODES, plan_tree, rollout_plan, show_message
from .service import changed_options, show_json

#: As it stands for a secret in what is stored of options.
MASK = "********"
#: How often, and every how many seconds, it is looked whether an update was replaced at once by another.
_CHECKS, _CHECK_SECONDS = 2, 0.5
_UNKNOWN = "The scheduler does not answer, so what would change is not known."

Options = Mapping[str, Any]


def describe(service: ServiceClient) -> Any:
    """What DC/OS knows of the service: its package and its options."""
    return installation_of(service).describe()


def user_options(service: ServiceClient) -> Options:
    """The options that DC/OS was given for the service; the others have their defaults."""
    found: Options = describe(service).get("userProvidedOptions") or {}
    return found


def merge_options(below: Options, above: Options) -> dict[str, Any]:
    """Objects inside each other, as DC/OS merges options."""
    found = dict(below)
    for name, value in above.items():
        known = found.get(name)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        found[name] = merge_options(known, value) if both else value  # type: ignore[arg-type]
    return found


def verify_stored(service: ServiceClient, options: Options, given: Params, *, whole: bool) -> None:
    """That DC/OS has these options, a moment after it took them; `whole`: no others.

    It reads an app, changes it, and writes it: of two updates at the same time one may be lost (dcos/cosmos,
    ServiceUpdateHandler). Raise CommandError when it is this one.
    """
    for _ in range(_CHECKS):
        time.sleep(_CHECK_SECONDS)
        try:
            now = user_options(service)
        except UnreachableError:
            return  # it was taken; more is not known
        if now != (options if whole else merge_options(now, options)):
            raise CommandError(
                "another update was made at the same time, and has replaced this one: the service has other options. "
                f"See them with: {given['program']} describe; and update again."
            )


def preview(service: ServiceClient, options: Options, version: str | None) -> Any:
    """What its scheduler says of an update to exactly these options. Raise UnreachableError where it does not answer.

    Raise CommandError with what is wrong with them.
    """
    return service.post(api_path("tf", "update", "preview"), installation_of(service).preview(options, version))


def describe_changes(
    service: ServiceClient, options: Options, version: str | None, *, anyway: bool = False
) -> Renderable:
    """What such an update does, for who is to confirm it. `anyway`: it is done also where it changes nothing.

    Raise CommandError with what is wrong with the options or is refused, NothingToDoError when they change nothing.
    """
    try:
        found = preview(service, options, version)
    except UnreachableError:
        changes = changed_options(options, user_options(service))
        return (_UNKNOWN, f"Options that change: {', '.join(changes) or 'none'}.")
    if found["refused"]:
        lines = [f"{item['option']}: {item['reason']}" for item in found["refused"]]
        raise CommandError("this update is refused, nothing was done:\n" + "\n".join(lines))
    refused = rejection_reasons(service)
    if not (found["changed"] or version or refused or anyway):
        raise NothingToDoError("these are its options already: nothing to do")
    started = (f"What its scheduler was started with is refused; these take its place. {reason}" for reason in refused)
    return (*started, *_change_blocks(found))


def rejection_reasons(service: ServiceClient) -> list[str]:
    """Why the service goes on with options that are not those that DC/OS has started it with; mostly empty."""
    found = service.get(api_path("configurations", "target"))
    return list(found.get("rejected") or ())


def _change_blocks(found: Mapping[str, Any]) -> Iterator[Any]:
    rows = [(item["option"], _text(item["old"]), _text(item["new"])) for item in found["changed"]]
    yield Table(("option", "now", "then"), rows, empty="No option changes.")
    for item in found["restarted"]:
        yield Line((item["task"], " ", Word("restarts", "wait"), f": {item['reason']}"))
    for word, meaning in (("added", "good"), ("removed", "bad")):
        if found[word]:
            yield Line(
                (", ".join(found[word]), " ", Word(f"{'is' if len(found[word]) == 1 else 'are'} {word}", meaning))
            )
    if not (found["restarted"] or found["added"] or found["removed"]):
        yield Line(("No task restarts.",))


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def select_earlier(service: ServiceClient, given: Params) -> tuple[str, Options]:
    """Id and options of the configuration to go back to: the one that is given, or the one before the present.

    Where the present options are refused, those before are in force. Secrets are not stored with them: they are those
    that the service has now. Raise CommandError for others.
    """
    ids = service.get(api_path("configurations"))
    before = ids if not given.get("id") and rejection_reasons(service) else ids[1:]
    if not given.get("id") and not before:
        raise CommandError("there is no configuration before the present one")
    wanted = given.get("id") or before[0]
    found = service.get(api_path("configurations", wanted))
    if "options" not in found:
        raise CommandError(f"the options of configuration {wanted} are not stored")
    options = restore_secrets(found["options"], user_options(service))
    if hidden := list(_hidden(options, "")):
        raise CommandError(
            f"configuration {wanted} has secrets that are not stored: {', '.join(hidden)}. "
            f"See it with: {given['program']} config show {wanted}; and give all of it: "
            f"{given['program']} update start --replace --options FILE"
        )
    return wanted, options


def restore_secrets(options: Any, present: Any) -> Any:
    """The same, with what the service has now in the place of secrets."""
    if isinstance(options, Mapping):
        now = present if isinstance(present, Mapping) else {}
        return {name: restore_secrets(value, now.get(name)) for name, value in options.items()}
    if isinstance(options, list):
        return [_entry(entry, present) for entry in options]
    if isinstance(options, str) and MASK in options and isinstance(present, str):
        before, _, after = options.partition(MASK)
        return present if present.startswith(before) and present.endswith(after) else options
    return options


def _entry(entry: Any, present: Any) -> Any:
    """A variable is known by its name."""
    if not isinstance(entry, Mapping):
        return entry
    named = (item for item in present or () if isinstance(item, Mapping))
    same = [item for item in named if item.get("name") == entry.get("name")]
    return restore_secrets(entry, same[0]) if len(same) == 1 else entry


def _hidden(options: Any, where: str) -> Iterator[str]:
    if isinstance(options, Mapping):
        for name, value in options.items():
            yield from _hidden(value, f"{where}.{name}" if where else name)
    elif isinstance(options, list):
        for index, value in enumerate(options):
            yield from _hidden(value, f"{where}[{index}]")
    elif isinstance(options, str) and MASK in options:
        yield where


def check_unstarted(service: ServiceClient, present: Options, given: Params) -> Renderable:
    """What DC/OS has of options that the scheduler was not started with: nothing else tells that the update ends them.

    Raise CommandError with them, unless `force` is given.
    """
    found = _unstarted_options(service, present)
    if found and not given.get("force"):
        lines = (f"{item['option']}: {_text(item['new'])}; its scheduler has {_text(item['old'])}" for item in found)
        raise CommandError(
            "DC/OS has options for this service that its scheduler was not started with:\n"
            + "\n".join(lines)
            + "\nSomebody else's update is under way, or its Marathon app was changed. Nothing was done. See: "
            f"{given['program']} update status; and give the command again, with --force if these are to be lost"
        )
    rows = [(item["option"], _text(item["new"]), _text(item["old"])) for item in found]
    lost = "Options that DC/OS has, and its scheduler was not started with, are lost:"
    return (lost, Table(("option", "DC/OS", "scheduler"), rows)) if rows else ()


def _unstarted_options(service: ServiceClient, present: Options) -> Sequence[Mapping[str, Any]]:
    """Empty, too, where the scheduler does not answer, or has refused them: that is told anyway."""
    try:
        if rejection_reasons(service):
            return ()
        found: Sequence[Mapping[str, Any]] = preview(service, present, None)["changed"]
    except (RefusedError, UnreachableError):
        return ()
    return found


def check_unchanged(service: ServiceClient, present: Options, given: Params) -> None:
    """That nobody has updated the service since it had these options, which whoever wants to replace them has seen.

    Raise CommandError.
    """
    if changes := changed_options(user_options(service), present):
        raise CommandError(
            f"somebody else has updated the service meanwhile: {', '.join(changes)}. Nothing was done. "
            f"See its options with: {given['program']} describe; and give the command again"
        )


def _start(service: ServiceClient, given: Params) -> Any:
    # Not all of its options: what somebody else changes at the same time is to stay.
    return _submit(service, _requested_options(given), given, replace_all=bool(given.get("replace")))


def _submit(service: ServiceClient, options: Mapping[str, Any], given: Params, *, replace_all: bool) -> Any:
    if replace_all:
        check_unchanged(service, given["present"], given)
    version = given.get("package_version")
    found = installation_of(service).update(options, version, replace_all=replace_all)
    verify_stored(service, options, given, whole=replace_all)
    return {name: value for name, value in found.items() if name != "package"}  # its files: nobody asked for them


def _preview_start(service: ServiceClient, given: Params) -> tuple[Renderable, Params]:
    options, replaces = _requested_options(given), bool(given.get("replace"))
    present = user_options(service)
    lost = check_unstarted(service, present, given) if replaces else ()
    wanted = options if replaces else merge_options(present, options)
    told = describe_changes(service, wanted, given.get("package_version"), anyway=bool(lost))
    return (*lost, *told), {"present": present}


def _requested_options(given: Params) -> Mapping[str, Any]:
    if not given.get("options") and not given.get("package_version"):
        raise UsageError("nothing to update: give --options FILE, or --package-version")
    options: Mapping[str, Any] = _document(given["options"]) if given.get("options") else {}
    return options


def _rollback(service: ServiceClient, given: Params) -> Any:
    return _submit(service, given["wanted"], given, replace_all=True)


def _preview_rollback(service: ServiceClient, given: Params) -> tuple[Renderable, Params]:
    present = user_options(service)  # before it is asked for the others: what comes in between is noticed
    lost = check_unstarted(service, present, given)
    wanted, options = select_earlier(service, given)
    told = describe_changes(service, options, None, anyway=bool(lost))
    return (*lost, f"Back to configuration {wanted}:", *told), {"present": present, "wanted": options}


@lru_cache(maxsize=1)
def _standard_input() -> str:
    """It cannot be read again."""
    return sys.stdin.read()


def _document(file: str) -> Any:
    name = "--options - (standard input)" if file == "-" else f"--options {file}"
    try:
        text = _standard_input() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is no text in UTF-8: see its byte {error.start}") from error
    except RecursionError as error:
        raise CommandError(f"{name} is nested too deeply") from error
    except ValueError as error:
        raise CommandError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise CommandError(f"{name}: must be a JSON object")
    return found


def _show_start(_found: Any, given: Params) -> Renderable:
    return (f"The update is under way. Follow it with: {given['program']} update status",)


def _status(service: ServiceClient, _given: Params) -> Any:
    name = rollout_plan(service)
    return {"plan": name, **service.get(api_path("plans", name), PLAN_ERROR_CODES)}


def _show_status(found: Mapping[str, Any], _given: Params) -> Renderable:
    return plan_tree(found["plan"], found)


def _command(verb: str) -> Fetch:
    def send(service: ServiceClient, given: Params) -> Any:
        return service.post(
            api_path("plans", rollout_plan(service), verb), phase=given.get("phase"), step=given.get("step")
        )

    return send


def _versions(service: ServiceClient, _given: Params) -> Any:
    found = describe(service)
    current = found["package"]["version"]
    return {"current": current, "upgrades": found.get("upgradesTo", []), "downgrades": found.get("downgradesTo", [])}


_FORCE = CommandOption(
    "force", "Though DC/OS has options that the scheduler was not started with: they are lost.", "flag"
)
_PHASE = CommandArgument("phase", "phase", required=False, help="Name or id of a phase.")
_STEP = CommandArgument("step", "step", required=False, help="Name or id of a step of the phase.")
COMMANDS = (
    Command(
        "update start",
        "Give the service other options: on top of its own, and what they concern is launched again.",
        _start,
        _show_start,
        (),
        (
            CommandOption("options", "JSON file of options; - for standard input.", metavar="FILE"),
            CommandOption("replace", "Forget the options that it has.", "flag"),
            CommandOption("package-version", "Another version of the package.", metavar="VERSION"),
            _FORCE,
        ),
        preview=_preview_start,
        confirm="Update the service?",
    ),
    Command(
        "update rollback",
        "Give the service the options of an earlier configuration back; without ID, those before the present ones.",
        _rollback,
        _show_start,
        (CommandArgument("id", "config", required=False, help="Id of a configuration: config list."),),
        (_FORCE,),
        preview=_preview_rollback,
        confirm="Update the service?",
    ),
    Command("update status", "How far it is.", _status, _show_status, aliases=("update show",)),
    Command("update pause", "Begin no further step.", _command("interrupt"), show_message, (_PHASE,)),
    Command("update resume", "Go on.", _command("continue"), show_message, (_PHASE,)),
    Command("update force-restart", "From the beginning.", _command("restart"), show_message, (_PHASE, _STEP)),
    Command(
        "update force-complete",
        "Count as complete, whatever it is.",
        _command("forceComplete"),
        show_message,
        (_PHASE, _STEP),
    ),
    Command("update package-versions", "The version, and which it can be changed to.", _versions, show_json),
)
