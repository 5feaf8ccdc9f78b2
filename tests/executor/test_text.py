"""Numbers, durations and amounts as people read them."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.contract.text import (
    downsample,
    format_duration,
    format_memory,
    format_memory_use,
    format_number,
    format_part,
    format_percent,
    format_rate,
    format_resources,
    format_size,
    pluralize,
    sparkline,
)

CASES: tuple[tuple[Callable[..., str], tuple[Any, ...], str], ...] = (
    (format_number, (None,), "–"),
    (format_number, (0,), "0"),
    (format_number, (-3,), "-3"),
    (format_number, (12_345,), "12,345"),
    (format_number, (123_456_789,), "123,456,789"),
    (format_number, (12_345_678_901,), "1.235e+10"),
    (format_number, (0.0324,), "0.0324"),
    (format_number, (0.123456,), "0.1235"),
    (format_number, (1e-7,), "1e-07"),
    (format_number, (1234.56,), "1,235"),
    (format_number, (math.inf,), "inf"),
    (format_number, (math.nan,), "nan"),
    (format_rate, (0.0324, "steps"), "0.0324 steps/s"),
    (format_part, (406, 1700), "406 of 1,700"),
    (format_part, (406, None), "406"),
    (format_part, (None, 700), "–"),
    (format_percent, (0.5757,), "58 %"),
    (format_percent, (0.004,), "0 %"),
    (format_percent, (0.999,), "99 %"),
    (format_percent, (3,), "100 %"),
    (format_percent, (-1,), "0 %"),
    (format_duration, (None,), "–"),
    (format_duration, (math.inf,), "–"),
    (format_duration, (-4,), "0 s"),
    (format_duration, (0.42,), "0.4 s"),
    (format_duration, (8.0,), "8 s"),
    (format_duration, (59.4,), "59 s"),
    (format_duration, (59.6,), "1 min"),
    (format_duration, (125,), "2 min 5 s"),
    (format_duration, (3600,), "1 h"),
    (format_duration, (3725,), "1 h 2 min"),
    (format_duration, (273_600,), "3 d 4 h"),
    (format_duration, (1e300,), "1.157e+295 d"),
    (format_memory, (310.4,), "310 MB"),
    (format_memory, (1536,), "1.5 GB"),
    (format_memory, (1003.5,), "0.98 GB"),
    (format_memory_use, (310.2, 512), "310 of 512 MB"),
    (format_memory_use, (930, 1024), "930 MB of 1 GB"),
    (format_resources, (0.5, 1024), "0.5 cpus, 1 GB"),
    (format_resources, (8, 65_536, 1, 512), "8 cpus, 64 GB, 1 GPU, 512 MB of disk"),
    (format_size, (1,), "1 byte"),
    (format_size, (999,), "999 bytes"),
    (format_size, (1_500,), "1.5 kB"),
    (format_size, (23_400_000,), "23.4 MB"),
    (format_size, (5e9,), "5.0 GB"),
    (pluralize, (1, "task"), "1 task"),
    (pluralize, (1_200, "task"), "1,200 tasks"),
    (pluralize, (2, "ps"), "2 ps"),
    (sparkline, ([], 20), ""),
    (sparkline, ([3.0], 20), "▁"),
    (sparkline, ([8, 7, 6, 5, 4, 3, 2, 1], 20), "█▇▆▅▄▃▂▁"),
    (sparkline, ([8, 7, 6, 5, 4, 3, 2, 1], 2), "█▁"),
    (sparkline, ([None, 1.0, math.nan, 2.0, math.inf], 20), "▁█"),
    (sparkline, ([9.0] * 30, 20), "▁" * 20),
    (sparkline, ([1e308, -1e308], 20), "█▁"),
)


@pytest.mark.parametrize(("function", "values", "text"), CASES)
def test_values_have_one_form(function, values, text) -> None:
    assert text == function(*values)


@given(st.lists(st.integers(), min_size=1, max_size=3000), st.integers(2, 400))
def test_downsample_keeps_both_ends_and_order(items, limit) -> None:
    indexed = list(enumerate(items))
    sample = downsample(indexed, limit)

    assert len(sample) == min(limit, len(items))
    assert (indexed[0], indexed[-1]) == (sample[0], sample[-1])
    assert sorted(set(sample)) == sample
