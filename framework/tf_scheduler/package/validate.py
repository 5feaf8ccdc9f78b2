"""Rules of a Universe package, one function each, named after the rule.

The rules that the Universe's validator checks come first, then the rules that it does not check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_scheduler.errors import PackageError, Problem, SchedulerError

from . import sources as package_sources
from . import template
from .render import defaults, mismatches, render_app, schema_errors
from .sources import CONFIG, PACKAGE, RESOURCE, TEMPLATE, PackageSources

# --- shapes
# JSON Schemas (draft 4) of package.json, resource.json and a repository's package. Source: mesosphere/universe,
# repo/meta/schema; the tests compare both.


Shape = Mapping[str, Any]

_TEXT: Shape = {"type": "string"}
_URL: Shape = {"type": "string", "pattern": "^https?://"}
_FLAG: Shape = {"type": "boolean"}
_TEXTS: Shape = {"type": "array", "items": _TEXT}
_TEXTS_BY_NAME: Shape = {"type": "object", "additionalProperties": _TEXT}


def _object(required: Mapping[str, Shape] | None = None, **optional: Shape) -> dict[str, Any]:
    """Return the schema of an object with exactly these members."""
    wanted = {"required": sorted(required)} if required else {}
    return {"type": "object", "properties": {**(required or {}), **optional}, "additionalProperties": False, **wanted}


_REQUIRED: Mapping[str, Shape] = {
    "packagingVersion": {"enum": ["4.0"]},
    "name": {"type": "string", "pattern": "^[a-z][a-z0-9-]*[a-z0-9]$"},
    "version": {"type": "string", "pattern": "^[-a-zA-Z0-9.]+$"},
    "maintainer": _TEXT,
    "description": _TEXT,
    "tags": {"type": "array", "items": {"type": "string", "pattern": r"^[^\s]+$"}},
}
_OPTIONAL: Mapping[str, Shape] = {
    "scm": _TEXT,
    "website": _TEXT,
    "framework": _FLAG,
    "selected": _FLAG,
    "preInstallNotes": _TEXT,
    "postInstallNotes": _TEXT,
    "postUninstallNotes": _TEXT,
    "licenses": {"type": "array", "items": _object({"name": _TEXT, "url": _URL})},
    "minDcosReleaseVersion": {"type": "string", "pattern": r"^(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*$"},
    "hasKnownIssues": _FLAG,
    "lastUpdated": {"type": "integer"},
    "upgradesFrom": _TEXTS,
    "downgradesTo": _TEXTS,
}


def _resource() -> dict[str, Any]:
    digest = _object({"algo": {"enum": ["sha256"]}, "value": _TEXT})
    digests = {"type": "array", "minItems": 1, "items": digest}
    binary = _object({"url": _TEXT, "kind": {"enum": ["executable", "zip"]}, "contentHash": digests})
    platform = _object({"x86-64": binary})
    platforms = {**_object(linux=platform, darwin=platform, windows=platform), "minProperties": 1}
    icons: dict[str, Shape] = {f"icon-{size}": _TEXT for size in ("small", "medium", "large")}
    return _object(
        assets=_object(uris=_TEXTS_BY_NAME, container=_object(docker=_TEXTS_BY_NAME)),
        images=_object(**icons, screenshots=_TEXTS),
        cli=_object({"binaries": platforms}),
    )


#: package.json, packaging version 4.0.
PACKAGE_SHAPE: Shape = _object(_REQUIRED, **_OPTIONAL)
#: resource.json in package/, before the build fills in its addresses.
RESOURCE_SHAPE: Shape = _resource()


# --- app_rules
# Marathon's rules for an app that a scheduler's app can break, one function each. Source: mesosphere/marathon,
# api/v2/validation (AppValidation, SchedulingValidation, EnvVarValidation).


App = Mapping[str, Any]

_ID = re.compile(r"/?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[a-z0-9]([a-z0-9.-]*[a-z0-9])?)*")
_PORT_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_COUNT = {"type": "integer", "minimum": 0}
_AMOUNT = {"type": "number", "minimum": 0}

#: The members that are checked; others are left to the real Marathon.
APP_SHAPE: Mapping[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "cmd": {"type": ["string", "null"], "minLength": 1},
        "user": {"type": "string"},
        "role": {"type": "string"},
        "instances": _COUNT,
        **dict.fromkeys(("cpus", "mem", "disk", "gpus"), _AMOUNT),
        "env": {"type": "object", "additionalProperties": {"type": ["string", "object"]}},
        "labels": _TEXTS_BY_NAME,
        "fetch": {"type": "array", "items": {"type": "object", "required": ["uri"]}},
        "healthChecks": {"type": "array", "items": {"type": "object"}},
        "portDefinitions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "port": {"type": "integer", "minimum": 0, "maximum": 65535},
                    "name": {"type": "string", "pattern": _PORT_NAME},
                    "labels": _TEXTS_BY_NAME,
                },
            },
        },
    },
}


def app_problems(app: App) -> list[Problem]:
    """List all problems for which Marathon would answer 422."""
    errors = schema_errors(app, APP_SHAPE)
    misfits = [Problem("/" + "/".join(map(str, error.absolute_path)), error.message) for error in errors]
    return misfits or [problem for rule in APP_RULES for problem in rule(app)]


def the_id_is_a_path(app: App) -> Iterator[Problem]:
    if not _ID.fullmatch(app["id"]):
        yield Problem("/id", f"`{app['id']}`: must be a path of lower-case letters, digits, dots and dashes")


def there_is_a_command_or_an_image(app: App) -> Iterator[Problem]:
    names = [name for name in ("cmd", "args", "container") if app.get(name) is not None]
    if names[:2] == ["cmd", "args"]:
        yield Problem("/", "cannot have both cmd and args")
    if not names:
        yield Problem("/", "requires cmd, args or container")


def secrets_in_the_environment_are_declared(app: App) -> Iterator[Problem]:
    for name, value in app.get("env", {}).items():
        if isinstance(value, Mapping) and value.get("secret") not in app.get("secrets", {}):
            yield Problem(f"/env/{name}", f"references an undefined secret named {value.get('secret')!r}")


def a_single_instance_app_has_one_instance_and_no_overlap(app: App) -> Iterator[Problem]:
    if app.get("labels", {}).get("MARATHON_SINGLE_INSTANCE_APP") != "true":
        return
    if app.get("instances", 1) > 1:
        yield Problem("/instances", "must be at most 1 for a single instance app")
    no_overlap = {"minimumHealthCapacity": 0, "maximumOverCapacity": 0}
    if app.get("upgradeStrategy", no_overlap) != no_overlap:
        yield Problem("/upgradeStrategy", "both capacities must be 0 for a single instance app")


def health_checks_name_an_existing_port(app: App) -> Iterator[Problem]:
    ports = len(app.get("portDefinitions", ()))
    for index, check in enumerate(app.get("healthChecks", ())):
        if check.get("protocol") != "COMMAND" and "port" not in check and check.get("portIndex", 0) >= ports:
            yield Problem(f"/healthChecks/{index}/portIndex", f"out of range: the app has {ports} ports")


def mesos_runs_at_most_one_health_check(app: App) -> Iterator[Problem]:
    if sum(str(check.get("protocol", "")).startswith("MESOS_") for check in app.get("healthChecks", ())) > 1:
        yield Problem("/healthChecks", "at most one MESOS_ check is allowed")


APP_RULES: tuple[Callable[[App], Iterator[Problem]], ...] = (
    the_id_is_a_path,
    there_is_a_command_or_an_image,
    secrets_in_the_environment_are_declared,
    a_single_instance_app_has_one_instance_and_no_overlap,
    health_checks_name_an_existing_port,
    mesos_runs_at_most_one_health_check,
)


# --- validate


Rule = Callable[[PackageSources], Iterator[Problem]]


def validate(sources: PackageSources) -> list[Problem]:
    """List all problems; empty for a package that can be published."""
    problems = list(sources.problems)
    broken = {problem.path for problem in problems}
    for rule in RULES:
        problems += [problem for problem in rule(sources) if problem.path.split(":")[0] not in broken]
    return problems


def the_files_have_the_universes_shape(sources: PackageSources) -> Iterator[Problem]:
    yield from _misfits(PACKAGE, sources.package, PACKAGE_SHAPE)
    yield from _misfits(RESOURCE, sources.resource, RESOURCE_SHAPE)


def the_catalogue_has_complete_metadata(sources: PackageSources) -> Iterator[Problem]:
    """Require what DC/OS' catalogue shows before and after an installation."""
    for name in ("website", "scm", "licenses", "preInstallNotes", "postInstallNotes", "postUninstallNotes"):
        if not sources.package.get(name):
            yield Problem(f"{PACKAGE}: {name}", "missing; the catalogue shows it")
    if not re.search("@|://", str(sources.package.get("maintainer"))):
        yield Problem(f"{PACKAGE}: maintainer", "must contain an address: an e-mail address or a URL")


