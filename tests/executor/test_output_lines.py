"""Progress in what programs print."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.process.output import TAIL_BYTES
from tf_executor.progress import output_lines
from tf_executor.progress.output_lines import MAX_LINE, OutputProgress
from tf_scheduler.options.schema.values import parse_line_pattern


class Stream:
    """Output as `Output.recent` returns it."""

    def __init__(self) -> None:
        self.recent = (0, b"", 5.0)

    def write(self, text: str | bytes) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        self.recent = (self.recent[0] + len(data), (self.recent[1] + data)[-TAIL_BYTES:], self.recent[2] + 1)


def scanned(*texts: str, pattern: str = "", is_mirrored: bool = False) -> dict[str, float]:
    """Return the values after all texts, each of which is scanned by itself."""
    stream = Stream()
    progress = OutputProgress([lambda: stream.recent], pattern, is_mirrored=is_mirrored)
    values: dict[str, float] = {}
    for text in texts:
        stream.write(text)
        values.update(progress.scan())
    values.pop("_time", None)
    return values


BACK = "\b" * 90 + "\r"
K2 = " 6/70 [=>............................] - ETA: 12s - loss: 0.6860 - accuracy: 0.7995"
K2_END = "70/70 [==============================] - 2s 13ms/step - loss: 3.2400e-04 - accuracy: 0.9967 - val_loss: 0.4\n"
K3 = (
    "\x1b[1m56/70\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m1:05\x1b[0m 16ms/step"
    " - accuracy: 0.98 - loss: 0.0331"
)
LOST = "x" * 2 * TAIL_BYTES + "\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Epoch 3/10\n", K2 + BACK], {"step": 146, "total": 700, "loss": 0.686, "accuracy": 0.7995}),
        (["Epoch 3/10\n", K3 + BACK], {"step": 196, "total": 700, "loss": 0.0331, "accuracy": 0.98}),
        (["Epoch 1/2\n", K2_END], {"step": 70, "total": 140, "loss": 3.24e-4, "accuracy": 0.9967, "val_loss": 0.4}),
        (
            ["Epoch 2/2\n70/70 - 1s - loss: 0.5 - accuracy: 0.9 - 988ms/epoch - 14ms/step\n"],
            {"step": 140, "total": 140, "loss": 0.5, "accuracy": 0.9},
        ),
        (["Epoch 2/2\n70/70 - 1s - 14ms/step - loss: 0.5\n"], {"step": 140, "total": 140, "loss": 0.5}),
        (["Epoch 1/2\n", "     56/Unknown - 3s 16ms/step - loss: 0.3" + BACK], {"step": 56, "loss": 0.3}),
        (["Epoch 1/2\n" + K2_END + "Epoch 2/2\n      9/Unknown 3s 1s/step - loss: 0.3\r"], {"step": 79, "loss": 0.3}),
        ([K2 + BACK + K2_END], {"step": 70, "total": 70, "loss": 3.24e-4}),
        (["INFO:tensorflow:loss = 0.5, step = 100 (3.218 sec)\n"], {"step": 100, "loss": 0.5}),
        (["INFO:tensorflow:global_step/sec: 12.5\n"], {"steps_per_second": 12.5}),
        (["step 120/500\n"], {"step": 120, "total": 500}),
        (["Step: 120 of 500, lr = 1e-3\n"], {"step": 120, "total": 500, "lr": 1e-3}),
        (["worker 0: training step 60 done (global step: 120)\n"], {"step": 120}),
        (["global step 120\n"], {"step": 120}),
        (["epoch 3 loss 0.2\n"], {"epoch": 3, "loss": 0.2}),
        (["Epoch: 3, Loss: nan, Acc: 0.9\n"], {"epoch": 3, "loss": math.nan, "Acc": 0.9}),
        (["Epoch [2/10], Step [100/600], Loss: 0.25\n"], {"epoch": 2, "epochs": 10, "step": 700, "total": 6000}),
        (["Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300039\n"], {"epoch": 1, "loss": 2.300039}),
        (["Epoch 3, Loss: 0.2, Accuracy: 97.5, Test Loss: 0.3\n"], {"epoch": 3, "loss": 0.2, "Accuracy": 97.5}),
        ([" 45%|####5   | 450/1000 [00:10<00:12, 44.9it/s, loss=0.31]\r"], {"step": 450, "total": 1000, "loss": 0.31}),
        (["Epoch 2/3:  50%|█▌| 5/10 [00:10<00:12, 4.9it/s, loss=0.31]\r"], {"step": 15, "total": 30, "loss": 0.31}),
        (["Epoch 1:  50%|█▌| 5/10 [00:01<00:01, 4.9it/s, train_loss=0.31]\r"], {"epoch": 1, "train_loss": 0.31}),
        (["{'loss': 0.31, 'learning_rate': 1e-05, 'epoch': 1.2}\n"], {"epoch": 2, "loss": 0.31, "learning_rate": 1e-5}),
        (["{'loss': '0.31', 'grad_norm': '2', 'epoch': '1'}\n"], {"epoch": 1, "loss": 0.31, "grad_norm": 2.0}),
        (["epoch 1/2 step 9/20\nepoch 2/2 step 11/20\n"], {"step": 11, "total": 20}),
        (["epoch 1/2 step 10/10\nepoch 2/2 step 1/10\n"], {"step": 11, "total": 20}),
        (["epoch 1/3 step 1/500\nepoch 2/3 step 300/500\nepoch 3/3 step 9/500\n"], {"step": 1009, "total": 1500}),
        (["epoch 0/2 step 9/20\nepoch 1/2 step 11/20\n"], {"step": 11, "total": 20}),
        (["[Epoch 1/3] [100/500]\n"], {"epoch": 1, "epochs": 3, "step": 100, "total": 1500}),
        (["[Epoch 2/3] [Batch 100/500] loss: 0.3\n"], {"epoch": 2, "step": 600, "total": 1500, "loss": 0.3}),
        (["Epoch 2/50\nstep 3/50 loss 0.5\nstep 200 loss 0.4\n"], {"step": 53, "total": 2500, "loss": 0.4}),
        (["step 200 loss 0.4\n", "step 3/50 loss 0.5\n"], {"step": 3, "total": 50, "loss": 0.5}),
        (["step 200/50\n"], {"step": 200}),
        (["step 7 loss 0.5"], {}),
        (["step 7 loss 0.5", ""], {"step": 7, "loss": 0.5}),
        (["step 1", "2/500\nstep 1"], {"step": 12, "total": 500}),
        ([LOST, "step 7/9\n"], {"step": 7, "total": 9}),
        (["step 1/9\n" + LOST + "3 step 2/9\n"], {"step": 2}),
    ],
)
def test_known_lines_are_parsed(texts: list[str], expected: dict[str, float]) -> None:
    values = scanned(*texts)
    assert str(expected) == str({name: values.get(name) for name in expected})
    assert {} == expected or values.keys() <= {*expected, "epoch", "epochs", "accuracy", "val_loss", "total", "loss"}


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 00003: val_loss improved from 0.53 to 0.51, saving model to /tmp/m\n",
        "Epoch 3: LearningRateScheduler setting learning rate to 0.001.\n",
        "INFO:tensorflow:Saving checkpoints for 1000 into /tmp/model.ckpt.\n",
        "INFO:tensorflow:Saving dict for global step 1000: accuracy = 0.9, loss = 0.4\n",
        "INFO:tensorflow:Loss for final step: 0.123.\n",
        "Evaluation [10/100] step 10/100 loss 0.5\n",
        "Restored from step 1000000, loss 0.3\n",
        "Resuming from checkpoint /data/ckpt at step 500/1000\n",
        "loaded the checkpoint of global step 1000\n",
        "12/05 10:00:01 loss: 0.5\n",
        "step 3: loading the data\n",
        "10/10 [==============================] - 0s 2ms/step\n",
        "downloaded 45.3/100 MB at 3.2 MB/s\n",
        "ETA: 5 s, 3 steps/s\n",
        "stepping 3/4\n",
        "Map:  45%|####5     | 450/1000 [00:10<00:12, 44.9 examples/s]\n",
        "model.bin:  45%|####5     | 45.3M/100M [00:10<00:12, 4.5MB/s]\n",
        "Validation:  45%|####5     | 450/1000 [00:10<00:12, 44.9it/s, loss=0.31]\n",
        "{'eval_loss': 0.5, 'eval_accuracy': 0.9, 'epoch': 1.0}\n",
        "{'train_runtime': 12.3, 'train_loss': 0.3, 'epoch': 3.0}\n",
        "Config: {'loss': 'mse', 'epochs': 10}\n",
        "Epoch 3, Test Loss: 0.3\n",
        "Test Epoch 3, Loss: 0.3\n",
    ],
)
def test_other_lines_are_no_progress(line: str) -> None:
    assert {} == scanned(line)


def test_bar_of_evaluation_is_ignored() -> None:
    """`evaluate` after `fit` has no heading, and other batches."""
    bar = "10/10 [====] - 0s 2ms/step - loss: 9.9 - accuracy: 0.1\n"
    assert (140, 0.5) == itemgetter(scanned("Epoch 2/2\n70/70 - 1s - loss: 0.5\n", bar))
    assert (70, 3.24e-4) == itemgetter(scanned(K2 + BACK + K2_END, bar))


def itemgetter(values: dict[str, float]) -> tuple[Any, Any]:
    return values.get("step"), values.get("loss")


def test_only_last_bar_counts_with_replicas() -> None:
    """Keras 2 adds up all others, also the first of two with all batches."""
    summed = "70/70 [====] - ETA: 0s - loss: 0.0648 - accuracy: 1.9934"
    assert {"step": 70, "total": 140, "epoch": 1, "epochs": 2} == scanned(
        "Epoch 1/2\n" + K2 + BACK + summed + BACK, is_mirrored=True
    )
    assert {"step": 70, "total": 140, "epoch": 1, "epochs": 2} == scanned(
        "Epoch 1/2\n" + summed + "\n", is_mirrored=True
    )
    assert 3.24e-4 == scanned("Epoch 1/2\n" + summed + "\n", K2_END, is_mirrored=True)["loss"]
    assert 0.2 == scanned("step 3 loss 0.2\n", is_mirrored=True)["loss"]


def test_values_have_the_time_of_their_output() -> None:
    """Rather than that of the scan, which is later."""
    stream = Stream()
    progress = OutputProgress([lambda: stream.recent])
    stream.write("step 1/9\n")
    assert {"step": 1, "total": 9, "_time": 6.0} == progress.scan()
    assert {} == progress.scan()


def test_pattern_replaces_known_lines() -> None:
    pattern = r"it (?P<step>[\d,]+) of (?P<total>\d+)(?: l=(?P<loss>\S+))?(?: t=(?P<temperature>\S+))?"
    assert {} == scanned("step 3/7 loss 0.2\n", pattern=pattern)
    assert {"step": 1200, "total": 9000} == scanned("it 1,200 of 9000 l=low\n", pattern=pattern)
    assert {"step": 3, "total": 7, "loss": 0.5, "temperature": 1e-3} == scanned(
        "it 3 of 7 l=0.5 t=1e-3\n", pattern=pattern
    )


def test_slow_pattern_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stop the executor's other threads."""
    monkeypatch.setattr(output_lines, "_PATTERN_TIME", -1.0)
    assert {"step": 1} == scanned("it 1\n", "it 2\n", pattern=r"it (?P<step>\d+)")


