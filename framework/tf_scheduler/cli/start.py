"""Where `dcos-tensorflow` begins: Ctrl-C is quiet from the first moment on."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the commands, then run one; ends the process.

    While modules load there is nothing to clean up, so that the signal itself may end the process, as it would end one
    without a handler: shells say 130, and nobody sees a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        from .main import main as run

        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        # Ignored by whoever started us, as shells do for jobs in the background.
        from .main import main as run
    run()
