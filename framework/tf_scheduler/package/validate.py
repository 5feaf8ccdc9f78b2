"""The rules of a Universe package, one function each, named as the sentence that it enforces; all are checked.

The Universe's own rules first, then ours: what its validator does not see but a user would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_scheduler.errors import Problem, SchedulerError

from . import mustache, options_block
from .app_rules import app_problems
from .errors import PackageError
from .options_check import defaults, mismatches, paths
from .render import render_app
from .repository import entry
from .shapes import PACKAGE as PACKAGE_SHAPE
from .shapes import RESOURCE as RESOURCE_SHAPE
from .sources import CONFIG, PACKAGE, RESOURCE, TEMPLATE, Sources

Rule = Callable[[Sources], Iterator[Problem]]


def validate(sources: Sources) -> list[Problem]:
    """Everything that is wrong; empty for a package that can be published."""
    problems = list(sources.problems)
    broken = {problem.path for problem in problems}
    for rule in RULES:
        problems += [problem for problem in rule(sources) if problem.path.split(":")[0] not in broken]
    return problems


def package_json_has_the_universes_shape(sources: Sources) -> Iterator[Problem]:
    yield from _misfits(PACKAGE, sources.package, PACKAGE_SHAPE)


def resource_json_has_the_universes_shape(sources: Sources) -> Iterator[Problem]:
    yield from _misfits(RESOURCE, sources.resource, RESOURCE_SHAPE)


def config_json_is_a_draft_4_schema(sources: Sources) -> Iterator[Problem]:
    from jsonschema import Draft4Validator, SchemaError  # as in options_check: only when it is needed

    try:
        Draft4Validator.check_schema(sources.config)
    except SchemaError as error:
        yield Problem(_at(CONFIG, error.absolute_path), error.message)


def the_template_is_mustache(sources: Sources) -> Iterator[Problem]:
    try:
        mustache.parse(sources.template)
    except mustache.TemplateError as error:
        yield Problem(TEMPLATE, str(error))


def every_default_fits(sources: Sources) -> Iterator[Problem]:
    """Then the package installs without any options."""
    yield from _misfits(CONFIG, defaults(sources.config), sources.config)


def every_option_is_described(sources: Sources) -> Iterator[Problem]:
    for path, option in paths(sources.config):
        if not option.get("description"):
            yield Problem(f"{CONFIG}: {path}", "has no description")


def unknown_options_are_refused(sources: Sources) -> Iterator[Problem]:
    """Without additionalProperties Cosmos silently ignores an option with a typing error."""
    for path, section in _objects(sources.config):
        if "additionalProperties" not in section:
            yield Problem(f"{CONFIG}: {path or 'top level'}", "does not say additionalProperties")


def the_template_uses_only_what_there_is(sources: Sources) -> Iterator[Problem]:
    """A misspelt name renders as nothing, without an error."""
    options = dict(paths(sources.config))
    known = {*options, *_resource_names(sources.resource), ".", "asJson"}
    for name in sorted(set(_unknown(_nodes(sources.template), known, options))):
        yield Problem(TEMPLATE, f"{{{{{name}}}}} is neither an option nor in resource.json")


def every_option_is_used(sources: Sources) -> Iterator[Problem]:
    """An option that the template leaves out would be taken and have no effect."""
    used = set(_used(_nodes(sources.template)))
    yield from (
        Problem(f"{CONFIG}: {path}", f"is not used in {TEMPLATE}")
        for path, _ in paths(sources.config)
        if path not in used
    )


def the_options_block_is_current(sources: Sources) -> Iterator[Problem]:
    try:
        if options_block.refreshed(sources.template) != sources.template:
            yield Problem(TEMPLATE, "its options are not those of the schema; run: dcos-tensorflow package generate")
    except PackageError as error:
        yield Problem(TEMPLATE, str(error))


def the_default_app_is_one_that_marathon_takes(sources: Sources) -> Iterator[Problem]:
    try:
        app = render_app(entry(sources, 0), {})
    except (SchedulerError, KeyError) as error:
        yield Problem(TEMPLATE, f"does not render with the defaults: {error}")
        return
    yield from (Problem(f"{TEMPLATE}: {problem.path}", problem.message) for problem in app_problems(app))


RULES: tuple[Rule, ...] = (
    package_json_has_the_universes_shape,
    resource_json_has_the_universes_shape,
    config_json_is_a_draft_4_schema,
    the_template_is_mustache,
    every_default_fits,
    every_option_is_described,
    unknown_options_are_refused,
    the_template_uses_only_what_there_is,
    every_option_is_used,
    the_options_block_is_current,
    the_default_app_is_one_that_marathon_takes,
)


def _misfits(file: str, document: Mapping[str, Any], shape: Mapping[str, Any]) -> Iterator[Problem]:
    for found in mismatches(document, shape):
        path = found["instance"]["pointer"].strip("/").replace("/", ".")
        yield Problem(f"{file}: {path}" if path else file, found["message"])


def _at(file: str, path: Any) -> str:
    text = ".".join(str(part) for part in path)
    return f"{file}: {text}" if text else file


def _objects(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "properties" in schema:
        yield prefix, schema
    for name, option in schema.get("properties", {}).items():
        yield from _objects(option, f"{prefix}.{name}".strip("."))


def _resource_names(value: Any, prefix: str = "resource") -> Iterator[str]:
    for name, below in value.items() if isinstance(value, dict) else ():
        yield f"{prefix}.{name}"
        yield from _resource_names(below, f"{prefix}.{name}")


def _nodes(template: str) -> Sequence[mustache.Node]:
    try:
        return mustache.parse(template)
    except mustache.TemplateError:
        return ()


def _unknown(nodes: Sequence[mustache.Node], known: set[str], options: Mapping[str, Any]) -> Iterator[str]:
    """Names that are not known; inside a list of objects their members are, too."""
    for node in nodes:
        if isinstance(node, mustache.Text):
            continue
        if node.name not in known:
            yield node.name
        if isinstance(node, mustache.Section):
            items = options.get(node.name, {}).get("items", {}).get("properties", {})
            yield from _unknown(node.nodes, known | set(items), options)


def _used(nodes: Sequence[mustache.Node]) -> Iterator[str]:
    for node in nodes:
        if not isinstance(node, mustache.Text):
            yield node.name
        if isinstance(node, mustache.Section):
            yield from _used(node.nodes)
