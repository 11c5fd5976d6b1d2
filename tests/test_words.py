"""The field's words: those that this project once had of its own do not come back.

Identifiers and prose are read by tokenisation and have separate lists: a word that is wrong as a name may be
right in a sentence. Prose is checked in pages, help, messages and the registers' descriptions, which users
read, and in docstrings and comments.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.paths import FOLDERS

from rtlstm.cli.commands import COMMANDS, find_command
from rtlstm.spec.registers import REGISTERS

ROOT = Path(__file__).resolve().parent.parent


class Banned(NamedTuple):
    """A word that is not the field's: ``pattern`` matches it, ``sample`` has it."""

    pattern: str
    instead: str
    why: str
    sample: str
    folders: str = ""
    """Where it is banned: in the paths that begin with one of these, else everywhere."""


# A part of an identifier, between underscores or capital letters.
PARTS = (
    Banned("fences?", "waits_for_results", "a RAW hazard's wait", "op_fence"),
    Banned("park(s|ed|ing)?", "partial (sum)", "sums are stored, cars are parked", "parked_rows"),
    Banned("quads?", "four_rows", "four rows of a unit, not a number of anything", "has_quads"),
    Banned("squash(es)?", "output_activation", "the activation in front of the output gate", "squash"),
    Banned("patience", "timeout", "what every other project calls it", "Patience"),
    Banned("soon", "next_...", "look-ahead says how far", "soon_last"),
    Banned("quiet", "suppress", "an output is suppressed or requested", "ends_quiet"),
    Banned("loud", "with_output", "an output is suppressed or requested", "loud"),
    Banned("hush", "suppressed", "an output is suppressed or requested", "hush"),
    Banned("turned", "reversed_output", "turned could be anything", "turned"),
    Banned("stale", "invalid", "of partial sums that must be computed again", "_stale"),
    Banned(
        "places?",
        "index, position, address, path or target",
        "place is a word of place and route",
        "oldest_place",
    ),
    Banned("ways?", "direction", "a direction, or the name of what goes there", "way_out"),
    Banned("far|near", "say what the distance is", "a pipelined copy, a neighbour, a remote end", "_far"),
)

# A whole identifier.
NAMES = (
    Banned("_?own", "unit_constants, or whose it is", "own of what?", "own"),
    Banned("_?reach(es)?", "max_abs, range", "the largest magnitude has a name", "reach"),
    Banned(
        "_?limited",
        "saturated, clipped",
        "the field's word",
        "limited",
        "hdl spec sim host gen/quantise gen/builds",
    ),
    Banned("_?late", "delayed, extra", "late by what?", "late"),
    Banned("_?tail", "last_...", "the last beat's units", "tail", "hdl/core spec/program"),
    Banned(
        "_?rest",
        "idle_cycles, remainder",
        "a pause of the array",
        "rest",
        "hdl/core hdl/sequences spec/program",
    ),
    Banned("(_?[a-z]+_)?cold(_[a-z]+)?", "first_step", "the first step after a reset", "cold"),
    Banned("[A-Za-z]*Line", "port", "a serial port; a line is of text", "SerialLine"),
    Banned(
        "_(gate|hard|row|sum|tree)_tables|(in|multiplier)_tables|table_rams",
        "luts, lutrams",
        "a table is of activations",
        "_gate_tables",
    ),
)

PLAIN = ("place", "way", "near")
"""Words of ``PARTS`` that tests may have: there they have the plain meaning."""

# Of these, some are somebody else's names, or have the plain meaning.
ALLOWED = {
    "x_quiet": "a port of the core's Verilog",
    "start_soon": "cocotb's",
    "under_way": "plain English",
    "UNDER_WAY": "plain English",
    "DelayLine": "the field's word for a chain of registers",
    "PortLine": "a line of text",
    "FENCE": "Markdown's mark of a block of code",
}

