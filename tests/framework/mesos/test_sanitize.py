"""Malicious data of an executor becomes well-typed values, without errors."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_scheduler.mesos import decode
from tf_scheduler.model.events import StatusUpdated

DEEP = base64.b64encode(b"[" * 20_000).decode()
scalars = st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(st.characters())
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner))
datas = st.binary().map(lambda data: base64.b64encode(data).decode()) | st.just(DEEP) | anything


def updated(**fields: Any) -> Any:
    """Return the status that the scheduler handles."""
    raw = {"task_id": {"value": "t"}, "state": "TASK_FAILED", "uuid": "dQ==", **fields}
    event = decode.event({"type": "UPDATE", "update": {"status": raw}})
    assert isinstance(event, StatusUpdated)
    return event.status


@given(st.fixed_dictionaries({}, optional={"data": datas, "message": anything, "timestamp": anything}))
@settings(max_examples=200)
def test_any_update_content_is_handled(fields: dict[str, Any]) -> None:
    """An unacknowledged update comes again and would stop each new scheduler."""
    status = updated(**fields)
    assert (str, float) == (type(status.message), type(status.timestamp))
    assert len(status.message.encode()) <= 4 * decode.MAX_TEXT_LENGTH
    assert math.isfinite(status.timestamp)
    assert all(code is None or type(code) is int for code in (status.end.exit_code, status.end.signal))


@given(datas)
def test_any_message_content_is_handled(data: Any) -> None:
    assert decode.event({"type": "MESSAGE", "message": {"data": data}}) is None


def test_deeply_nested_data_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """The malformed report is logged without its content."""
    assert updated(data=DEEP).end.exit_code is None
    assert decode.event({"type": "MESSAGE", "message": {"data": DEEP}}) is None
    assert 2 == len(caplog.messages)
    assert all("bytes from an executor: not" in line and "[[" not in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("words", "sanitized"),
    [
        ("exit code 3\n\tlast line\u3000\U0001f600", "exit code 3\n\tlast line\u3000\U0001f600"),
        ("\x1b]52;c;cm0=\x07", "\ufffd]52;c;cm0=\ufffd"),
        ("a\x00b\x9bc\u202ed\ud800", "a\ufffdb\ufffdc\ufffdd\ufffd"),
        ("a" * 900 + "b" * 900, "a" * 497 + " ... " + "b" * 497),
        (
            "cannot link '/var/mesos/slaves/1-S0/frameworks/1-0001/executors/worker-1__a-b/runs/0a1b-2c/data': full",
            "cannot link '<sandbox>/data': full",
        ),
    ],
    ids=["harmless", "terminal", "controls", "long", "sandbox"],
)
def test_message_is_bounded_and_sanitized(words: str, sanitized: str) -> None:
    """Line breaks and all scripts stay."""
    assert sanitized == updated(message=words).message


def test_too_long_data_is_detected() -> None:
    """A long report is cut before decoding, but not to a valid report."""
    padded = base64.b64encode(b'{"exit_code": 3}'.ljust(1 << 20)).decode()
    assert updated(data=padded).end.exit_code is None
    assert 3 == updated(data=base64.b64encode(b'{"exit_code": 3}').decode()).end.exit_code


def test_failed_fetch_is_explained() -> None:
    """Users of a service do not know the containers of Mesos."""
    start = "Failed to launch container: Failed to fetch all URIs for container 'c-1'"
    hint = "; hint: its stderr names the file and the cause"

    explained = updated(reason="REASON_CONTAINER_LAUNCH_FAILED", message=f"{start}: exited with status 1").message
    assert f"the agent cannot fetch the task's files: exited with status 1{hint}" == explained
    assert f"the agent cannot fetch the task's files: no reason given{hint}" == updated(message=f"{start} ").message


def test_missing_image_is_explained_and_no_launch_can_succeed() -> None:
    message = "Failed to launch container: Failed to find archive for image 'tf' at '/images/tf.tar'"

    explained = updated(reason="REASON_CONTAINER_LAUNCH_FAILED", message=message)

    assert "the agent has no image `tf`: no file /images/tf.tar" == explained.message
    assert explained.end.cannot_start


def test_damaged_layer_is_explained_and_no_launch_can_succeed() -> None:
    """Mesos unpacks the layers of an image together."""
    tar = "Subprocess 'tar, tar, -x, -f, /layers/1/layer.tar, -C, /layers/1/rootfs' failed: tar: Unexpected EOF"

    explained = updated(message=f"Failed to launch container: Collect failed: {tar}")

    assert "damaged image /layers/1/layer.tar: Unexpected EOF" == explained.message
    assert explained.end.cannot_start


def test_missing_mount_point_names_option() -> None:
    """The text of Mesos names no option."""
    text = "Mount point '/vol' is an absolute path. It must exist if the container shares the host filesystem"

    explained = updated(message=f"Failed to launch container: {text}")

    assert explained.message.startswith("volumes: container_path `/vol`: does not exist on the agent; create it, ")
    assert explained.end.cannot_start


def test_end_of_an_executor_is_explained() -> None:
    assert updated(message="Executor terminated").message.startswith("the executor was killed, or could not start; ")


def test_numbers_of_the_kernel_are_removed_from_memory_limits() -> None:
    """They are 40 lines, and the message is the reason of a failed job."""
    limit = "Memory limit exceeded: Requested: 96MB Maximum Used: 96MB"
    message = f"{limit}\n\nMEMORY STATISTICS: \ncache 0\nrss 99381248\n"

    assert limit == updated(reason="REASON_CONTAINER_LIMITATION_MEMORY", message=message).message
