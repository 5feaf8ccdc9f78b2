"""Where `dcos-tensorflow` begins: Ctrl-C is quiet from the first moment on."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable


def main() -> None:
    """Load the commands, then run one; ends the process.

    While modules load there is nothing to clean up, so that the signal itself may end the process, as it would end one
    without a handler: shells say 130, and nobody sees a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        run = _loaded()
        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        # Ignored by whoever started us, as shells do for jobs in the background.
        run = _loaded()
    run()


def _loaded() -> Callable[[], None]:
    """What modules leave behind stays: the garbage collector need not look through it, then nor later."""
    gc.disable()
    from .main import main as run

    gc.freeze()
    gc.enable()
    return run
