"""Amounts and command lines of other systems."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.commands import run_program
from tf_scheduler.convert.tables import command_line, cores, hadoop_megabytes, megabytes, quantity, service_name


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (quantity, "500m", 0.5),
        (quantity, "1e3", 1000),
        (quantity, 2, 2),
        (megabytes, "4Gi", 4096),
        (megabytes, "1000M", 954),
        (cores, "1m", 0.01),
        (hadoop_megabytes, "2g", 2048),
        (hadoop_megabytes, "2048m", 2048),
        (hadoop_megabytes, "512", 512),
        (service_name, "Team_A/My Job!", "team-a-my-job"),
        (service_name, "!!", "tensorflow"),
    ],
)
def test_amount_is_parsed(read, text: str | int, value: str | float) -> None:
    """As its system of origin does."""
    assert value == pytest.approx(read(text)) if not isinstance(value, str) else value == read(text)


@pytest.mark.parametrize(
    "text",
    ["", "1 Gi", "x", "1Zi", "-1", "1.2.3", "1e400", "1e400Gi", "1e305Pi", pytest.param("9" * 90_000, id="long")],
)
def test_invalid_amount_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        quantity(text)


@pytest.mark.parametrize("text", ["9" * 90_000, "9" * 4000 + "k", "9" * 308 + "t"], ids=len)
def test_huge_memory_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="a number"):
        hadoop_megabytes(text)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.text(st.characters(min_codepoint=32, max_codepoint=126)).filter(lambda word: "$(" not in word), max_size=4
    )
)
def test_shell_passes_words_unchanged(words) -> None:
    """Whatever quotes and blanks they have."""
    line = command_line(["printf", "%s\\0", *words, "end"])

    out = run_program("sh", "-c", line, check=True).stdout

    assert [*words, "end"] == out.split("\0")[:-1]


def test_kubernetes_references_become_shell_variables() -> None:
    """`$(A)` is replaced, `$$(A)` is not."""
    line = command_line(["echo", "$(A)/x y", "$$(A)"])

    out = run_program("sh", "-c", line, check=True, env={"A": "a b"}).stdout

    assert "a b/x y $(A)\n" == out
