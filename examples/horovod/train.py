"""Train a classifier of handwritten digits with Horovod: every worker holds the model, gloo adds up their gradients.

Start the same command once for each worker. The variables that horovodrun sets tell each who it is and where all meet.
Rank 0 writes a checkpoint after every epoch. It reads the newest when all are started again, and the others get its
variables, so that they go on after the last finished epoch.

The data are the 1797 images of scikit-learn, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 32  # images per step and worker
SEED = 0


def main() -> int:
    """Train, test, and return the exit status: 0 when the test accuracy reaches the target."""
    parser = argparse.ArgumentParser(description="Train a digits classifier with the workers that Horovod starts.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for checkpoints, of rank 0")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--target", type=float, default=0.95, help="test accuracy to reach (default: %(default)s)")
    options = parser.parse_args()
    hvd.init()
    images, test_images, labels, test_labels = load_data()
    tf.keras.utils.set_random_seed(SEED)
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    model, optimizer = tf.keras.Sequential(layers), tf.keras.optimizers.Adam(0.003)
    optimizer.build(model.trainable_variables)
    epoch = tf.Variable(0, dtype=tf.int64)
    saver = None
    if hvd.rank() == 0:
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
        saver = tf.train.CheckpointManager(checkpoint, str(options.model_dir), max_to_keep=2)
        saver.restore_or_initialize()
    hvd.broadcast_variables([epoch, *model.variables, *optimizer.variables], root_rank=0)
    if int(epoch):
        print(f"resumed after epoch {int(epoch)}", flush=True)
    train(model, optimizer, epoch, saver, (images, labels), options.epochs)
    return test(model, test_images, test_labels, options.target) if hvd.rank() == 0 else 0


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: images are 64 numbers in 0..1, labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    return list(train_test_split((images / 16).astype("float32"), labels, test_size=0.2, random_state=SEED))


def train(model: Any, optimizer: Any, epoch: Any, saver: Any, data: Any, epochs: int) -> None:
    """Train the epochs that are missing, with a checkpoint of rank 0 after each."""
    size = len(data[1]) // hvd.size()
    shard = tf.data.Dataset.from_tensor_slices(data).shard(hvd.size(), hvd.rank())
    batches = iter(shard.shuffle(size, seed=SEED).repeat().batch(BATCH, drop_remainder=True))

    @tf.function
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
            loss = tf.reduce_mean(losses)
        averaging = hvd.DistributedGradientTape(tape)  # over all workers
        gradients = averaging.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return hvd.allreduce(loss)

    while int(epoch) < epochs:
        loss = [float(step(*next(batches))) for _ in range(size // BATCH)][-1]
        epoch.assign_add(1)
        if saver is not None:
            saver.save()
        print(f"epoch {int(epoch)}: loss {loss:.4f}, {hvd.size()} workers", flush=True)


def test(model: Any, images: Any, labels: Any, target: float) -> int:
    """Print the accuracy on images that the model has not seen. Return 0 if that reaches the target, else 1."""
    accuracy = float((model(images).numpy().argmax(axis=1) == labels).mean())
    print(f"test accuracy {accuracy:.4f} on {len(labels)} images", flush=True)
    if accuracy < target:
        print(f"the test accuracy {accuracy:.4f} is below the target {target}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
