"""Train a classifier of digits with PyTorch's DistributedDataParallel.

Start the same command once for each worker. MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE tell each who it is and where
all meet, as torchrun sets them. All hold the same model, compute gradients on their share of the images, and average
them over the network. Rank 0 writes a checkpoint after every epoch. All read it when they are started again, so that
they go on after the last finished epoch.

The data are digits of five by three pixels, drawn somewhere into a noisy image: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH = 32  # images per step and worker
SIDE = 8  # pixels
#: Rows of each digit from the top, a bit for a pixel, the left one first.
DIGITS = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71244", "75757", "75717")


def main() -> int:
    """Train, test, and return the exit status: 0 when the test accuracy reaches the target."""
    parser = argparse.ArgumentParser(description="Train a digits classifier with the workers that WORLD_SIZE counts.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for checkpoints, that all share")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--target", type=float, default=0.95, help="test accuracy to reach (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")  # a worker sees only its own GPUs
    print(f"training on {device}", file=sys.stderr, flush=True)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        data, images = ([part.to(device) for part in draw(count, seed)] for count, seed in ((2000, 1), (500, 2)))
        model = train(data, options.model_dir / "checkpoint.pt", options.epochs)
        return test(model, *images, options.target) if distributed.get_rank() == 0 else 0
    finally:
        distributed.destroy_process_group()


def draw(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, count x 1 x 8 x 8 numbers around 0 and 1, and which digits they show. The same for the same seed."""
    chance = torch.Generator().manual_seed(seed)
    glyphs = torch.tensor([[[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in digit] for digit in DIGITS])
    labels = torch.randint(len(DIGITS), (count,), generator=chance)
    images = 0.2 * torch.randn(count, SIDE, SIDE, generator=chance)
    tops = torch.randint(SIDE - 4, (count,), generator=chance).tolist()
    lefts = torch.randint(SIDE - 2, (count,), generator=chance).tolist()
    for image, label, top, left in zip(images, labels.tolist(), tops, lefts, strict=True):
        image[top : top + 5, left : left + 3] += glyphs[label]
    return images.unsqueeze(1), labels


def train(data: list[torch.Tensor], file: Path, epochs: int) -> nn.Module:
    """Train the epochs that are missing, with a checkpoint after each. Return the model."""
    torch.manual_seed(0)
    # Looks for 64 shapes of a digit's size, wherever in the image they are.
    layers = [nn.Conv2d(1, 64, (5, 3)), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    device = data[0].device
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer, judge = torch.optim.Adam(model.parameters(), 0.01), nn.CrossEntropyLoss()
    first = 0
    if file.exists():
        found = torch.load(file, map_location=device)
        model.module.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        first = found["epoch"]
        print(f"resumed after epoch {first}", flush=True)
    images = TensorDataset(*data)
    sampler = DistributedSampler(images)  # gives each worker other images
    loader = DataLoader(images, BATCH, sampler=sampler)
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)  # another order each time
        total = torch.zeros((), device=device)
        for batch, labels in loader:
            optimizer.zero_grad()
            loss = judge(model(batch), labels)
            loss.backward()  # averages the gradients of all workers
            optimizer.step()
            total += loss.detach()
        distributed.all_reduce(total)
        if distributed.get_rank() == 0:
            content = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            keep(file, content)
        steps = len(loader) * distributed.get_world_size()
        print(f"epoch {epoch + 1}: loss {total / steps:.4f}, {distributed.get_world_size()} workers", flush=True)
    return model.module


def keep(file: Path, content: dict[str, object]) -> None:
    """Write atomically: the process may be killed at any moment."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    torch.save(content, part)
    part.rename(file)


@torch.no_grad()
def test(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, target: float) -> int:
    """Print the accuracy on images that the model has not seen. Return 0 if that reaches the target, else 1."""
    accuracy = float((model(images).argmax(dim=1) == labels).float().mean())
    print(f"test accuracy {accuracy:.4f} on {len(labels)} images", flush=True)
    if accuracy < target:
        print(f"the test accuracy {accuracy:.4f} is below the target {target}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
