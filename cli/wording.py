"""What the command line calls options and commands, which messages have in Python between backticks."""

import ast
import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from rtlstm.cli.commands import COMMANDS, find_command
from rtlstm.spec.errors import ToolError

_BARE: Final = object()
"""No value: only the option's name is given."""
_QUOTED = re.compile(r"""`((?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[^`'"\n])+)`""")
"""What stands between backticks; texts within it may have some, too."""


def worded(text: str) -> str:
    """Return a message with flags and commands in the place of Python's options and calls."""
    return _QUOTED.sub(lambda found: _worded(found[1]) or found[0], text) if "`" in text else text


def _worded(python: str) -> str | None:
    """``lanes``, ``lanes=4, macs=2`` or ``Build('b').simulate(batches=3)`` as typed; None for other texts."""
    try:
        outer = ast.parse(f"_({python})", mode="eval").body
        match outer:
            case ast.Call(args=[ast.Name(name)], keywords=[]):
                return as_typed(name)
            case ast.Call(args=[], keywords=options):
                return _typed_keywords(options)
            case ast.Call(args=[ast.Call(func=called, keywords=options)], keywords=[]):
                match called:
                    case ast.Attribute(ast.Call(ast.Name("Build"), [ast.Constant(str(folder))]), command):
                        return f"rtlstm {command} {shlex.quote(folder)} {_typed_keywords(options)}".rstrip()
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError, ToolError):
        pass  # A name that a file chose, or another program's word; a wheel lacks a command's options.
    return None


def _typed_keywords(options: list[ast.keyword]) -> str:
    return " ".join(as_typed(each.arg or "", ast.literal_eval(each.value)) for each in options)


def as_typed(name: str, value: Any = _BARE) -> str:
    """Return an option by its name in Python, and its value, as they are typed.

    Raises
    ------
    LookupError
        If no command has it.
    """
    if isinstance(value, Mapping):
        # One option for each: capacities={"headroom": 4} is --capacity headroom=4.
        return typed_options("--capacity", [f"{key.replace('_', '-')}={each}" for key, each in value.items()])
    yes, no = _flags(name, isinstance(value, bool))
    if value is _BARE or value is True:
        return yes
    values = list(value) if isinstance(value, list | tuple) else [value]
    return no if value is False else typed_options(yes, values)


@cache
def _flags(name: str, switch: bool) -> tuple[str, str]:
    """What an option is called, and what turns it off: in ``generate``, or the first command that has it.

    ``implement`` has a switch of the name that an option of ``generate`` with other values has.
    """
    for command in ("generate", *COMMANDS):
        for each in find_command(command).params:
            if each.name == name and each.opts[-1].startswith("--") and (each.is_flag or not switch):
                return each.opts[-1], (each.secondary_opts or ["--no-" + each.opts[-1][2:]])[-1]
    raise LookupError(f"no command has an option {name}")


def typed_options(flag: str, values: list[Any]) -> str:
    """Return an option once for each value, quoted where a shell needs that."""
    texts = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return " ".join(f"{flag} {shlex.quote(text)}" for text in texts)


def chosen_for(fit: Mapping[str, Any]) -> str:
    """Say what the sizes of an array were chosen for, from the JSON object of a ``Fit``."""
    from rtlstm.fpga.fit import Fit

    link = ", its link counted in" if fit["estimate"]["board"] else ""
    return (
        f"Sizes chosen for {fit['device']}{link}, with the {fit['pipeline']} pipeline, of {fit['tried']:,} "
        f"worked out; {Fit.model_validate(fit).limit_text}."
    )


def next_command(command: str, folder: object, **options: object) -> str:
    """Return a command for what a command before made, as it is typed."""
    texts = (typed_options(f"--{name}", [value]) for name, value in options.items())
    return " ".join([f"rtlstm {command} {shlex.quote(str(folder))}", *texts])
