"""Train a classifier of handwritten digits, and evaluate its checkpoints beside the training.

Start it once as a worker and once as an evaluator: TF_CONFIG says which. The worker writes a checkpoint after every
epoch and knows nothing of the evaluator. The evaluator waits for each new checkpoint, measures how it does on images
that the training has not seen, and ends after the last one. Both write summaries that TensorBoard shows.

The data are the 1797 images of scikit-learn, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    """Run the task that TF_CONFIG names."""
    parser = argparse.ArgumentParser(description="Train a digits classifier, or evaluate its checkpoints.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for checkpoints and summaries")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the training data (default: %(default)s)")
    options = parser.parse_args()
    job = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
    images, test_images, labels, test_labels = load_data()
    model, epoch = build_model(), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, epoch=epoch)
    if job == "evaluator":
        evaluate(checkpoint, options.model_dir, options.epochs, (test_images, test_labels))
    else:
        train(checkpoint, options.model_dir, options.epochs, (images, labels))


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: images are 64 numbers in 0..1, labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    return list(train_test_split((images / 16).astype("float32"), labels, test_size=0.2, random_state=0))


def build_model() -> tf.keras.Model:
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
    return model


def train(checkpoint: Any, folder: Path, epochs: int, data: Any) -> None:
    """Train the epochs that are missing, with a checkpoint after each."""
    saver = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=epochs)
    if saver.restore_or_initialize():
        print(f"resumed after epoch {int(checkpoint.epoch)}", flush=True)
    with tf.summary.create_file_writer(str(folder / "train")).as_default():
        while int(checkpoint.epoch) < epochs:
            loss = checkpoint.model.fit(*data, verbose=0).history["loss"][0]
            checkpoint.epoch.assign_add(1)
            tf.summary.scalar("loss", loss, step=checkpoint.epoch)
            saver.save()
            print(f"epoch {int(checkpoint.epoch)}: loss {loss:.4f}", flush=True)


def evaluate(checkpoint: Any, folder: Path, epochs: int, data: Any) -> None:
    """Wait for checkpoints, and evaluate the newest each time, until the last epoch is done."""
    with tf.summary.create_file_writer(str(folder / "evaluation")).as_default():
        for path in tf.train.checkpoints_iterator(str(folder), min_interval_secs=0):
            checkpoint.restore(path).expect_partial()
            _, accuracy = checkpoint.model.evaluate(*data, verbose=0)
            tf.summary.scalar("accuracy", accuracy, step=checkpoint.epoch)
            print(f"checkpoint of epoch {int(checkpoint.epoch)}: test accuracy {accuracy:.4f}", flush=True)
            if int(checkpoint.epoch) >= epochs:
                return


if __name__ == "__main__":
    main()
