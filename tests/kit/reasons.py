"""Where a service shows the reasons that hinder it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request


def assert_shown(url: str, health: int, kind: str, text: str) -> None:
    """Assert the status of the health check, and a reason with this text in each view."""
    code, body = _get(f"{url}/v1/health")[0], _get(f"{url}/v1/health?verbose=true")[1]
    views = {name: _get(f"{url}/v1/{name}")[1] for name in ("tasks", "pending", "tf/overview")}
    shown = {name: json.loads(view).get("reasons") or json.loads(view)["notices"] for name, view in views.items()}
    shown["health"] = json.loads(body)["reasons"]

    assert (health, health) == (code, json.loads(body)["value"])
    for name, reasons in shown.items():
        assert any(text in reason for reason in reasons), (name, reasons)
    assert f'tensorflow_reasons{{kind="{kind}"}} 1.0' in _get(f"{url}/v1/metrics/prometheus")[1]


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
