"""``python -m rtlstm``: the command line."""

from rtlstm.gen.cli import main

main()
