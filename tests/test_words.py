"""The field's words: those that this project once had of its own do not come back."""

import re
from collections.abc import Iterator

from support.paths import DOCS, FOLDERS, ROOT

PARTS = {
    "fences?": "waits_for_results: a RAW hazard's wait",
    "park(s|ed|ing)?": "partial (sum)",
    "quads?": "four_rows",
    "squash(es)?": "output_activation",
    "patience": "timeout",
    "soon": "next_...: how far it looks ahead",
    "quiet|hush|loud": "suppress, suppressed, with_output",
    "turned": "reversed_output",
    "stale": "invalid",
    "places?": "index, position, address, path or target; place is a word of place and route",
    "ways?": "direction, or the name of what goes there",
    "far|near": "what the distance is: a pipelined copy, a neighbour, a remote end",
    "cold": "first_step",
}
"""Parts of an identifier, between underscores or capital letters, and what to say instead."""
NAMES = {
    "_?own": "unit_constants, or whose it is",
    "_?reach(es)?": "max_abs, range",
    "_?late": "delayed, extra",
    "[A-Za-z]*Line": "port; a line is of text",
    "_(gate|hard|row|sum|tree)_tables|(in|multiplier)_tables|table_rams": "luts, lutrams",
}
"""Whole identifiers."""
IN_TESTS = {name: told for name, told in PARTS.items() if name not in ("places?", "ways?", "far|near")}
"""There, the others have their plain meaning."""
PROSE = {
    r"look-?up tables?\b": "LUTs",
    r"\btable RAM\b": "LUTRAM",
    r"\bpatience\b": "timeout",
    r"\bparked\b": "stored partial sums",
    r"\bsquash\w*\b": "output activation",
    r"\b(held|hold [a-z]+) against\b": "compared with",
    r"\bturned round\b": "reversed",
    r"\bbefalls?\b": "happens to",
    r"\bquads?\b": "four rows",
    r"\blimited to\b": "saturates at",
    r"\bfences?\b": "RAW hazard",
}
"""In pages, and in the texts of the package: help, messages, docstrings and comments."""
TEXTS = PROSE | {
    r"\bpark(s|ing)?\b": "store partial sums",
    r"\bsoone(r|st)\b": "faster, earlier",
    r"\bstale\b": "invalid",
    r"\b(is|are|was|were|be|been) limited\b": "saturated, clipped",
    r"\bquiet (step|one)s?\b": "suppressed",
    r"\bown numbers\b": "per-unit constants",
    r'"""(As )?of (?!course)|^ *As of ': "the noun first: a fragment has no subject",
}
"""In the texts of the package."""
ALLOWED = {"x_quiet", "start_soon", "under_way", "UNDER_WAY", "DelayLine", "PortLine", "FENCE"}
"""Somebody else's names, and those with the plain meaning."""
PLACE_AND_ROUTE = re.compile("place_?(and_?)?route", re.IGNORECASE)
NO_NAMES = re.compile(r'"""(?s:.*?)"""|"(?:\\.|[^"\\\n])*"|#.*')


def banned_texts(words: dict[str, str], text: str, path: str) -> Iterator[str]:
    for pattern, instead in words.items():
        for match in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE):
            line = 1 + text.count("\n", 0, match.start())
            yield f"{path}:{line}: {match.group().strip()!r}: say {instead}"


def banned_names(parts: dict[str, str], text: str, path: str) -> Iterator[str]:
    every, whole = re.compile("|".join(parts)), re.compile("|".join(NAMES))
    for name in {*re.findall(r"[A-Za-z_]\w*", NO_NAMES.sub("", text))} - ALLOWED:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", PLACE_AND_ROUTE.sub("", name)).lower().split("_")
        if any(map(every.fullmatch, words)):
            told = (parts[each] for each in parts if any(re.fullmatch(each, word) for word in words))
            yield f"{path}: {name}: say {', or '.join(told)}"
        if parts is PARTS and whole.fullmatch(name):
            yield f"{path}: {name}: say {next(NAMES[each] for each in NAMES if re.fullmatch(each, name))}"


def python_files(*folders: str) -> dict[str, str]:
    """The text of each Python file by its path."""
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def test_the_package_has_the_fields_words():
    files = python_files(*FOLDERS)
    found = [each for path, text in files.items() for each in banned_names(PARTS, text, path)]
    found += [each for path, text in files.items() for each in banned_texts(TEXTS, text, path)]
    assert len(files) > 200 and not found, "\n".join(found)


def test_tests_have_the_fields_words():
    files = python_files("tests")
    found = [each for path, text in files.items() for each in banned_names(IN_TESTS, text, path)]
    assert len(files) > 200 and not found, "\n".join(found)


def test_pages_have_the_fields_words():
    pages = [path for path in (ROOT / "README.md", *DOCS.glob("*.md")) if path.stem != "glossary"]
    found = [each for page in pages for each in banned_texts(PROSE, page.read_text(), page.name)]
    assert len(pages) > 10 and not found, "\n".join(found)


def test_the_glossary_has_the_words_of_fpgas() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    told = {word for words, meaning in rows if meaning.strip("-") for word in words.split(", ")}
    assert {"LUT", "DSP block", "block RAM", "Fmax", "bitstream", "PLL", "AXI"} - told == set()


def test_a_banned_word_is_found():
    text = '"""Of no verb."""\nclass SerialLine: ...\nlast_place = own = "a fence"  # It is stale.\n'
    found = [*banned_names(PARTS, text, "f.py"), *banned_texts(TEXTS, text, "f.py")]
    names = {"f.py: SerialLine", "f.py: last_place", "f.py: own"}
    assert {each.partition(": say")[0] for each in found} == names | {
        'f.py:1: \'"""Of\'',
        "f.py:3: 'fence'",
        "f.py:3: 'stale'",
    }
    plain = '# its own place on the way\nlast_row = "far"\nplace_and_route = x_quiet\n'
    assert not list(banned_names(PARTS, plain, "f.py")) and not list(banned_texts(TEXTS, plain, "f.py"))
