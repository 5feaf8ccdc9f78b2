"""Server-sent events."""

from hypothesis import given
from hypothesis import strategies as st

from dcos_command.transport import ServerSentEvent, parse_events

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=20)


def lines(text):
    return text.encode().splitlines(keepends=True)


def test_an_event_has_its_name_its_id_and_its_data():
    """Several lines of data are one text; a colon may be followed by one space."""
    text = "id: 7\nevent: log\ndata: one\ndata:two\n\ndata: three\n\n"

    assert [ServerSentEvent("one\ntwo", "log", "7"), ServerSentEvent("three", "message", "7")] == list(
        parse_events(lines(text))
    )


def test_comments_and_unknown_fields_are_nothing():
    """A comment says that the server is alive."""
    assert [ServerSentEvent("x")] == list(parse_events(lines(":\n\nretry: 5\n: alive\ndata: x\n\n")))


def test_what_is_cut_off_is_no_event():
    """It comes again, as its id was not seen."""
    assert [] == list(parse_events(lines("id: 8\ndata: half")))


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_data_arrives_as_it_was_sent(parts):
    """Whatever is in it, but ends of lines."""
    sent = "".join(f"data: {part}\n" for part in parts) + "\n"

    assert ["\n".join(parts)] == [event.data for event in parse_events(sent.encode().splitlines(keepends=True))]
