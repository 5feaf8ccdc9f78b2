from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.contract.reports import TaskEnd
from tf_executor.process.last_output import STDERR_BYTES, ProgramError, excerpt, output_excerpt, program_error, redact
from tf_executor.process.output import TAIL_BYTES
from tf_scheduler.runtimes.catalogue import creation_arguments


def test_excerpt_starts_with_stderr() -> None:
    assert "; stderr: a | b; stdout: c" == output_excerpt(b"a\nb\n", b"c\n", [], 4096)
    assert ["; stdout: c", ""] == [output_excerpt(b"", b"c", [], 4096), output_excerpt(b"\n \n", b"", [], 4096)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"epoch 1\repoch 2\repoch 3\n", "epoch 3"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07text\n", "red text"),
        (b"windows\r\nlines\r\n", "windows | lines"),
        (b"bell\x07 \x00nul\n\n\nend", "bell nul | end"),
        (b"broken \xff\n", "broken �"),
        (b"    x = 1 / 0\n        ~~^~~\nZeroDivisionError\n", "x = 1 / 0 | ZeroDivisionError"),
        ("größer ≥ 1\n".encode(), "größer ≥ 1"),
    ],
)
def test_excerpt_reads_like_terminal(data: bytes, expected: str) -> None:
    assert expected == excerpt(data, [], 100, False)


def test_long_excerpt_keeps_end() -> None:
    assert "...the end" == excerpt(b"a long beginning and then the end", [], 10, False)


def test_excerpt_begins_with_complete_line() -> None:
    assert "...second | third" == excerpt(b"the first\nsecond\nthird\n", [], 20, False)
    assert "...end of a long line | x" == excerpt(b"the end of a long line\nx\n", [], 25, False)


@given(data=st.binary(max_size=3000), size=st.integers(3, 400))
def test_excerpt_is_bounded_single_line(data: bytes, size: int) -> None:
    text = excerpt(data, [], size, False)
    assert len(text.encode()) <= size
    assert not set(text) & set("\n\r\0\x1b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key=abcd1234 and abcd1234", "key=*** and ***"),
        ("-----BEGIN-----", "***"),
        ("of line-one only", "of *** only"),
        ("short ab stays", "short ab stays"),
    ],
)
def test_excerpt_redacts_secrets(text: str, expected: str) -> None:
    """Complete, and line by line; very short secrets would hide everything."""
    assert expected == redact(text, ["-----BEGIN-----\nline-one\nab", "abcd1234"])


def test_longer_secret_is_redacted_first() -> None:
    """Otherwise its rest would be shown."""
    assert "; stderr: x=*** y=***" == output_excerpt(b"x=abcd y=abcd-efgh", b"", ["abcd", "abcd-efgh"], 4096)


@given(cut=st.integers(0, 60), newline=st.booleans())
def test_truncated_secret_is_not_shown(cut: int, newline: bool) -> None:
    """The kept bytes may begin inside a secret."""
    secret = "0123456789abcdefghij"
    text = ("x" * 20 + secret + ("\n" if newline else "") + "y" * 20)[cut:]
    message = output_excerpt(text.encode(), b"", [secret], len(text))
    assert not [part for part in (secret[n : n + 4] for n in range(17)) if part in message]


def test_excerpt_folds_repeats_and_paths_of_sandbox() -> None:
    data = b"/box/a.py: bad\n/box/a.py: bad\n/box/a.py: bad\n/other/box/b.py\n"
    assert "; stderr: a.py: bad (3 times) | /other/box/b.py" == output_excerpt(data, b"", [], 4096, "/box")


def test_stderr_limit_fits_traceback_line() -> None:
    assert 300 <= STDERR_BYTES <= 600


