"""The page ``docs/options.md``: what the commands take, from what declares it.

``python -m rtlstm.cli.options_page > docs/options.md`` writes it. A test compares it.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rtlstm.cli.commands import COMMANDS, command_function, find_command
from rtlstm.gen.builds.compiled import Build, compile
from rtlstm.spec.record import plain_type

_HEAD = """\
# Commands and options

This page is [made from the code](extending.md#an-option). `rtlstm COMMAND --help` prints the same.
`rtlstm --install-completion` installs shell completion.
"""
_PYTHON = """\
In Python, `rtlstm.compile` has the options of `rtlstm generate`, and the methods `simulate`, `implement`,
`bitstream`, `run` and `accuracy` of a `Build` have those of the commands. An option has its flag's name with
underscores, unless the table says otherwise. \\* marks what only the command line has.
"""
_TAIL = """\
## Exit codes

| Code | Meaning |
|---|---|
| 0 | The command succeeded. |
| 1 | A check failed: a word or cycle differs, a clock, limit or metric is missed, or a device is silent. |
| 2 | The input is wrong, a tool is missing, or the design does not fit. |
| 70 | rtlstm has a bug: please report it with what `--debug` prints. |
| 130 | Ctrl-C ended the command. |
| 129, 143 | SIGHUP or SIGTERM ended the command. |

## Output

- `--json` prints one JSON object on standard output, and messages go to standard error.
- A command that succeeds names the usual next one: a line `next: ...`, or `next` in the JSON object.
- Long work shows a progress bar on a terminal, and elsewhere one line per phase. `RTLSTM_PROGRESS=none` turns
  both off.
- A command writes its results whole or not at all. If an output path is a link, the command writes to its
  target. Pipes and `/dev/stdout` work, too.

## Caches

rtlstm keeps Verilog, compiled simulators and synthesis results in your cache folder, or where `RTLSTM_CACHE`
says. The packaged Yosys and nextpnr have a cache below `XDG_CACHE_HOME`. If your home folder is not writable,
set both variables.
"""
_COLUMNS = ("Option", "Value", "Meaning")
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
    shown: dict[tuple[str, ...], str] = {}
    sections = [line for name in COMMANDS for line in _section(name, shown)]
    return "\n".join([_HEAD, *_commands(), *_everywhere(), _PYTHON, *sections, _TAIL])


def _commands() -> Iterator[str]:
    """The table of the commands, with what each is for."""
    yield "| Command | Meaning |"
    yield "|---|---|"
    for name, entry in COMMANDS.items():
        called = f"[`rtlstm {name}`](#rtlstm-{name})" if _options(name) else f"`rtlstm {name}`"
        yield f"| {called} | {entry.summary} |"
    yield ""


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


def _options(name: str) -> list[Any]:
    """A command's options without those of every command; of one that only a clone has, none."""
    params = [] if COMMANDS[name].module.startswith("bench.") else find_command(name).params
    return [each for each in params if each.opts[0].startswith("-") and each.name not in _EVERYWHERE]


def _section(name: str, shown: dict[tuple[str, ...], str]) -> Iterator[str]:
    """A command's heading and a table for each group of its options.

    An option that an earlier command has, with the same value and meaning, is named and not described again,
    even if only one of them requires it.
    ``shown`` has the command that describes it.
    """
    options = _options(name)
    if not options:
        return
    yield f"## rtlstm {name}"
    yield ""
    groups: dict[str, list[tuple[str, ...]]] = {}
    again: dict[str, list[str]] = {}
    for each in options:
        flags, *described = _row(name, each)
        required = " (required)" if each.required else ""
        first = shown.setdefault((flags, each.help, described[0]), name)
        if first == name:
            row = (flags + _in_python(name, each), *described)
            groups.setdefault(getattr(each, "rich_help_panel", None) or "", []).append(row)
        else:
            again.setdefault(first, []).append(flags + required)
    for group, rows in groups.items():
        if group:
            yield f"### {group}"
            yield ""
        yield from _table([_COLUMNS, *rows])
        yield ""
    for first, names in again.items():
        yield f"As in [`rtlstm {first}`](#rtlstm-{first}): {', '.join(names)}."
        yield ""


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    yield head
    yield f"|{'---|' * len(rows[0])}"
    yield from others


def _row(command: str, option: Any) -> tuple[str, str, str]:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    meaning = str(option.help)
    if option.required:
        meaning += " Required."
    elif not option.is_flag and option.default is not None:
        meaning += f" Default: `{option.default}`."
    return flags, _value(command, option), meaning


def _in_python(command: str, option: Any) -> str:
    """What differs in the function that does in Python what a command does."""
    if command not in _CALLS:
        return ""
    if option.name not in _keywords(command):
        return " \\*"
    return "" if f"--{option.name.replace('_', '-')}" in option.opts else f" (Python: `{option.name}`)"


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
