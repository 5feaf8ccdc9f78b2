"""Training program of side_by_side.py with the Keras model of examples/digits.

Start it once for each task, with TF_CONFIG: a chief, a parameter server, workers. The chief prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # examples/digits/train.py says why

import tensorflow as tf
from sklearn.datasets import load_digits

BATCH, STEPS = 32, 50  # images per step, steps per epoch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    epochs = max(1, parser.parse_args().steps // STEPS)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if cluster.task_type in ("ps", "worker"):
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=cluster.cluster_spec().num_tasks("worker") + 1)
        tf.distribute.Server(cluster.cluster_spec(), cluster.task_type, cluster.task_id, "grpc", config).join()
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    with strategy.scope():
        model = built()
    data = tf.keras.utils.experimental.DatasetCreator(batches())
    # Keras calls nothing after a batch with this strategy; after an epoch all of its batches are done.
    model.fit(data, epochs=1, steps_per_epoch=1, verbose=0)
    first = time.time()
    model.fit(data, epochs=epochs, steps_per_epoch=STEPS, verbose=0)
    speed = BATCH * STEPS * epochs / (time.time() - first)
    print(json.dumps({"first": first, "examples_per_second": speed}), flush=True)


def batches() -> Any:
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)

    def endless(_context: tf.distribute.InputContext) -> tf.data.Dataset:
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        return data.shuffle(len(images)).repeat().batch(BATCH).prefetch(2)

    return endless


def built() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


if __name__ == "__main__":
    main()
