"""The program ``rtlstm``, which is also ``python -m rtlstm``."""

import sys
from typing import NoReturn

_INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main() -> NoReturn:
    """Import the command line, which takes some tenths of a second, and run it."""
    try:
        from rtlstm import _import
        from rtlstm.spec.errors import ToolError

        try:
            command_line = _import("rtlstm.cli.main", "the command line")
        except ToolError as error:
            sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        # Later the command line itself says so.
        sys.stderr.write("error: interrupted\n")
        sys.exit(_INTERRUPTED)
    sys.exit(command_line.main())


if __name__ == "__main__":
    main()