PLACE_AND_ROUTE = re.compile("place_?(and_?)?route", re.IGNORECASE)
"""The step of the tool flow, in any name."""

PROSE = (
    Banned(r"look-?up tables?\b", "LUTs", "the field's word", "4 look-up tables"),
    Banned(r"\btable RAM\b", "LUTRAM", "the field's word", "table RAM"),
    Banned(r"\bpatience\b", "timeout", "the field's word", "as long as patience lasts"),
    Banned(r"\bparked\b", "stored partial sums", "sums are stored, cars are parked", "parked sums"),
    Banned(r"\bsquash\w*\b", "output activation", "the field's word", "a squash"),
    Banned(r"\bheld against\b", "compared with", "the usual word", "held against the estimate"),
    Banned(r"\bturned round\b", "reversed", "the usual word", "outputs turned round"),
    Banned(r"\bbefalls?\b", "happens to", "the usual word", "what befalls a frame"),
    Banned(r"\bquads?\b", "four rows", "private", "two quads"),
    Banned(r"\blimited to\b", "saturates at", "the field's word", "limited to +-8"),
    Banned(r"\bfences?\b", "RAW hazard", "the field's word", "a fence"),
)


# Of docstrings and comments, in addition.
CODE_PROSE = (
    Banned(r"\A(As )?of (?!course)", "the noun first", "a fragment has no subject", "Of the device's sizes."),
    Banned(r"^\s*As of ", "See ...", "a fragment has no subject", "As of that class."),
    Banned(r"\bpark(s|ing)?\b", "store partial sums", "sums are stored, cars are parked", "it parks sums"),
    Banned(r"\bhold [a-z]+ against\b", "compare with", "the usual word", "hold it against a limit"),
    Banned(r"\bsoone(r|st)\b", "faster, earlier", "the usual word", "the soonest design"),
    Banned(r"\bstale\b", "invalid", "of partial sums that must be computed again", "stale sums"),
    Banned(
        r"\b(is|are|was|were|be|been) limited\b",
        "saturated, clipped",
        "the field's word",
        "it was limited",
    ),
    Banned(r"\bquiet (step|one)s?\b", "suppressed", "an output is suppressed", "a quiet step"),
    Banned(r"\b(serial|broken) lines?\b", "port", "a line is of text", "the serial line", "host hdl spec"),
    Banned(r"\bown numbers\b", "per-unit constants", "own of what?", "the units' own numbers"),
)


def parts(name: str) -> list[str]:
    """The words of an identifier."""
    return [part.lower() for part in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).split("_") if part]


