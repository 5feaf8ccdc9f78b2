"""One scheduler process: one_scheduler.py OPTIONS MASTER STATE

Prints `leads` when it leads, its log, and the verdict at the end.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from kit.scheduler_process import build_process
from tf_scheduler.cli.common.options_file import load_options


def main(options: str, master: str, state: str) -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    process = build_process(load_options(Path(options)), master, state)
    print("leads", flush=True)
    process.run()
    print("verdict", process.runner.state.stored.result.verdict.value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
