"""Train a classifier of handwritten digits in a loop of its own: TensorFlow's ClusterCoordinator hands out its steps.

Start the same command once for each task of a cluster: a chief, parameter servers (ps) and workers. TF_CONFIG tells
each task who it is. The ps holds the variables. The chief schedules the steps of an epoch. Each worker takes the next
one when it is done with one, reads a batch of its own data, and applies its gradients without waiting for the others.
A step whose worker is lost is done again by another. After every epoch the chief writes a checkpoint. A chief that is
started again with the same --model-dir goes on after the last finished epoch.

The data are the 1797 images of scikit-learn, so nothing is downloaded.

Why Keras 2 (the package tf_keras): since TensorFlow 2.16 tf.keras is Keras 3. The variables of its optimizers lose
updates here, because they store "old value + change" instead of adding on the ps.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # must be set before the import: tf.keras is then tf_keras

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 32  # images per step
# The chief writes and reads the variables of the ps. Otherwise each ps does, in a folder that has to be the same.
ON_CHIEF = tf.train.CheckpointOptions(experimental_io_device="/job:chief/replica:0/task:0/device:CPU:0")


def main() -> int:
    """Run the task that TF_CONFIG names and return its exit status. A ps or a worker serves until it is ended."""
    parser = argparse.ArgumentParser(description="Train a digits classifier on the cluster that TF_CONFIG describes.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for the chief's checkpoints")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--target", type=float, default=0.95, help="test accuracy to reach (default: %(default)s)")
    options = parser.parse_args()
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if cluster.task_type in ("ps", "worker"):
        serve(cluster)
    images, test_images, labels, test_labels = load_data()
    model = train(cluster, (images, labels), options.model_dir, options.epochs)
    return test(model, test_images, test_labels, options.target)


def serve(cluster: Any) -> None:
    """Serve the chief. Never returns: a ps or a worker does not learn that training is over."""
    # Steps wait for variables on the ps; with fewer threads than waiting workers a small machine could stand still.
    # MAX_WORKERS is set where workers may join later.
    workers = int(os.environ.get("MAX_WORKERS", cluster.cluster_spec().num_tasks("worker")))
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=workers + 1)
    server = tf.distribute.Server(cluster.cluster_spec(), cluster.task_type, cluster.task_id, "grpc", config)
    print(f"{cluster.task_type} {cluster.task_id} is ready", flush=True)
    server.join()


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: images are 64 numbers in 0..1, labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    return list(train_test_split((images / 16).astype("float32"), labels, test_size=0.2, random_state=0))


def train(cluster: Any, data: Any, model_dir: Path, epochs: int) -> tf.keras.Model:
    """Train the epochs that are missing, as the chief, with a checkpoint after each. Return the model."""
    print("waiting for every ps and worker", flush=True)
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = build_model(), tf.keras.optimizers.Adam(0.003)
        # Its variables have to be there before they are restored, and before the workers trace their step.
        optimizer.build(model.trainable_variables)
    epoch = tf.Variable(0, dtype=tf.int64)  # the chief's own: a step that is done twice does not count twice
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    saver = tf.train.CheckpointManager(checkpoint, str(model_dir / "checkpoints"), max_to_keep=2)
    if saver.latest_checkpoint:
        checkpoint.restore(saver.latest_checkpoint, options=ON_CHIEF)
        print(f"resumed after epoch {int(epoch)}", flush=True)

    step = make_step(strategy, model, optimizer)
    batches = iter(coordinator.create_per_worker_dataset(lambda: endless(data)))
    steps, curve = len(data[1]) // BATCH, tf.summary.create_file_writer(str(model_dir / "curve"))
    while int(epoch) < epochs:
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
        coordinator.join()  # raises what a step raised, and when a ps is lost
        loss = sum(float(loss) for loss in coordinator.fetch(losses)) / steps
        epoch.assign_add(1)
        saver.save(options=ON_CHIEF)
        print(f"epoch {int(epoch)}: loss {loss:.4f}", flush=True)
        with curve.as_default(step=int(epoch) * steps):  # for TensorBoard
            tf.summary.scalar("loss", loss)
            tf.summary.scalar("examples", int(epoch) * steps * BATCH)
        curve.flush()
    return model


def build_model() -> tf.keras.Model:
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    return tf.keras.Sequential(layers)


def endless(data: Any) -> tf.data.Dataset:
    """Runs on each worker: an endless stream of all images with their labels, in an order of its own."""
    return tf.data.Dataset.from_tensor_slices(data).shuffle(len(data[1])).repeat().batch(BATCH).prefetch(2)


def make_step(strategy: Any, model: Any, optimizer: Any) -> Any:
    """What a worker does with its next batch; it returns the loss."""

    def replica_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(batches: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(replica_step, args=next(batches)), axis=None)

    return step


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