@pytest.mark.parametrize("line", ["1" * MAX_LINE, "." * MAX_LINE], ids="1.")
@pytest.mark.parametrize("end", [r"(?P<a>\d+)x", r"(?P<a>.+)-", r".*\d(?P<a>\d*)"])
def test_slowest_accepted_pattern_takes_milliseconds(line: str, end: str) -> None:
    """It holds the lock of the interpreter, which heartbeats need."""
    pattern = r"(?:.|\d)(?:.|\d)(?:.|\d)(?:.)?" + end
    parse_line_pattern(pattern)
    before = time.process_time()
    scanned(line + "\n", pattern=pattern)
    assert time.process_time() - before < 0.5


HOSTILE = [
    "a" * 10**6,
    "1" * 10**6,
    " " * 10**6,
    "step " * 10**5,
    "loss: " * 10**5,
    "epoch 1 step 1 loss 1 " * 10**4,
    "a." * 10**5,
    "\x1b[" + "1;" * 10**5,
    "step" + " " * 10**5 + "1",
    "1/1 [" + "=" * 10**5,
    "a=" + "1." * 10**5,
    "1%|" * 10**5,
    "{'loss': " + "'epoch': 1" * 10**5,
]


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: line[:8].strip())
def test_any_line_is_parsed_in_linear_time(line: str) -> None:
    """Of which only 4 KB are parsed."""
    before = time.process_time()
    scanned(line + "\n", line + "\r", line, "")
    assert time.process_time() - before < 1.0


