"""Server-sent events."""

from hypothesis import given
from hypothesis import strategies as st

from dcos_command.transport import ServerSentEvent, parse_events

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=20)


def lines(text):
    return text.encode().splitlines(keepends=True)


def test_event_has_name_id_and_data() -> None:
    """Several lines of data are one text; one space after the colon is optional."""
    text = "id: 7\nevent: log\ndata: one\ndata:two\n\ndata: three\n\n"

    assert [ServerSentEvent("one\ntwo", "log", "7"), ServerSentEvent("three", "message", "7")] == list(
        parse_events(lines(text))
    )


def test_comments_and_unknown_fields_are_ignored() -> None:
    assert [ServerSentEvent("x")] == list(parse_events(lines(":\n\nretry: 5\n: alive\ndata: x\n\n")))


def test_incomplete_event_is_ignored() -> None:
    """It is sent again, because its id was not seen."""
    assert [] == list(parse_events(lines("id: 8\ndata: half")))


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_data_is_unchanged(parts) -> None:
    sent = "".join(f"data: {part}\n" for part in parts) + "\n"

    assert ["\n".join(parts)] == [event.data for event in parse_events(sent.encode().splitlines(keepends=True))]
