"""What an operator must permit when Mesos refuses something: its own words name what was tried, not who decides it."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Words of Mesos 1.11 (src/master/master.cpp) -> its access list (docs, authorization), and the permission of DC/OS.
_WORDS: Mapping[str, tuple[str, str]] = {
    r"[Nn]ot authorized to register framework\s+with roles \{ (.+?) \}": (
        "register_frameworks",
        "dcos:mesos:master:framework:role:{} create",
    ),
    r"not? authorized to launch task .* under user '(.+?)'": ("run_tasks", "dcos:mesos:master:task:user:{} create"),
    r'authorized to perform action RESERVE_RESOURCES on object \{"value":"(.+?)"': (
        "reserve_resources",
        "dcos:mesos:master:reservation:role:{} create",
    ),
    r"authorized to perform action (UNRESERVE)_RESOURCES": (
        "unreserve_resources",
        "dcos:mesos:master:reservation:principal delete",
    ),
}


def explained(message: str) -> str:
    """The message; if it refuses for want of a permission, with that permission before it: it may be cut behind."""
    for words, (access_list, permission) in _WORDS.items():
        if found := re.search(words, message):
            return f"needs the permission {access_list} (DC/OS: {permission.format(found[1])}): {message}"
    return message
