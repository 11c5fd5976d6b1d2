"""Reads files in a child process with limits, where a C library parses their bytes.

On a damaged file, such a library may crash, loop, or use up the memory. The child writes only its answer,
which is a network without objects of the library. On Linux it has no network, writes no file and starts no
process (:mod:`rtlstm.gen.frontends.limits`). While it loads Keras files and TorchScript, it cannot open
other files. State dicts are loaded without that limit, but with torch's ``weights_only``.
"""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rtlstm.gen.frontends.arrays import import_extra, listed, one_error
from rtlstm.gen.frontends.limits import ENVIRONMENT, MEMORY, SECONDS, isolate, keep_limits
from rtlstm.gen.frontends.plugins import FileKind
from rtlstm.gen.frontends.reading import InitialState, ModelReport, ReadOptions, ReportBuilder
from rtlstm.host.embeddings import Embedding
from rtlstm.spec import errors
from rtlstm.spec.activations.functions import ACTIVATIONS, names_in
from rtlstm.spec.errors import ModelError, RtlstmError, ToolError
from rtlstm.spec.files import open_file
from rtlstm.spec.network import Network
from rtlstm.spec.record import Record

_FRONTENDS = "rtlstm.gen.frontends"
FOREIGN: dict[FileKind, tuple[str, str, tuple[str, ...]]] = {
    "keras": (f"{_FRONTENDS}.keras", "read_keras", ("h5py",)),
    "torch": (f"{_FRONTENDS}.tensors", "read_state_dict", ("torch",)),
    "torchscript": (f"{_FRONTENDS}.torch.script", "read_script", ("torch", "torch.fx")),
}
"""The kinds of files that are read in a child: the reader, and the packages that it needs."""
_START = "import sys, json; sys.path[:] = json.loads(sys.argv.pop()); from {} import main; main()"
_WAIT = 3 * SECONDS
_SAVE = "save the model again"


class _Request(Record):
    kind: FileKind
    options: ReadOptions
    name: str
    source: str


class _Answer(Record):
    report: ModelReport
    embeddings: tuple[Embedding, ...] = ()
    initial_state: InitialState | None = None
    network: Network | None = None
    error: str = ""
    """Class and text of the error, if reading ended with one."""
    text: str = ""


def read_in_child(path: Path, kind: FileKind, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file of one of the kinds :data:`FOREIGN`.

    Raises ModelError if it is not supported, or a library crashes over it, takes too long or too much memory.
    Raises ToolError if a package is missing, or no child can be started.
    """
    request = _Request(kind=kind, options=options, name=report.name, source=report.source)
    answer = _parse(_run(path, request))
    report.take(answer.report, answer.embeddings)
    report.initial_state = answer.initial_state
    if answer.network is None:
        raise getattr(errors, answer.error)(answer.text + _unknown_there(answer.text))
    return answer.network


def _unknown_there(text: str) -> str:
    """Return a remark on the activation functions in a refusal that the child cannot know."""
    names = [
        name
        for name, function in ACTIVATIONS.added.items()
        if any(
            re.search(rf"\b{re.escape(each)}\b", text)
            for each in (name, *names_in("keras", function), *names_in("torch", function))
        )
    ]
    if not names:
        return ""
    return (
        f"; activation {listed(names)} was added in this process only, but files of this kind are read in "
        f"another: offer it as an entry point of the group {ACTIVATIONS.group!r}"
    )


def _run(path: Path, request: _Request) -> bytes:
    command = [sys.executable, "-P", "-B", "-c", _START.format(__name__), request.model_dump_json()]
    try:
        with open_file(path) as file:
            done = subprocess.run(
                [*command, json.dumps(sys.path)],
                stdin=file,
                capture_output=True,
                timeout=_WAIT,
                env=os.environ | ENVIRONMENT,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise ModelError(f"takes more than {_WAIT} s to read; {_SAVE}") from None
    except OSError as error:
        raise ToolError(
            f"reading this model needs a Python process of its own, but {sys.executable!r} cannot be started "
            f"({error.strerror or error})"
        ) from None
    if done.returncode == 0:
        return done.stdout
    if done.returncode == -getattr(signal, "SIGXCPU", 0):
        raise ModelError(f"takes more than {SECONDS} s of processor time to read; {_SAVE}")
    if done.returncode < 0:
        raise ModelError(f"makes the library that reads it crash ({_name(-done.returncode)}); {_SAVE}")
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    raise ToolError(f"reading this model needs a Python process of its own, which ended with: {said[-1]}")


def _name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _parse(answer: bytes) -> _Answer:
    try:
        return _Answer.model_validate_json(answer)
    except (ValueError, RtlstmError):
        raise ModelError(f"makes the library that reads it return an invalid answer; {_SAVE}") from None


# In the child


def main() -> None:
    """Read the file that is standard input, and answer on standard output."""
    request = _Request.model_validate_json(sys.argv.pop())
    with os.fdopen(os.dup(1), "wb") as out:
        _report_to(os.dup(2))
        silence = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):  # Libraries and TorchScript may print.
            os.dup2(silence, number)
        with os.fdopen(0, "rb", closefd=False) as file:
            answer = _answer(file, request)
        out.write(answer.model_dump_json().encode())
    os._exit(0)  # Skip the clean-up of a library that may be in a bad state.


def _report_to(descriptor: int) -> None:
    """Write the last line of an exception that ends this process; standard error is closed to libraries."""

    def report(kind: type[BaseException], error: BaseException, _: object) -> None:
        os.write(descriptor, f"{kind.__name__}: {error}".splitlines()[0].encode(errors="replace"))

    sys.excepthook = report


def _answer(file: BinaryIO, request: _Request) -> _Answer:
    report = ReportBuilder(request.source)
    report.name = request.name
    found: dict[str, Any]
    try:
        load(request.kind)
        keep_limits()
        isolate()
        network = read_foreign(file, request.kind, request.options, report)
        report.find_integers(network)
        found = {"network": network}
    except RtlstmError as error:
        kind = next(each for each in type(error).__mro__ if hasattr(errors, each.__name__))
        found = {"error": kind.__name__, "text": str(error)}
    found |= {"embeddings": tuple(report.embeddings), "initial_state": report.initial_state}
    return _Answer(report=report.build(), **found)


def load(kind: FileKind) -> Callable[[BinaryIO, ReadOptions, ReportBuilder], Network]:
    """Import the reader of a kind of file and the packages that it needs, before limits hold.

    Raises ToolError if a package is missing.
    """
    ACTIVATIONS.values()  # Those of packages may stand in folders that cannot be read later.
    module, name, packages = FOREIGN[kind]
    for package in packages:
        import_extra(package, "keras" if kind == "keras" else "torch")
    reader: Callable[[BinaryIO, ReadOptions, ReportBuilder], Network]
    reader = getattr(importlib.import_module(module), name)
    return reader


def read_foreign(file: BinaryIO, kind: FileKind, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file of one of the kinds :data:`FOREIGN` in this process.

    Raises ModelError, ToolError as :func:`read_in_child`, but for what ends the process.
    """
    read = load(kind)
    # The check of finite numbers refuses what overflows, with a name. Libraries raise errors of many kinds.
    with (
        one_error(f"cannot be read ({{}}); {_SAVE}", Exception),
        np.errstate(over="ignore", invalid="ignore"),
    ):
        try:
            return read(file, options, report)
        except MemoryError:
            raise ModelError(
                f"needs more than the {MEMORY >> 30} GiB that reading may take; {_SAVE}"
            ) from None
