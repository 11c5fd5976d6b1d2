"""What messages call options: names of Python between backticks, below the command line."""

import ast
import re
from functools import cache

from support.paths import ROOT

from rtlstm.cli.commands import COMMANDS, find_command

FOLDERS = ("rtlstm", "spec", "tools", "hdl", "host", "sim", "fpga", "boards", "gen")
OTHER_PROGRAMS = {
    "boards/bitstream.py": "ecppack's",
    "boards/catalogue.py": "openFPGALoader's",
    "fpga/place_route.py": "nextpnr's",
    "gen/builds/folder.py": "a whole command that was run",
    "gen/builds/report_html.py": "whole commands in the page, to be typed",
    "rtlstm/pytest_plugin.py": "pytest's",
    "hdl/emit/header.py": "a comment in a file: how the build was generated",
    "spec/parameters.py": "the same, of capacities",
}
"""Files whose flags are not those of a message, and what they are."""
FLAGS = {
    flag
    for name in COMMANDS
    for each in find_command(name).params
    for flag in (*each.opts, *each.secondary_opts)
    if flag.startswith("--")
}
NAMES = {each.name for name in COMMANDS for each in find_command(name).params}
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}


@cache
def messages(text: str) -> list[str]:
    """Return the texts of a module that are neither documentation nor the flag of a declaration."""
    found, left_out = [], set()
    # A node is met before those inside it.
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) or (isinstance(node, ast.keyword) and node.arg == "flag"):
            left_out.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            found.append(node.value)
    return found


def flags_in(text: str) -> set[str]:
    return FLAGS & {flag for each in messages(text) for flag in re.findall(r"--[a-z][a-z-]*", each)}


def test_no_message_has_the_command_lines_words() -> None:
    # Device files name the options of nextpnr.
    found = {
        path: sorted(flags)
        for path, text in SOURCES.items()
        if path not in OTHER_PROGRAMS and not path.startswith("fpga/families/") and (flags := flags_in(text))
    }
    assert len(SOURCES) > 250 and {path.split("/")[0] for path in SOURCES} == set(FOLDERS)
    assert found == {}


def test_a_flag_in_a_message_is_seen() -> None:
    assert flags_in('"""--lanes"""\nraise ValueError(f"give --lanes {n}")\nOption("", flag="--macs")') == {
        "--lanes"
    }


def test_options_between_backticks_exist() -> None:
    """Words of Verilog and of other programs are not in backticks."""
    named = [
        name
        for text in SOURCES.values()
        for each in messages(text)
        for name in re.findall(r"(?<!`)`(\w+)(?:=[^`]*`|=$|`)", each)
    ]
    assert len(named) > 150 and set(named) <= NAMES


def test_the_most_similar_option_is_offered_first(cli) -> None:
    cli("generate", "model.onnx", "--weigth-bits", 4).refused("(Possible options: --weight-bits, ")
