"""The page ``docs/options.md``: what the commands take, from what declares it.

``python -m rtlstm.cli.options_page > docs/options.md`` writes it. A test compares it.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rtlstm.cli.commands import COMMANDS, command_function, find_command
from rtlstm.gen.builds.compiled import Build, compile
from rtlstm.spec.options import plain_type

__all__ = ["options_page"]

_HEAD = """\
# Options

This page lists the options of every command, with their names in Python. `rtlstm.compile` has the options of
`rtlstm generate`. A method of a `Build` has the options of the command of the same name. The page is made
from the declarations in the code ([Extending](extending.md#an-option)).
"""
_COLUMNS = ("Option", "In Python", "Value", "Default", "Meaning")
_CALLS: dict[str, Callable[..., Any]] = {
    "generate": compile,
    "simulate": Build.simulate,
    "implement": Build.implement,
    "bitstream": Build.bitstream,
    "run": Build.run,
    "accuracy": Build.accuracy,
}
_WORDS = {int: "whole number", float: "number", str: "text", Path: "file", list[str]: "text"}
_EVERYWHERE = ("as_json", "debug")


def options_page() -> str:
    """Return the text of the page."""
    return "\n".join([_HEAD, *_everywhere(), *(line for name in COMMANDS for line in _section(name))])


def _everywhere() -> Iterator[str]:
    shared = {
        each.opts[-1]: each.help for each in find_command("generate").params if each.name in _EVERYWHERE
    }
    yield (
        "Every command also takes "
        + " and ".join(f"`{flag}` ({text[0].lower()}{text[1:].rstrip('.')})" for flag, text in shared.items())
        + "."
    )
    yield ""


def _section(name: str) -> Iterator[str]:
    """A command's heading and a table for each group of its options."""
    options = [
        each
        for each in find_command(name).params
        if each.opts[0].startswith("-") and each.name not in _EVERYWHERE
    ]
    if not options:
        return
    yield f"## rtlstm {name}"
    yield ""
    for group in dict.fromkeys(getattr(each, "rich_help_panel", None) for each in options):
        if group:
            yield f"### {group}"
            yield ""
        members = [each for each in options if getattr(each, "rich_help_panel", None) == group]
        yield from _table(_row(name, each) for each in members)
        yield ""


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (_COLUMNS, ("---",) * len(_COLUMNS), *rows):
        yield f"| {' | '.join(row)} |"


def _row(command: str, option: Any) -> tuple[str, ...]:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    default = "" if option.is_flag or option.default is None else f"`{option.default}`"
    python = f"`{option.name}`" if option.name in _keywords(command) else ""
    return (flags, python, _value(command, option), "required" if option.required else default, option.help)


def _keywords(command: str) -> set[str]:
    """The arguments of the function that does in Python what a command does."""
    if command not in _CALLS:
        return set()
    return set(inspect.signature(_CALLS[command]).parameters)


def _value(command: str, option: Any) -> str:
    if option.is_flag:
        return ""
    if option.metavar:
        return str(option.metavar).replace("|", r"\|")
    found = inspect.signature(command_function(command), eval_str=True).parameters[option.name].annotation
    kind = plain_type(found)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    return _WORDS[kind]


if __name__ == "__main__":
    print(options_page(), end="")
