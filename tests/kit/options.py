"""Options documents of tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.load import parse, resolve
from tf_scheduler.options.spec import to_spec
from tf_scheduler.package.render import defaults

#: Options of beta-tensorflow 0.2.0 (mesosphere/universe).
ORIGINAL = json.loads((Path(__file__).parents[1] / "framework" / "options" / "beta_tensorflow.json").read_text())
#: Stands for a missing default there.
NO_DEFAULT = "<none>"
#: Options that are missing in the releases before 0.2.0.
_ADDED = ("service.mesos_api_version", "service.security.", "service.hdfs.", "service.region")


def _document(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in values:
        section, (*above, name) = document, path.split(".")
        for part in above:
            section = section.setdefault(part, {})
        section[name] = value
    return document


def _earlier(image: str) -> dict[str, Any]:
    """Return the defaults of a release before 0.2.0."""
    own = {"service.tf_image": image, "service.gpu_tf_image": f"{image}-gpu", "worker.placement_constraint": ""}
    own["parameter_server.placement_constraint"] = ""
    options = [option for option in ORIGINAL if not option["path"].startswith(_ADDED)]
    return _document((option["path"], own.get(option["path"], option["default"])) for option in options)


#: Documents that name no program; the DC/OS form submits all defaults.
WITHOUT_PROGRAM: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a name": {"service": {"name": "t"}},
    "all defaults": defaults(config_schema()),
    "beta-tensorflow 0.1.0": _earlier("mesosphere/dcos-tensorflow:v1.3"),
    "beta-tensorflow 0.1.1": _earlier("mesosphere/dcos-tensorflow:2.7.4-1.3.0"),
    "beta-tensorflow 0.2.0": _document((o["path"], o["default"]) for o in ORIGINAL if o["default"] != NO_DEFAULT),
}


def load_spec(
    document: Mapping[str, Any] | bytes, defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> ServiceSpec:
    """Return the spec of a document as it is read from a file. Raises OptionsError."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return to_spec(resolve(parse(data, "options.json"), defaults))


def options_problems(document: Mapping[str, Any] | bytes) -> list[Problem]:
    """Return the problems of an invalid document."""
    with pytest.raises(OptionsError) as caught:
        load_spec(document)
    return list(caught.value.problems)
