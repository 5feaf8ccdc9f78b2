"""Server-sent events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcos_command.transport import ServerSentEvent, parse_events

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=20)


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (
            "id: 7\nevent: log\ndata: one\ndata:two\n\ndata: three\n\n",
            [ServerSentEvent("one\ntwo", "log", "7"), ServerSentEvent("three", "message", "7")],
        ),
        (":\n\nretry: 5\n: alive\ndata: x\n\n", [ServerSentEvent("x")]),
        ("id: 8\ndata: half", []),  # it is sent again, because its id was not seen
    ],
)
def test_event_has_name_id_and_data(text: str, events: list[ServerSentEvent]) -> None:
    """Several lines of data are one text; one space after the colon is optional."""
    assert events == list(parse_events(text.encode().splitlines(keepends=True)))


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_data_is_unchanged(parts) -> None:
    sent = "".join(f"data: {part}\n" for part in parts) + "\n"

    assert ["\n".join(parts)] == [event.data for event in parse_events(sent.encode().splitlines(keepends=True))]