def config_json_is_a_draft_4_schema(sources: PackageSources) -> Iterator[Problem]:
    from jsonschema import Draft4Validator, SchemaError  # slow to import, as in options_check

    try:
        Draft4Validator.check_schema(sources.config)
    except SchemaError as error:
        path = ".".join(map(str, error.absolute_path))
        yield Problem(f"{CONFIG}: {path}" if path else CONFIG, error.message)


def the_template_is_mustache(sources: PackageSources) -> Iterator[Problem]:
    try:
        template.parse(sources.template)
    except PackageError as error:
        yield Problem(TEMPLATE, str(error))


def every_default_fits(sources: PackageSources) -> Iterator[Problem]:
    """Require valid defaults, so that the package can be installed without options."""
    yield from _misfits(CONFIG, defaults(sources.config), sources.config)


def every_option_is_described(sources: PackageSources) -> Iterator[Problem]:
    for path, option in option_paths(sources.config):
        if not option.get("description"):
            yield Problem(f"{CONFIG}: {path}", "has no description")


def every_property_has_a_title(sources: PackageSources) -> Iterator[Problem]:
    """Require a title, without which the DC/OS form shows the bare name."""
    for path, section in _objects(sources.config):
        for name, option in section["properties"].items():
            if not option.get("title"):
                yield Problem(f"{CONFIG}: {path}.{name}".replace(": .", ": "), "has no title")


