"""The command `ansc`."""

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command of `sys.argv`, and returns its exit code."""
    # Ctrl-C ends the command, as it does others: no code of Python runs meanwhile that it could be
    # an exception in.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main(["ansc", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