HEADER = "Traceback (most recent call last):\n"
OF_TENSORFLOW = """  File "/usr/lib/python3/dist-packages/tensorflow/execute.py", line 60, in f
    raise x
  File "/opt/conda/lib/python3.11/runpy.py", line 9, in g
  File "<frozen importlib._bootstrap>", line 7, in h
"""
TRAIN = '  File "/box/train.py", line 3, in <module>\n    import nope\n'
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
GRAPH = 'tf.InvalidArgumentError: Graph execution error:\n\n  File "/box/a.py", line 7\nIncompatible shapes\n'
#: As TensorFlow 2.12 writes it.
GRAPH_2 = """tf.InvalidArgumentError: Graph execution error:

Detected at node 'a' defined at (most recent call last):
    File "/box/train.py", line 3, in <module>
      model.fit()
Node: 'a'
2 root error(s) found.
  (0) INVALID_ARGUMENT:  indices[0] = 9 is not in [0, 1)
\t [[{{node a}}]]
  (1) CANCELLED:  x
0 successful operations.
0 derived errors ignored. [Op:__inference_f_3]
"""
AUTOGRAPH = '  File "/tmp/__autograph_generated_file2z7b85zt.py", line 5, in tf__f\n'
SYNTAX = '  File "train.py", line 2\n    x = = 1\n        ^\nSyntaxError: invalid\n'
WRONG_FLAG = "train.py: error: unrecognized arguments: -x"
VALUE_ERROR = HEADER + '  File "/other/x.py", line 1, in <module>\nValueError: x\n'


TF_2 = '  File "/venv/lib/python3.11/site-packages/tensorflow/x.py", line 9, in f\n'
#: Written by a thread of TensorFlow.
GLOG = "E0000 00:00:1795788707.750300 21 context.cc:911] Failed to remove function remotely\n"
RANK = "[rank0]: " + (HEADER + TRAIN).replace("\n", "\n[rank0]: ") + "KeyError: 1\n"
TORCHRUN = HEADER + '  File "/venv/bin/torchrun", line 8, in <module>\n'
CHILD = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=====
train.py FAILED
-----
Failures:
[1]:
  time      : 2026-11-30_14:45:22
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 24)  (SIGTERM)
-----
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_14:45:22
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 25)  (SIGKILL)
  traceback : Signal 9 (SIGKILL) received by PID 25