def unknown_options_are_refused(sources: PackageSources) -> Iterator[Problem]:
    """Require `additionalProperties`, so that Cosmos rejects misspelled options."""
    for path, section in _objects(sources.config):
        if "additionalProperties" not in section:
            yield Problem(f"{CONFIG}: {path or 'top level'}", "missing additionalProperties")


def the_template_uses_only_known_names(sources: PackageSources) -> Iterator[Problem]:
    """Reject unknown names in the template, which Cosmos renders as an empty text."""
    options = dict(option_paths(sources.config))
    context = {*options, *_resource_names(sources.resource), "."}
    names = _names(_nodes(sources.template), options)
    for name in sorted({name for name, members in names if name not in context | members}):
        yield Problem(TEMPLATE, f"{{{{{name}}}}} is neither an option nor in resource.json")


def every_option_is_used(sources: PackageSources) -> Iterator[Problem]:
    """Require each option in the template; without it, the option has no effect."""
    options = dict(option_paths(sources.config))
    used = {name for name, _ in _names(_nodes(sources.template), options)}
    yield from (Problem(f"{CONFIG}: {path}", f"is not used in {TEMPLATE}") for path in options if path not in used)


def the_options_block_is_current(sources: PackageSources) -> Iterator[Problem]:
    try:
        if package_sources.with_options_block(sources.template) != sources.template:
            yield Problem(TEMPLATE, "its options block differs from the schema; run: scripts/generate-options")
    except PackageError as error:
        yield Problem(TEMPLATE, str(error))


def marathon_accepts_the_default_app(sources: PackageSources) -> Iterator[Problem]:
    try:
        app = render_app(sources)
    except (SchedulerError, KeyError) as error:
        yield Problem(TEMPLATE, f"does not render with the defaults: {error}")
        return
    yield from (Problem(f"{TEMPLATE}: {problem.path}", problem.message) for problem in app_problems(app))


RULES: tuple[Rule, ...] = (
    the_files_have_the_universes_shape,
    the_catalogue_has_complete_metadata,
    config_json_is_a_draft_4_schema,
    the_template_is_mustache,
    every_default_fits,
    every_option_is_described,
    every_property_has_a_title,
    unknown_options_are_refused,
    the_template_uses_only_known_names,
    every_option_is_used,
    the_options_block_is_current,
    marathon_accepts_the_default_app,
)


def _misfits(file: str, document: Mapping[str, Any], shape: Mapping[str, Any]) -> Iterator[Problem]:
    for problem in mismatches(document, shape):
        yield Problem(f"{file}: {problem.path}" if problem.path else file, problem.message)


def _objects(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "properties" in schema:
        yield prefix, schema
    for name, option in schema.get("properties", {}).items():
        yield from _objects(option.get("items", option), f"{prefix}.{name}".strip("."))


def _resource_names(value: Any, prefix: str = "resource") -> Iterator[str]:
    for name, below in value.items() if isinstance(value, dict) else ():
        yield f"{prefix}.{name}"
        yield from _resource_names(below, f"{prefix}.{name}")


def option_paths(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield dotted path and schema of every option, depth first, without sections."""
    for name, option in schema.get("properties", {}).items():
        if option.get("properties"):
            yield from option_paths(option, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", option


def _nodes(text: str) -> Sequence[template.Node]:
    try:
        return template.parse(text)
    except PackageError:
        return ()


def _names(
    nodes: Sequence[template.Node], options: Mapping[str, Any], members: frozenset[str] = frozenset()
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each name in the template, with the fields of the lists that enclose it."""
    for node in nodes:
        if isinstance(node, str):
            continue
        yield node.name, members
        if isinstance(node, template.TemplateSection):
            inner = options.get(node.name, {}).get("items", {}).get("properties", {})
            yield from _names(node.nodes, options, members | set(inner))