@given(st.lists(st.binary(max_size=200) | st.sampled_from([b"Epoch 1/2\n", K3.encode(), b"\r", b"\n"]), max_size=8))
def test_any_bytes_are_parsed(chunks: list[bytes]) -> None:
    stream = Stream()
    progress = OutputProgress([lambda: stream.recent])
    for chunk in chunks:
        stream.write(chunk)
        progress.scan()
    assert all(len(lines._rest) <= MAX_LINE for lines in progress._streams)


# With real processes.


def test_printed_steps_reach_the_scheduler(executor: Any) -> None:
    """Also the last line, which is printed just before the exit."""
    executor.launch("echo 'step 1/3 loss 0.5'; echo 'step 3/3 loss 0.25' >&2", progress_from_output=True)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    last = executor.messages[-1]
    assert (3, 3, 0.25, "output") == (last["step"], last["total"], last["loss"], last["source"])


def test_printed_steps_can_be_ignored(executor: Any) -> None:
    executor.launch("echo 'step 1/3 loss 0.5'")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert [] == executor.messages


def test_first_printed_step_is_reported_within_two_seconds(executor: Any) -> None:
    """While the program continues."""
    program = "date +%s.%N > printed; echo 'global step 120'; exec sleep 60"
    executor.launch_running(program, progress_from_output=True)
    message = executor.await_message()
    printed = float(executor.await_file("printed"))
    assert (120, True) == (message["step"], message["time"] < printed + 2)
