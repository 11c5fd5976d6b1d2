"""``python -m rtlstm``: the command line."""

import sys

from rtlstm import _import
from rtlstm.spec.errors import ToolError

try:
    main = _import("rtlstm.cli.main", "the command line").main
except ToolError as error:
    sys.exit(f"error: {error}")
main()
