"""Train several models in parallel, one in each process, without communication.

Each process reads its number from SHARD_INDEX and the number of processes from NUM_SHARDS. It takes its share of the
settings, trains a classifier of handwritten digits with each, and writes each result to a file. A setting with a file
is skipped, so that a restarted process continues where it stopped.

The data are the 1797 images of scikit-learn, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

#: Width of the hidden layer, learning rate.
SETTINGS = [(width, rate) for width in (16, 32) for rate in (0.001, 0.003, 0.01)]


def main() -> None:
    """Try every NUM_SHARDS-th setting, from SHARD_INDEX on."""
    parser = argparse.ArgumentParser(description="Try this process's share of the settings.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for the results, the same for all")
    folder = parser.parse_args().model_dir
    folder.mkdir(parents=True, exist_ok=True)
    index, count = int(os.environ["SHARD_INDEX"]), int(os.environ["NUM_SHARDS"])
    for number in range(index, len(SETTINGS), count):
        result = folder / f"setting-{number}.json"
        if not result.exists():
            keep(result, attempt(*SETTINGS[number]))
        print(f"setting {number} of {len(SETTINGS)}: {result.read_text()}", flush=True)


def attempt(width: int, rate: float) -> dict[str, float]:
    """Train with one setting; what it was, and how well it does on images that it has not seen."""
    images, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(images / 16, labels, test_size=0.2, random_state=0)
    model = MLPClassifier((width,), learning_rate_init=rate, max_iter=40, early_stopping=True, random_state=0)
    model.fit(train, train_labels)
    return {"width": width, "rate": rate, "accuracy": round(model.score(test, test_labels), 4)}


def keep(file: Path, result: dict[str, float]) -> None:
    """Write atomically: the process may be killed at any moment."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(result))
    part.rename(file)


if __name__ == "__main__":
    main()
