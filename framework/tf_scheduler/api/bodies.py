"""Bodies of requests: JSON, or a sentence that says why they are none."""

from __future__ import annotations

import json
from typing import Any


def parsed(content: bytes) -> Any:
    """The JSON of a body, which can be written as JSON again. Raise ValueError with a sentence for people."""
    try:
        found = json.loads(content)
        # Half a surrogate pair, which JSON can write: it cannot be encoded, and Mesos would refuse what holds it.
        json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text in UTF-8: see its byte {error.start}") from error
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"it has {half}, which is half a character, without the other half") from error
    except ValueError as error:
        raise ValueError("it has a number with too many digits") from error
    return found
