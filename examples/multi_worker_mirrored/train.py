"""Train a classifier of handwritten digits with TensorFlow's MultiWorkerMirroredStrategy.

Start the same command once for each worker. TF_CONFIG tells each who it is. All hold the same variables, compute
gradients on their share of each batch, and add them up over the network: no worker waits for a server, all wait for
each other. Worker 0 writes a checkpoint after every epoch. All read it when they are started again, so that they go on
after the last finished epoch.

The data are the 1797 images that scikit-learn brings along, so nothing is downloaded.

Why a loop of its own: since TensorFlow 2.16 tf.keras is Keras 3, whose Model.fit does not work with this strategy.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 64  # images per step, of all workers together
SEED = 0


def main() -> int:
    """Train, test, and return the exit status: 0 when the test accuracy reaches the target."""
    parser = argparse.ArgumentParser(description="Train a digits classifier with the workers that TF_CONFIG names.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for checkpoints, that all share")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--target", type=float, default=0.95, help="test accuracy to reach (default: %(default)s)")
    options = parser.parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, test_images, labels, test_labels = load_data()
    epoch = tf.Variable(0, dtype=tf.int64)  # each counts for itself
    with strategy.scope():
        model, optimizer = build_model(), tf.keras.optimizers.Adam(0.003)
        # Before it is restored from, the optimizer must have its variables.
        optimizer.build(model.trainable_variables)
    leads = strategy.cluster_resolver.task_id == 0
    with tempfile.TemporaryDirectory() as scratch:
        # All workers have to write, because they write together; what the others write is nobody's.
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
        newest = tf.train.latest_checkpoint(str(options.model_dir))
        saver = tf.train.CheckpointManager(checkpoint, str(options.model_dir) if leads else scratch, max_to_keep=2)
        if newest:
            checkpoint.restore(newest)
            print(f"resumed after epoch {int(epoch)}", flush=True)
        train(strategy, model, optimizer, epoch, saver, (images, labels), options.epochs)
    return test(model, test_images, test_labels, options.target) if leads else 0


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: images are 64 numbers in 0..1, labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    return list(train_test_split((images / 16).astype("float32"), labels, test_size=0.2, random_state=SEED))


def build_model() -> tf.keras.Model:
    tf.keras.utils.set_random_seed(SEED)
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    return tf.keras.Sequential(layers)


def train(strategy: Any, model: Any, optimizer: Any, epoch: Any, saver: Any, data: Any, epochs: int) -> None:
    """Train the epochs that are missing, with a checkpoint after each."""
    size = len(data[1])
    whole = tf.data.Dataset.from_tensor_slices(data).shuffle(size, seed=SEED).repeat().batch(BATCH, drop_remainder=True)
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = iter(strategy.experimental_distribute_dataset(whole.with_options(sharding)))

    def replica_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
            loss = tf.reduce_sum(losses) / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, args=next(iterator)), axis=None)

    while int(epoch) < epochs:
        loss = [float(step(batches)) for _ in range(size // BATCH)][-1]
        epoch.assign_add(1)
        saver.save()
        print(f"epoch {int(epoch)}: loss {loss:.4f}, {strategy.num_replicas_in_sync} replicas", flush=True)


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