def identifiers(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of every identifier."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def in_names(text: str, path: str = "") -> Iterator[tuple[int, str, Banned]]:
    """Banned identifiers of a Python file; ``path`` says which words its folder may have."""
    for line, name in identifiers(text):
        if name in ALLOWED:
            continue
        words = parts(PLACE_AND_ROUTE.sub("", name))
        found = [one for one in PARTS if any(re.fullmatch(one.pattern, word) for word in words)]
        found += [one for one in NAMES if re.fullmatch(one.pattern, name)]
        for one in found:
            if not path or path.startswith(tuple(one.folders.split()) or ""):
                yield line, name, one


def in_prose(text: str) -> Iterator[tuple[int, str, Banned]]:
    """Banned words of a text."""
    for number, line in enumerate(text.splitlines(), 1):
        for one in PROSE:
            if match := re.search(one.pattern, line, re.IGNORECASE):
                yield number, match.group(), one


def in_code_prose(text: str, path: str = "") -> Iterator[tuple[int, str, Banned]]:
    """Banned words of a Python file's docstrings and comments; ``path`` is as for :func:`in_names`."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and token.string.endswith('"""')
        if not docstring and token.type != tokenize.COMMENT:
            continue
        prose = re.sub(r"\A(?:[rR]?\"\"\"|# ?)", "", token.string)
        for one in (*PROSE, *CODE_PROSE):
            if path and not path.startswith(tuple(one.folders.split()) or ""):
                continue
            if docstring or not one.pattern.startswith(
                (r"\A", "^")
            ):  # a comment may go on from a line before
                for match in re.finditer(one.pattern, prose, re.IGNORECASE | re.MULTILINE):
                    yield token.start[0] + prose[: match.start()].count("\n"), match.group().strip(), one


def told(where: str, found: Iterator[tuple[int, str, Banned]]) -> list[str]:
    return [f"{where}:{line}: {word!r}: say {one.instead} ({one.why})" for line, word, one in found]


def sources() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_identifiers():
    found = [
        each
        for path in sources()
        for each in told(str(path.relative_to(ROOT)), in_names(path.read_text(), str(path.relative_to(ROOT))))
    ]
    assert not found, "\n".join(found)


def test_names_in_tests():
    words = [one for one in PARTS if not any(re.fullmatch(one.pattern, word) for word in PLAIN)]
    assert len(words) == len(PARTS) - len(PLAIN)
    found = [
        each
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for each in told(
            str(path.relative_to(ROOT)), (hit for hit in in_names(path.read_text()) if hit[2] in words)
        )
    ]
    assert not found, "\n".join(found)


def test_pages():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [
        each
        for path in pages
        if path.name != "glossary.md"  # it names them
        for each in told(path.name, in_prose(path.read_text()))
    ]
    assert not found, "\n".join(found)


def test_messages():
    """Strings that are no docstrings: help, messages and labels."""
    found = []
    for path in sources():
        tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
        for token in tokens:
            if token.type == tokenize.STRING and not token.string.endswith('"""'):
                lines = [(token.start[0], word, one) for _, word, one in in_prose(token.string)]
                found += told(str(path.relative_to(ROOT)), iter(lines))
    assert not found, "\n".join(found)


def test_docstrings_and_comments():
    found = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        found += told(name, in_code_prose(path.read_text(), name))
    assert not found, "\n".join(found)


def test_help():
    found = []
    for name, command in ((name, find_command(name)) for name in COMMANDS):
        texts = [command.help or "", *(getattr(option, "help", None) or "" for option in command.params)]
        found += told(f"rtlstm {name} --help", in_prose("\n".join(texts)))
    assert not found, "\n".join(found)


def test_registers():
    found = []
    for register, described in REGISTERS.items():
        texts = [described.text, *(field.text for field in described.fields)]
        assert not any(text.startswith("Of ") for text in texts), f"{register.name}: begin with the noun"
        found += told(register.name, in_prose("\n".join(texts)))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("one", [*PARTS, *NAMES], ids=lambda one: one.sample)
def test_a_banned_name_is_found(one):
    assert one in [found for _, _, found in in_names(f"x = 1\n{one.sample} = 2\n")]
    assert any(
        f"f.py:2: {one.sample!r}: say " in each for each in told("f.py", in_names(f"\n{one.sample} = 2\n"))
    )


@pytest.mark.parametrize("one", PROSE, ids=lambda one: one.sample)
def test_a_banned_word_is_found(one):
    assert [(line, found) for line, _, found in in_prose(f"Good.\n{one.sample}\n")] == [(2, one)]


@pytest.mark.parametrize("one", [*PROSE, *CODE_PROSE], ids=lambda one: one.sample)
def test_a_banned_word_of_the_code_is_found(one):
    text = f'x = 1\n"""{one.sample}"""\n'
    assert (2, one) in [(line, found) for line, _, found in in_code_prose(text)]
    comments = [found for _, _, found in in_code_prose(f"x = 1  # it is: {one.sample}\n")]
    assert (one in comments) == (not one.pattern.startswith((r"\A", "^")))


def test_plain_english_is_free():
    assert not list(in_names("# its own place on the way\nlast_row = 'far'\nplace_and_route = x_quiet\n"))
    assert not list(in_prose("Place and route takes its own time; a table of activations."))
