"""``python -m rtlstm``: the command line."""

from rtlstm.cli.main import main

main()