=====
"""


def error_of(stderr: str, exit_code: int = 1, secrets: Sequence[str] = (), **variables: str) -> ProgramError:
    return program_error(exit_code, stderr.encode(), secrets, "/box", variables)


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (HEADER + TRAIN + "ModuleNotFoundError: nope\n", "ModuleNotFoundError: nope (train.py:3)"),
        (HEADER + TRAIN.replace("train", "job/pkg/a") + "KeyError: 1\n", "KeyError: 1 (job/pkg/a.py:3)"),
        (HEADER + TRAIN.replace("train.py", "job.zip/a.py") + "KeyError: 1\n", "KeyError: 1 (job.zip/a.py:3)"),
        (HEADER + TRAIN + OF_TENSORFLOW + "KeyError: 1\n", "KeyError: 1 (train.py:3)"),
        (HEADER + OF_TENSORFLOW + "KeyError: 1\n", "KeyError: 1"),
        (VALUE_ERROR + DURING + HEADER + TRAIN + "E\n", "E (train.py:3)"),
        (
            HEADER + TRAIN + GRAPH + "2026-01-02 03:04:05.6: W ignored\n",
            "InvalidArgumentError: Incompatible shapes (train.py:3)",
        ),
        (HEADER + TRAIN + GRAPH_2, "InvalidArgumentError: indices[0] = 9 is not in [0, 1) (train.py:3)"),
        (
            HEADER + TRAIN + AUTOGRAPH + "KeyError: 'x'\n\n\n\t [[{{node PyFunc}}]] [Op:Next] name: \n",
            "KeyError: 'x' (train.py:3)",
        ),
        (HEADER + TRAIN + f"    {GLOG}^^^^^^^^\n{TF_2}{GLOG}KeyError: 1\n", "KeyError: 1 (train.py:3)"),
        ("a log\n" + SYNTAX, "SyntaxError: invalid (train.py:2)"),
        (VALUE_ERROR + "Exception ignored in: <x>\n" + HEADER + TRAIN + "E\n", "ValueError: x (/other/x.py:1)"),
        (RANK + TORCHRUN + CHILD, "KeyError: 1 (train.py:3)"),
        (TORCHRUN + CHILD, "rank 1 was killed by signal 9 (SIGKILL)"),
        (TORCHRUN + CHILD.replace("-9 (pid: 25)  (SIGKILL)", "5 (pid: 25) "), "rank 1 exited with code 5"),
        (
            HEADER + TRAIN + "ValueError: no [1.5, -2e-3, 3, 4] in <O at 0x7f3a>\n",
            "ValueError: no [...] in <O> (train.py:3)",
        ),
        (HEADER + TRAIN + "OSError: /box/data/x is missing\n", "OSError: data/x is missing (train.py:3)"),
        ("usage: train.py\n" + WRONG_FLAG, WRONG_FLAG),
        ("\n \n", "no output"),
        ("", "no output"),
        (HEADER, HEADER.strip()),
    ],
)
def test_error_is_exception_and_place_in_program(stderr: str, expected: str) -> None:
    """People see it without the log, and the scheduler compares it with former ends."""
    assert expected == error_of(stderr).text


@pytest.mark.parametrize(
    ("exit_code", "stderr", "is_cause", "cannot_start"),
    [
        (1, HEADER + TRAIN + "ModuleNotFoundError: nope\n", True, True),
        (1, HEADER + TRAIN + "NameError: nope\n2026-01-02 03:04:05.6: W ignored\n", True, True),
        (1, SYNTAX, True, True),
        (1, HEADER + TRAIN + "ImportError: ignored\nno disk: giving up\n", True, False),
        (1, HEADER + TRAIN + "KeyError: 1\n", True, False),
        (134, HEADER + TRAIN + "KeyError: 1\ndouble free\nAborted\n", True, False),
        (3, HEADER + TRAIN + "ImportError: logged\n", False, False),
        (1, "ImportError: printed\n", False, False),
        (2, "usage: train.py\n" + WRONG_FLAG, True, True),
        (1, "usage: train.py\n" + WRONG_FLAG, False, False),
        (2, "python: can't open file '/box/a.py': [Errno 2] No such file or directory\n", True, True),
        (2, "error: no connection\n", False, False),
        (126, "/bin/sh: 1: ./a: Permission denied\n", True, True),
        (127, "", False, True),
    ],
)
def test_end_that_no_launch_changes_is_recognised(
    exit_code: int, stderr: str, is_cause: bool, cannot_start: bool
) -> None:
    """The scheduler ends the job; a doubtful one gets another launch."""
    error = error_of(stderr, exit_code)
    assert (is_cause, cannot_start) == (error.is_cause, error.cannot_start)


@pytest.mark.parametrize("shell", ["/bin/sh: 1: ", "/bin/sh: line 1: ", "bash: ", "/bin/sh: 1: exec: "])
def test_missing_command_suggests_one(shell: str, tmp_path: Path) -> None:
    (tmp_path / "prog").touch()
    error = error_of(f"{shell}prgo: command not found\n", 127, PATH=f"/no/such:{tmp_path}")
    assert "prgo: command not found, exit code 127; hint: did you mean `prog`?" == error.message(
        "exit code 127 (command not found)", "; stderr: x"
    )
    assert "did you mean `python`?" == error_of(f"{shell}pythn: not found\n", 127).hint
    assert "" == error_of("sh: 1: qqq: not found\n", 127).hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "ModuleNotFoundError: No module named 'tensorflow.examples'",
            f"runtime create {creation_arguments((1, 15), 12)[1]}`",
        ),
        ("AttributeError: module 'tensorflow' has no attribute 'placeholder'. Did you mean: x?", "TensorFlow 1"),
        ("OSError: [Errno 98] Address already in use", "the program chooses a port itself, or opens one twice"),
        ("tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server", "port"),
        ("torch.distributed.DistBackendError: NCCL error in: x", "NCCL_DEBUG"),
        ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "gloo"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "gloo"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check", 'torch.device("cpu")'),
        ("UnimplementedError: Collectives are not yet implemented for CPU devices", "jit_compile"),
        ("RuntimeError: Collective ops must be configured at program startup", "create the strategy before"),
        (
            "Exception: URL fetch failure on https://a/b.npz: None -- [Errno -2] Name or service not known",
            "service.data",
        ),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9 GiB", "memory"),
        ("ValueError: A KerasTensor cannot be used as input to a TensorFlow function.", "TF_USE_LEGACY_KERAS"),
        ("AttributeError: 'Mean' object has no attribute 'reset_states'.", "TF_USE_LEGACY_KERAS"),
        ("ValueError: Argument(s) not recognized: {'lr': 0.1}", "tf_keras"),
        ("KeyError: 1", ""),
    ],
)
def test_known_cause_has_hint(text: str, hint: str) -> None:
    error = error_of(f"{HEADER}{TRAIN}{text}\n")
    assert hint in error.hint
    assert bool(hint) == bool(error.hint)
    name, separator, rest = text.partition(": ")
    shown = f"{name.rpartition('.')[2]}{separator}{rest}"
    assert error.message("exit code 1", "; stderr: x").startswith(f"{shown} (train.py:3), exit code 1")


@pytest.mark.parametrize(
    "reason",
    [
        "missing/ckpt-1_temp; No such file or directory\n\t [[{{node SaveV2_1}}]]",
        "allow_missing_files was set to false and c/ckpt-1_temp/part-00000-of-00003 did not exist.NOT_FOUND: "
        "c/ckpt-1_temp/part-00000-of-00003 not found\n\t [[{{node MergeV2Checkpoints}}]]",
        "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for c/ckpt-1\n"
        "\t [[{{node RestoreV2}}]]",
    ],
)
def test_checkpoint_in_pieces_has_hint(reason: str) -> None:
    """As TensorFlow 2.21 writes it, if chief and ps do not share the folder."""
    text = f"""tensorflow.python.framework.errors_impl.NotFoundError: Graph execution error:

