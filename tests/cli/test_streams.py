"""Standard streams that are closed, full or broken, and names that a terminal would obey."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.small_builds import INPUTS, tensors

from rtlstm.cli.results import plain

RUN = "from rtlstm.cli.main import main; main()"

DRIVER = """
import json, os, sys, tempfile
import rtlstm.cli.main, rtlstm.gen.frontends, rtlstm.gen.builds.report, rtlstm.host, rich.console

def broken():
    reader, writer = os.pipe()
    os.close(reader)
    return writer

def case(arguments, streams):
    kept = {}
    for number, how in streams.items():
        if how == "kept":
            kept[number] = tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        for number, how in streams.items():
            if how == "closed":
                os.close(number)
                setattr(sys, ("stdin", "stdout", "stderr")[number], None)
            else:
                other = {"full": lambda: os.open("/dev/full", os.O_WRONLY), "broken": broken,
                         "kept": lambda: kept[number].fileno()}[how]()
                os.dup2(other, number)
        code = 99
        try:
            rtlstm.cli.main.main(arguments)
        except SystemExit as ended:
            code = ended.code
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    texts = {}
    for number, file in kept.items():
        file.seek(0)
        texts[number] = file.read().decode()
    return os.waitstatus_to_exitcode(status), texts

print(json.dumps([case(arguments, {int(n): how for n, how in streams.items()})
                  for arguments, streams in json.load(sys.stdin)]))
"""

STREAMS = [
    {1: "closed", 2: "kept"},
    {1: "full", 2: "kept"},
    {1: "broken", 2: "kept"},
    {1: "kept", 2: "closed"},
    {1: "kept", 2: "full"},
    {1: "kept", 2: "broken"},
    {0: "closed", 1: "closed", 2: "closed"},
    {0: "closed", 1: "kept", 2: "kept"},
]


@pytest.fixture(scope="module")
def x(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("x") / "x.npy"
    np.save(path, np.random.default_rng(0).uniform(-1, 1, (5, INPUTS)).astype("float32"))
    return path


@pytest.mark.slow
def test_every_stream_of_every_command(model: Path, pristine: Path, x: Path, tmp_path: Path):
    """No traceback, and an exit code that says what happened, in 104 runs."""
    y = tmp_path / "y.npy"
    commands = [
        (["inspect", str(pristine)], 0),
        (["inspect", str(model)], 0),
        (["run", str(pristine), "--backend", "golden", "--input", str(x), "--output", str(y)], 0),
        (["generate", str(tmp_path / "none"), "-o", str(tmp_path / "build")], 2),
        (["run", "--nonsense"], 2),
    ]
    commands += [([*words, "--json"], normal) for words, normal in commands]
    commands += [(["generate", "--help"], 0), (["--version"], 0)]
    cases = [(words, normal, streams) for words, normal in commands for streams in STREAMS]
    text = json.dumps([(words, streams) for words, _, streams in cases])
    done = subprocess.run([sys.executable, "-c", DRIVER], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (words, normal, streams), (code, kept) in zip(cases, json.loads(done.stdout), strict=True):
        what = (words, streams, code, kept)
        assert "Traceback" not in str(kept) and "Exception" not in str(kept), what
        if streams.get(1) == "full" and not normal:
            assert code == 2 and "standard output cannot be written (No space left" in kept["2"], what
        elif streams.get(1) == "broken" and not normal:
            assert code == 1 and "error" not in kept["2"], what
        else:
            assert code == normal, what
        if streams.get(1) == "kept" and "--json" in words:
            assert ("error" in json.loads(kept["1"])) == (code != 0), what
    assert y.is_file()


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_by_the_shell(pristine: Path, x: Path, tmp_path: Path, closed: str):
    """Python itself begins without the stream; the output file must not take its number."""
    y = tmp_path / "y.npy"
    words = [sys.executable, "-c", RUN, "run", pristine, "--backend", "golden", "--input", x, "--output", y]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert np.load(y).shape[0] == 5 and ("written" in done.stdout) == (closed == "2>&-")


def test_text_of_another_encoding(pristine: Path):
    environment = dict(os.environ) | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, "inspect", pristine / "\u00e9"], capture_output=True, env=environment
    )
    assert done.returncode == 2 and b"\\xe9" in done.stderr and b"Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", RUN, "inspect", pristine], capture_output=True, env=environment, check=True
    )
    # Lines of tables are drawn with what there is.
    assert b"\\u2500" not in done.stdout and b"----" in done.stdout


BAD = "\x1b]0;title\x07\x1b[31m\x9b2J\r\u202e"


def test_names_that_a_terminal_would_obey(cli, tmp_path: Path):
    """Escape sequences and line ends in names are shown as such; JSON has them exactly."""
    state = {name.replace("lstm", BAD + "lstm"): value for name, value in tensors().items()}
    path = tmp_path / "m\x1b[2Jodel.safetensors"
    safetensors.numpy.save_file(state, path)
    done = cli("inspect", path, "--dense", "fc:sigmoid").good()
    for text in (done.out, done.err):
        assert all(char.isprintable() or char == "\n" for char in text), repr(text)
        assert not any(line.startswith("error") for line in text.splitlines())
    assert "\\x1b]0;title" in done.out and "m\\x1b[2Jodel" in done.out
    report = cli("inspect", path, "--dense", "fc:sigmoid", "--json").json
    assert any(BAD in node["name"] for node in report["model"]["nodes"])
    refused = cli("inspect", path, "--lstm", "\x1b[2J\nerror: no")
    assert refused.code == 2 and "\x1b" not in refused.err and "\\x1b" in refused.err
    assert sum(line.startswith("error") for line in refused.err.splitlines()) == 1
    safetensors.numpy.save_file({"a\nsupported\nerror: b": tensors()["fc.bias"]}, path)
    refused = cli("inspect", path)
    assert refused.code == 2 and [line[:1] for line in refused.err.splitlines()] == ["e", " ", " "]


def test_a_file_name_that_is_no_text(cli, pristine: Path, tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"b\xffd")
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    done = cli("inspect", folder, "--json")
    assert done.code == 2 and "b\\udcffd" in done.err and "b\udcffd" in done.json["error"]


def test_plain():
    text = "tab\t nul\0 é 漢 \u2028 \U0001f600 '\\"
    assert plain(text) == "tab\\t nul\\x00 é 漢 \\u2028 \U0001f600 '\\"
    assert plain("a\nb") == "a\\nb" and plain("a\nb\r", lines=True) == "a\nb\\r"
