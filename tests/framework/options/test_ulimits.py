"""name=soft:hard,..."""

import pytest

from tf_scheduler.options.schema.fields import UNLIMITED, parse_ulimits


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        ("nofile=1024", {"nofile": (1024, 1024)}),
        (" core=0:unlimited, nproc=1:2 ", {"core": (0, UNLIMITED), "nproc": (1, 2)}),
        ("memlock=-1", {"memlock": (UNLIMITED, UNLIMITED)}),
    ],
)
def test_ulimits_are_parsed(text: str, limits) -> None:
    """A single number is both limits."""
    assert limits == parse_ulimits(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nofile", "must be name=soft:hard"),
        ("nofile=many", "must be name=soft:hard"),
        ("files=1", "unknown limit files; use one of as, core"),
        ("nofile=2:1", "the soft limit exceeds the hard limit"),
        ("nofile=-1:1", "the soft limit exceeds the hard limit"),
        ("nofile=1,", "must be name=soft:hard"),
    ],
)
def test_invalid_ulimit_is_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_ulimits(text)