Detected at node SaveV2_1 defined at (most recent call last):
  File "/sandbox/train.py", line 12, in a

  File "/venv/lib/python3.11/site-packages/tensorflow/python/checkpoint/functional_saver.py", line 557, in tf_save

{reason}
Additional GRPC error information from remote target /job:ps/replica:0/task:1/device:CPU:0 while calling /tensorflow.x:
:UNKNOWN:Error received from peer  {{grpc_message:" x", grpc_status:5}} [Op:__inference_tf_function_save_79]
"""

    error = error_of(f"{HEADER}{TRAIN}{text}")

    assert "experimental_io_device='/job:chief/replica:0/task:0/device:CPU:0'" in error.hint


def test_error_of_real_graph_is_tensorflow_s_sentence(tmp_path: Path) -> None:
    """Its first line says `Graph execution error`, and its last line names a node."""
    program = tmp_path / "train.py"
    program.write_text("import tensorflow as tf\nf = tf.function(tf.gather)\nf(tf.ones(3), tf.constant(7))\n")
    run = subprocess.run([sys.executable, program], stderr=subprocess.PIPE, check=False)

    error = program_error(run.returncode, run.stderr[-TAIL_BYTES:], [], str(tmp_path), {})

    assert "InvalidArgumentError: indices = 7 is not in [0, 3) (train.py:3)" == error.text


def test_kill_under_torchrun_is_a_kill(executor: Any) -> None:
    """The launcher exits with code 1; a program that is killed is not wrong."""
    (executor.sandbox / "report.txt").write_text(TORCHRUN + CHILD)
    executor.launch("cat report.txt >&2; exit 1")
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    error = "rank 1 was killed by signal 9 (SIGKILL)"
    end = TaskEnd.decode(base64.b64decode(status["data"]))
    assert (f"{error}, exit code 1", TaskEnd(signal=9, error=error)) == (status["message"], end)


def test_secret_in_the_gap_of_a_long_exception_is_hidden() -> None:
    """Neither part of the secret is recognised alone."""
    start, end = HEADER + TRAIN + "ValueError: wrong login with s3cr", "3t-value in the last line\n"
    error = program_error(1, end.encode(), ["s3cr3t-value"], "/box", {}, start.encode())
    assert error.text.startswith("ValueError: wrong ")
    assert error.text.endswith(" last line (train.py:3)")
    assert not re.search("s3cr|t-val", error.text)


def test_exception_has_no_module_and_no_operation() -> None:
    """They would hide the first words of the reason at the end of a run."""
    text = "tensorflow.python.framework.errors_impl.UnavailableError: {{function_node __wrapped__X}} Collective ops"
    assert error_of(f"{HEADER}{TRAIN}{text}\n").text == "UnavailableError: Collective ops (train.py:3)"


PER_REPLICA = """ValueError: Attempt to convert a value (PerReplica:{
  0: <tf.Tensor: shape=(3,), dtype=float32, numpy=array([-3.39e-01, -1.16e+00])>
}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.
"""
NO_KERAS = "ImportError: Keras cannot be imported. Check that it is installed.\n"
FIT = "Model.fit of Keras 3.15 does not work with"
ADD = 'add "environment": {"TF_USE_LEGACY_KERAS": "1"} to "service" (--set service.environment.TF_USE_LEGACY_KERAS=1)'
INSTALL = 'pip install --no-deps "tf_keras~=2.21.0"'


@pytest.mark.parametrize(
    ("exception", "packages", "source", "value", "expected"),
    [
        (PER_REPLICA, ["tf_keras-2.21.0"], "tf.distribute.MultiWorkerMirroredStrategy()", "",
         f"{FIT} MultiWorkerMirroredStrategy. tf_keras 2.21 is installed: {ADD}"),
        (PER_REPLICA, [], "x = tf.distribute.ParameterServerStrategy(y)", "",
         f"{FIT} ParameterServerStrategy. Install tf_keras ({INSTALL}) and {ADD}"),
        (PER_REPLICA, [], "", "yes", "TF_USE_LEGACY_KERAS: TensorFlow ignores `yes`; it accepts 1, true, True"),
        (PER_REPLICA, ["tf_keras-2.21.0"], "x = tf.distribute.ParameterServerStrategy(y)", "1",
         f"{FIT} ParameterServerStrategy. tf_keras 2.21 is installed: import tf_keras in place of keras"),
        (NO_KERAS, [], "", "1", f"TF_USE_LEGACY_KERAS is set, but tf_keras is not installed: {INSTALL}"),
        (NO_KERAS, ["keras-2.15.0"], "", "1",
         "TF_USE_LEGACY_KERAS is set, but tf_keras is not installed: remove it, Keras 2.15 needs no variable"),
    ],
)  # fmt: skip
def test_keras_3_is_named_as_cause(
    exception: str, packages: Sequence[str], source: str, value: str, expected: str, tmp_path: Path
) -> None:
    """TensorFlow's messages mislead. Versions are those beside the failed module."""
    (tmp_path / "train.py").write_text(source)
    site = tmp_path / "site-packages"
    keras = [] if "keras-2.15.0" in packages else ["keras-3.15.1"]
    for name in (*packages, *keras, "tensorflow_cpu-2.21.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    frames = f'  File "{tmp_path}/train.py", line 9, in <module>\n  File "{site}/keras/src/x.py", line 5, in fit\n'
    variables = {"TF_USE_LEGACY_KERAS": value} if value else {}

    error = program_error(1, f"{HEADER}{frames}{exception}".encode(), [], str(tmp_path), variables)

    assert f"train.py:9: {expected}" == error.text
    assert error.cannot_start


def test_error_has_no_secrets() -> None:
    assert "E: *** (train.py:3)" == error_of(HEADER + TRAIN + "E: abcd\n", secrets=["abcd"]).text


@given(data=st.binary(max_size=3000) | st.text(max_size=3000).map(str.encode), frames=st.booleans())
def test_error_fits_report(data: bytes, frames: bool) -> None:
    text = program_error(1, (HEADER + TRAIN).encode() + data if frames else data, [], "/box", {}).text
    assert text == (TaskEnd.decode(TaskEnd(error=text).encode()).error or "")
