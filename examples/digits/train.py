"""Train a classifier of handwritten digits with TensorFlow's ParameterServerStrategy.

Start the same command once for each task of a cluster: a chief, parameter servers (ps) and workers. TF_CONFIG tells
each task who it is. The ps holds the variables. The workers compute gradients and apply them without waiting for each
other. The chief hands out the steps, writes a checkpoint after every epoch, and at the end saves the model and tests
what it saved. A chief that is started again with the same --model-dir goes on after the last finished epoch.

The data are the 1797 images of scikit-learn, so nothing is downloaded.

Why Keras 2 (the package tf_keras): since TensorFlow 2.16 tf.keras is Keras 3. Its Model.fit refuses this strategy, and
in a hand-written loop its variables lose updates, because they store "old value + change" instead of adding on the ps.
The Model.fit of Keras 2 schedules the steps, goes on when a worker is lost and found again, and restores checkpoints.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # must be set before the import: tf.keras is then tf_keras

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 32  # images per step
SEED = 0


def main() -> int:
    """Run the task that TF_CONFIG names and return its exit status. A ps or a worker serves until it is ended."""
    options = parse_arguments()
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if cluster.task_type in ("ps", "worker"):
        serve(cluster)
    model_file = train(cluster, options.model_dir, options.epochs, options.until)
    return test(model_file, options.target)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a digits classifier on the cluster that TF_CONFIG describes.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for checkpoints and the model")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--until", type=Path, help="train on, beyond --epochs, until this file is there")
    parser.add_argument("--target", type=float, default=0.95, help="test accuracy to reach (default: %(default)s)")
    return parser.parse_args()


def serve(cluster: Any) -> None:
    """Serve the chief. Never returns: a ps or a worker does not learn that training is over."""
    # Steps wait for variables on the ps; with fewer threads than waiting workers a small machine could stand still.
    # MAX_WORKERS is set where workers may join later.
    workers = int(os.environ.get("MAX_WORKERS", cluster.cluster_spec().num_tasks("worker")))
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=workers + 1)
    server = tf.distribute.Server(cluster.cluster_spec(), cluster.task_type, cluster.task_id, "grpc", config)
    print(f"{cluster.task_type} {cluster.task_id} is ready", flush=True)
    server.join()


def train(cluster: Any, model_dir: Path, epochs: int, until: Path | None = None) -> Path:
    """Train as the chief, from the last checkpoint if there is one. Return the file of the saved model."""
    images, _, labels, _ = load_data()
    tf.keras.utils.set_random_seed(SEED)
    print("waiting for every ps and worker", flush=True)
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    with strategy.scope():
        model = build_model()

    def batches(_context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Runs on each worker: an endless stream of all images, in an order of its own."""
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        return data.shuffle(len(images)).repeat().batch(BATCH).prefetch(2)

    # The checkpoint stays at the end: a chief lost between training and testing need not train again.
    backup = tf.keras.callbacks.BackupAndRestore(str(model_dir / "checkpoints"), delete_checkpoint=False)
    model.fit(
        tf.keras.utils.experimental.DatasetCreator(batches),
        epochs=sys.maxsize if until else epochs,
        steps_per_epoch=len(images) // BATCH,  # by all workers together
        callbacks=[backup, Progress(epochs, until), Curve(model_dir / "curve")],
        verbose=0,
    )
    model_file = model_dir / "digits.keras"
    model.save(model_file)
    return model_file


def build_model() -> tf.keras.Model:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: images are 8 x 8 x 1 in 0..1, labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    return list(train_test_split(images, labels, test_size=0.2, random_state=SEED, stratify=labels))


class Progress(tf.keras.callbacks.Callback):
    """Prints one line for each epoch, and where training goes on when it started from a checkpoint.

    Ends it after `epochs` when the file `until` is there.
    """

    started: float | None = None

    def __init__(self, epochs: int, until: Path | None) -> None:
        super().__init__()
        self.epochs, self.until = epochs, until

    def on_epoch_begin(self, epoch: int, _logs: dict[str, float] | None = None) -> None:
        if self.started is None and epoch > 0:
            print(f"resumed after epoch {epoch}", flush=True)
        self.started = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        result = f"loss {logs['loss']:.4f}, accuracy {logs['accuracy']:.4f}"
        print(f"epoch {epoch + 1}: {result}, {time.monotonic() - self.started:.1f} s", flush=True)
        if self.until and epoch + 1 >= self.epochs and self.until.exists():
            self.model.stop_training = True


class Curve(tf.keras.callbacks.Callback):
    """Write the loss and the number of images to event files, for TensorBoard and the executor."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = tf.summary.create_file_writer(str(folder))

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        steps = (epoch + 1) * self.params["steps"]
        with self.file.as_default():
            tf.summary.scalar("loss", logs["loss"], step=steps)
            tf.summary.scalar("examples", steps * BATCH, step=steps)
        self.file.flush()


def test(model_file: Path, target: float) -> int:
    """Print the accuracy of the saved model on images it has not seen. Return 0 if that reaches the target, else 1."""
    _, images, _, labels = load_data()
    _, accuracy = tf.keras.models.load_model(model_file).evaluate(images, labels, verbose=0)
    print(f"test accuracy {accuracy:.4f} on {len(labels)} images; model saved in {model_file}", flush=True)
    if accuracy < target:
        print(f"the test accuracy {accuracy:.4f} is below the target {target}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
