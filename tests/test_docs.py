"""Runs what README.md, docs/ and the examples' pages tell the reader to type.

A page's fenced blocks run in the page's order, in a folder of its own that has ``model.onnx``,
``x.npy`` (12 steps of 4 inputs) and a link to ``examples``:

- ``sh``: all lines are commands.
- ``console``: lines after ``$ `` are commands, the others are what they print. ``...`` stands for
  anything; blanks are not compared. A command with no output shown is only run. One whose shown output
  begins with ``error:`` must fail; its progress is not compared. Without any ``$ `` all lines are commands.
- ``python``: one program, continued from block to block; with ``>>>`` it is a doctest.

A command that ``ELSEWHERE`` knows is not run here; the file named there must have it.
"""

import contextlib
import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer
from support.paths import ROOT

from rtlstm.cli.commands import find_command

pytestmark = [pytest.mark.rtl, pytest.mark.tools]

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
NOTES = [*(ROOT / "notes").rglob("*.md")]
"""The laboratory book is no part of the site and is not run; its links are read."""
ELSEWHERE_WHOLE = [ROOT / "docs" / "extending.md"]
"""Pages whose code another test runs: tests/test_extending.py."""

ELSEWHERE = {
    # A pattern for the whole command: the file that runs it, and what stands there.
    r"make (setup|test)": (".ci/run", "make --no-print-directory test"),
    r"make demo": ("Makefile", "examples/silero_vad/demo.py"),
    r"pip install ('?\.\S*|.*rtlstm.*)": ("tests/test_packaging.py", '"install"'),
    r"rtlstm (board|run) \S+ --b\w+ (ulx3s-85f|tcp:localhost:5000).*": (
        "tests/cli/test_board.py",
        "= commands()",
    ),
    r"rtlstm bitstream \S+ --board ulx3s-85f": ("tests/cli/test_bitstream.py", '"bitstream", folder'),
    r"rtlstm program \S+": ("tests/cli/test_bitstream.py", '"program", folder'),
    r"rtlstm run \S+ --backend serial:/dev/ttyUSB0 .*": ("tests/cli/test_board.py", '"--backend", port'),
    r"rtlstm boards \S+ --calibrate \S+": (
        "tests/cli/test_boards.py",
        'asked = ("boards", model, "--calibrate", x',
    ),
    r"rtlstm bench --link --board \S+": ("tests/bench/test_link.py", '"--link", "--board", "ulx3s-85f"'),
    r"rtlstm implement \S+ --device lfe5u.*": ("tests/cli/test_implement.py", '"implement", folder'),
    r"python examples/word_taggers\.py (uzmorph|segmenter) verilator": (
        "tests/examples/test_word_taggers.py",
        'example.score(tagger, "verilator")',
    ),
    r"python examples/training/tasks\.py adding": ("tests/examples/test_training.py", "tasks.adding()"),
    r"python examples/vollo_lstm\.py golden": (
        "tests/examples/test_vollo_lstm.py",
        'load_example("vollo_lstm")',
    ),
    r"python examples/amplifier\.py .*": ("tests/gen/frontends/test_nam.py", 'load_example("amplifier")'),
    r"python examples/own_cell\.py golden": ("tests/examples/test_own_cell.py", '["compare"](backend)'),
    r"python examples/torch_usages\.py golden": ("tests/examples/test_torch_usages.py", 'quick(("golden"'),
    r"python examples/gait_phase\.py verilator": (
        "tests/examples/test_gait_phase.py",
        'example.run(path, x, "verilator")',
    ),
    r"rtlstm zoo ([a-z]|--all).*": ("tests/zoo/test_zoo.py", 'cli("zoo", name, "-o"'),
    r"python -m rtlstm.zoo.history .*": ("tests/zoo/test_zoo.py", "with_table(page, rows)"),
    r"cd build/lstm && python -m rtlstm.tools verilator --binary .*": (
        "tests/gen/ip/test_packages.py",
        'run(*packaged, "verilator", *options',
    ),
    r"python -m rtlstm.tools verilator --lint-only.*": (
        "tests/hdl/test_lint.py",
        '"--lint-only", "-Wall", "-Wno-DECLFILENAME"',
    ),
    r"echo [-0-9 ]+ \| \./client localhost:5000 .*": (
        "tests/examples/test_c_client.py",
        'run_client(client, line, folder / "weights.bin", manifest',
    ),
    r"python examples/litex_soc/run\.py \S+": (
        "tests/examples/test_litex_soc.py",
        'EXAMPLES / "litex_soc" / "run.py"',
    ),
    r"python examples/microphone/listen\.py .*": ("tests/examples/test_microphone.py", "listen.main(["),
    r"dask (scheduler|worker) .*": ("tests/explore/test_cluster.py", '"--nthreads", "1"'),
    r"rtlstm explore .* --scheduler .*": ("tests/explore/test_cluster.py", '"--scheduler", address'),
    r"git clone .*|cd rtlstm": (".ci/run", "fresh clone"),
}

FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        indent, language, body = match.groups()
        lines = (line.removeprefix(indent) for line in body.splitlines(keepends=True))
        if language in ("sh", "console", "python"):
            found.append(Block(page, text[: match.start()].count("\n") + 1, language, "".join(lines)))
    return found


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command of a ``sh`` or ``console`` block and what it is said to print."""
    text = re.sub(r" *\\\n(?:> )? *", " ", block.text)
    if block.language == "sh" or not re.search(r"^\$ ", text, re.MULTILINE):
        yield from ((line, "") for line in text.splitlines() if line.strip())
        return
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def elsewhere(command: str) -> bool:
    bare = re.sub(r"\s+#.*$", "", command)
    for pattern, (file, text) in ELSEWHERE.items():
        if re.fullmatch(pattern, bare):
            assert text in (ROOT / file).read_text(), f"{file} does not run {command!r} any more"
            return True
    return bare.startswith("#")


def run_shell(block: Block, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    # An editable install has the entry points of its day; pytest takes a plug-in once.
    environment["PYTEST_PLUGINS"] = "rtlstm.pytest_plugin"
    for command, expected in commands(block):
        if elsewhere(command):
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        fails = expected.startswith("error:")
        assert done.returncode in ((1, 2) if fails else (0,)), f"{block.place}: {command}\n{done.stdout}"
        if expected.strip():
            printed = done.stdout[done.stdout.rfind("error:") :] if fails else done.stdout
            agrees = doctest.OutputChecker().check_output(expected, printed, FLAGS)
            said = f"{block.place}: {command}\nis said to print\n{expected}"
            assert agrees, f"{said}\nbut prints\n{done.stdout}"


def run_python(block: Block, names: dict[str, object]) -> None:
    if ">>> " in block.text:
        test = doctest.DocTestParser().get_doctest(block.text, names, block.place, None, block.line)
        test.globs = names
        report: list[str] = []
        failed = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
        assert not failed.failed, "".join(report)
    else:
        # Blank lines in front make the line numbers of a failure the page's own.
        exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)


def run_page(page: Path, folder: Path) -> None:
    names: dict[str, object] = {"__name__": "page"}
    with contextlib.chdir(folder):
        for block in blocks(page):
            if block.language == "python":
                run_python(block, names)
            else:
                run_shell(block, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with what the pages may take for granted."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(1)
    inputs, hidden = 4, 8
    arrays = {
        "W": rng.normal(0, 0.4, (1, 4 * hidden, inputs)),
        "R": rng.normal(0, 0.4, (1, 4 * hidden, hidden)),
        "B": rng.normal(0, 0.1, (1, 8 * hidden)),
    }
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "W", "R", "B"], ["y"], hidden_size=hidden)],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "N", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", 1, "N", hidden])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in arrays.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", rng.normal(0, 1, (12, 1, inputs)).astype(np.float32))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


RUN = [page for page in PAGES if blocks(page) and page not in ELSEWHERE_WHOLE]
QUICK = {f"docs/{name}.md" for name in ("cells", "ports")}
QUICK |= {"README.md"}
"""Pages that run in any case, with every kind of block. The others take long."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for page in RUN
        if (name := str(page.relative_to(ROOT)))
    ],
)
def test_page_does_what_it_says(page: Path, folder: Path):
    run_page(page, folder)


def words(command: str) -> list[str]:
    """The words of a command of this package, without what the shell does with them; of others none."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    found = list(lexer)
    ends = [at for at, word in enumerate(found) if set(word) <= set("();<>|&")]
    found = found[: min(ends, default=len(found))]
    return found[1:] if found[:1] == ["rtlstm"] else []


def wrong_commands(page: Path) -> list[str]:
    """Commands of this package that have an option which it does not know, and Python that is none."""
    found = []
    for block in blocks(page):
        if block.language == "python":
            source = doctest.script_from_examples(block.text) if ">>> " in block.text else block.text
            compile(source, block.place, "exec")
            continue
        for command, output in commands(block):
            name, *arguments = words(command) or ["-"]
            if name.startswith("-") or output.startswith("error:"):
                continue
            try:
                known = find_command(name)
                known.make_parser(typer.Context(known)).parse_args(arguments)
            except Exception as error:  # typer does not export what it raises
                found.append(f"{block.place}: {command}: {error!r}")
    return found


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_known(page: Path):
    """At once, without running them."""
    assert wrong_commands(page) == []


def test_unknown_options_and_commands_are_seen(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ rtlstm generate m --lanes 4 -o b > log\n$ rtlstm generate m --lane-count 4\n"
        "$ rtlstm make m; true\n$ echo rtlstm make\n```\n"
    )
    first, second = wrong_commands(page)
    assert "--lane-count" in first and "'make'" in second
    page.write_text("```python\n>>> 1 +\n```\n")
    with pytest.raises(SyntaxError):
        wrong_commands(page)


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    links = [link for link in LINK.findall(page.read_text()) if not re.match(r"[a-z]+:", link[0])]
    assert [path for path, _ in links if not (page.parent / path).exists()] == []
    targets = [(page if not path else page.parent / path, anchor) for path, anchor in links if anchor]
    assert [anchor for target, anchor in targets if anchor not in anchors(target)] == []


GOOD = """
```console
$ echo one \\
>   two; echo three
one ...
three
$ test -f model.onnx
$ echo at work; echo error: it fails; exit 2
error: it ...
$ make test
```
```sh
echo 5 > five
```
```python
from pathlib import Path

five = int(Path("five").read_text())
```
```python
>>> five + 1
6
```
"""


def test_good_page_passes(folder: Path):
    page = folder / "page.md"
    page.write_text(GOOD)
    assert len(blocks(page)) == 4
    run_page(page, folder)


@pytest.mark.parametrize(
    "body",
    [
        "console\n$ echo one\ntwo",
        "console\nfalse",
        "console\n$ echo error: none\nerror: none",
        "console\n$ echo error: one; false\nerror: two",
        "console\n$ echo error: one; exit 3\nerror: one",
        "sh\nfalse | cat",
        "python\n>>> 1 + 1\n3",
        "python\nassert False",
    ],
)
def test_wrong_page_fails(tmp_path: Path, body: str):
    page = tmp_path / "page.md"
    page.write_text(f"```{body}\n```\n")
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)
