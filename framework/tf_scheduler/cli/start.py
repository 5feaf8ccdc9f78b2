"""Entry point of `dcos-tensorflow`; Ctrl-C while modules load prints no traceback."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the commands and run one, then exit.

    While modules load, SIGINT keeps its default action, so that Ctrl-C prints no traceback; shells report 130.
    """
    # A background job of a shell ignores SIGINT; this must stay so.
    handles_sigint = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_sigint:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .main import main as run

    if handles_sigint:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
