"""Train a classifier of handwritten digits on data that other processes prepare: tf.data service.

DATA_SERVICE_ADDRESS says where its dispatcher is. This process describes the data set; the workers of the data service
run it, here with distortions that keep a CPU busy, and send the batches. The model is trained as usual, so the
accelerator of a trainer need not wait for its CPU.

The data are the 1797 images of scikit-learn, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 32


def main() -> int:
    """Train and test; return 0 when the test accuracy reaches the target."""
    parser = argparse.ArgumentParser(description="Train a digits classifier on batches of a tf.data service.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--target", type=float, default=0.9, help="test accuracy to reach (default: %(default)s)")
    options = parser.parse_args()
    images, test_images, labels, test_labels = load_data()
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
    model.fit(prepared(images, labels), epochs=options.epochs, verbose=2)
    _, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"test accuracy {accuracy:.4f} on {len(test_labels)} images", flush=True)
    if accuracy < options.target:
        print(f"the test accuracy {accuracy:.4f} is below the target {options.target}", file=sys.stderr)
        return 1
    return 0


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: images are 64 numbers in 0..1, labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    return list(train_test_split((images / 16).astype("float32"), labels, test_size=0.2, random_state=0))


def prepared(images: Any, labels: Any) -> tf.data.Dataset:
    """Batches; what is before `distribute` runs in the data service."""
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images))
    data = data.map(lambda image, label: (image + tf.random.normal((64,), stddev=0.05), label)).batch(BATCH)
    service = os.environ["DATA_SERVICE_ADDRESS"]
    policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
    return data.apply(tf.data.experimental.service.distribute(policy, service)).prefetch(2)


if __name__ == "__main__":
    sys.exit(main())
