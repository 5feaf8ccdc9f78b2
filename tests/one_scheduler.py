"""One scheduler process: one_scheduler.py OPTIONS MASTER STATE

Prints `leads` when it does, the log, and at the end the verdict.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

from tf_scheduler.cli.files import load_options
from tf_scheduler.cli.service import Service


def main(options: str, master: str, state: str) -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    ended = threading.Event()
    with Service(load_options(Path(options)), master, state, on_end=ended.set) as service:
        print("leads", flush=True)
        ended.wait()
    if service.error is not None:
        raise service.error
    print("verdict", service.state.result.verdict.value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
