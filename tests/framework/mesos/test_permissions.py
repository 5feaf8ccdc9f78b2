"""Missing permissions in the messages of real masters."""

import pytest

from tf_scheduler.mesos import decode
from tf_scheduler.mesos.decode import explain_acl_error

LAUNCH = "Principal 'tf' no authorized to launch task worker-0__1 of framework 1-0000 under user 'nobody'"
RUN = "run_tasks (DC/OS: dcos:mesos:master:task:user:nobody create)"


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (
            "Not authorized to register framework  with roles { ugly-role }",
            "register_frameworks (DC/OS: dcos:mesos:master:framework:role:ugly-role create)",
        ),
        (LAUNCH, RUN),
    ],
)
def test_missing_permission_is_named(words, missing) -> None:
    """The message of Mesos names only the attempted action."""
    assert f"needs the permission {missing}: {words}" == explain_acl_error(words)


def test_other_messages_are_unchanged() -> None:
    assert "Framework has been removed" == explain_acl_error("Framework has been removed")


@pytest.mark.parametrize(
    ("reason", "known"), [("REASON_TASK_UNAUTHORIZED", True), ("REASON_COMMAND_EXECUTOR_FAILED", False)]
)
def test_executor_message_is_not_explained(reason, known) -> None:
    """A program may print the same text."""
    raw = {"task_id": {"value": "worker-0__1"}, "state": "TASK_ERROR", "reason": reason, "message": LAUNCH}
    assert known == (RUN in decode.status(raw).message)
