"""One client cannot take all that there is."""

from tf_scheduler.api.seats import Seats


def test_one_gets_half_the_next_half_of_the_rest():
    """So that somebody who has none finds one."""
    seats = Seats(100, "streams")

    def taken(who):
        number = 0
        while seats.take(who) is None:
            number += 1
        return number

    assert [50, 25, 13, 6, 3] == [taken(who) for who in "abcde"]
    assert seats.take("f") is None


def test_why_not_is_told():
    """429: you have too many. 503: others have them all."""
    seats = Seats(2, "streams")

    assert seats.take("a") is None
    refused = seats.take("a")
    assert (429, "a has 1 streams open, others need the rest: close some, or ask again later") == (
        refused.code,
        refused.message,
    )
    assert seats.take("b") is None
    assert (503, "too many streams are open: ask again later") == (seats.take("c").code, seats.take("c").message)


def test_what_is_given_back_is_for_others():
    seats = Seats(2, "streams")
    seats.take("a")
    seats.leave("a")

    assert [None, None] == [seats.take("b"), seats.take("a")]
