"""An option from outside: a record that declares it and a command that takes it, and nothing else."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import typer
from pydantic import Field
from support.no_logic import no_logic
from support.paths import DOCS

from rtlstm.cli.commands import find_command, worded
from rtlstm.cli.console import Console
from rtlstm.cli.options import command as as_command
from rtlstm.cli.options_page import options_page
from rtlstm.gen.builds.command_options import BitstreamOptions, ImplementOptions, SimulateOptions
from rtlstm.gen.builds.compiled import OPTIONS, Build, compile
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.network import Network, Rnn
from rtlstm.spec.record import Option, Record, declared_options, option_text


class Colours(Record):
    """Where the options are declared."""

    ink_bits: Annotated[int, Field(ge=2, le=9), Option("Of a drop.", group="Print")] = 4
    paper: Annotated[Literal["white", "grey"] | None, Option("What is printed on.")] = None
    glossy: Annotated[bool, Option("Whether it shines.", flag="--shiny/--dull")] = False
    names: Annotated[tuple[str, ...], Option("May be repeated.", flag="--name")] = ()


@pytest.fixture
def command() -> tuple[Any, list[Mapping[str, Any]]]:
    """Where they act: a command, and what it was given."""
    taken: list[Mapping[str, Any]] = []

    @as_command(Colours)
    def draw(console: Console, file: str, options: Mapping[str, Any]) -> None:
        Colours(**options)
        taken.append(options)

    app = typer.Typer(add_completion=False)
    app.command("draw")(draw)
    return typer.main.get_command(app), taken


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    layer = Rnn(w_ih=np.ones((2, 2)), w_hh=np.ones((2, 2)), bias=np.zeros(2))
    folder = tmp_path_factory.mktemp("built") / "b"
    with no_logic():
        return compile(Network(layers=(layer,)), folder=folder, lanes=4, macs=1)


def run(command: Any, *words: str) -> int:
    return int(command(args=["picture", *words], standalone_mode=False) or 0)


def test_the_command_gets_what_is_typed(command: tuple[Any, list[Mapping[str, Any]]]) -> None:
    program, taken = command
    run(program)
    run(program, "--ink-bits", "4", "--paper", "grey", "--shiny", "--name", "a", "--name", "b")
    run(program, "--dull")
    typed = {"ink_bits": 4, "paper": "grey", "glossy": True, "names": ("a", "b")}
    assert taken == [{}, typed, {"glossy": False}]
    with pytest.raises(Exception, match="white"):
        run(program, "--paper", "blue")


def test_a_message_names_options_by_their_names_in_python(
    command: tuple[Any, list[Mapping[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    program, _ = command
    with pytest.raises(ConfigurationError, match="^`ink_bits` must be less than or equal to 9, not 10$"):
        Colours(ink_bits=10)
    assert run(program, "--ink-bits", "10") == 2
    assert capsys.readouterr().err == "error: `ink_bits` must be less than or equal to 9, not 10\n"
    assert option_text({"paper": "my own", "scale": 0.25, "glossy": False}) == (
        "`paper='my own', scale=0.25, glossy=False`"
    )


@pytest.mark.parametrize(
    ("python", "typed"),
    [
        ("`weight_bits` must be 8, not 9", "--weight-bits must be 8, not 9"),
        ("give `lstm='a b'` or `output`", "give --lstm 'a b' or --output-tensor"),
        ("`lstm='a`b'`, `lstm=\"it's\"`", "--lstm 'a`b', --lstm 'it'\"'\"'s'"),
        ("with `lanes=4, macs=2`", "with --lanes 4 --macs 2"),
        ("`dense=('a:relu', 'b')`", "--dense a:relu --dense b"),
        ("`skip_zeros=True`, `batch_first=False`", "--skip-zeros, --no-batch-first"),
        ("`multipliers='lut'`, `multipliers=False`", "--multipliers lut, --no-dsp"),
        ("`capacities={'vector_words': 8}`", "--capacity vector-words=8"),
        ("`cell_range=1e-05`", "--cell-range 1e-05"),
        ("`Build('my b').bitstream(board='BOARD')`", "rtlstm bitstream 'my b' --board BOARD"),
        *((same, same) for same in ("`x`", "`lanes", "`lanes=y`", "`(`", "`lanes=4, z=2`", "`lanes\n`")),
    ],
)
def test_the_command_line_prints_flags_instead(python: str, typed: str) -> None:
    assert worded(python) == typed


RECORDS: dict[str, tuple[Callable[..., Any], tuple[type[Record], ...]]] = {
    "generate": (compile, OPTIONS),
    "simulate": (Build.simulate, (SimulateOptions,)),
    "implement": (Build.implement, (ImplementOptions,)),
    "bitstream": (Build.bitstream, (BitstreamOptions,)),
}


@pytest.mark.parametrize("name", RECORDS)
def test_every_option_is_on_the_command_line_and_in_python(name: str) -> None:
    function, records = RECORDS[name]
    flags = {flag for each in find_command(name).params for flag in (*each.opts, *each.secondary_opts)}
    keywords = inspect.signature(function).parameters
    declared = declared_options(*records)
    assert len(declared) >= 4
    for each in declared:
        assert set(each.flag.split("/")) <= flags
        if not each.required:
            assert keywords[each.name].default == each.default
    assert not any(each.kind is each.VAR_KEYWORD for each in keywords.values())


def test_every_option_is_on_the_page() -> None:
    assert (DOCS / "options.md").read_text() == options_page(), "run python -m rtlstm.cli.options_page"


@pytest.mark.parametrize(
    ("words", "call", "problem"),
    [
        ("simulate DIR --steps 0", {"steps": 0}, "{} must be greater than or equal to 1, not 0"),
        ("simulate DIR --seed -1", {"seed": -1}, "{} must be greater than or equal to 0, not -1"),
        ("implement DIR --seeds 100", {"seeds": 100}, "{} must be less than or equal to 99, not 100"),
        ("implement DIR --clock 0", {"clock_mhz": 0.0}, "{} must be greater than or equal to 1, not 0.0"),
        ("bitstream DIR --baud 110", {"baud": 110}, "{} must be greater than or equal to 300, not 110"),
        ("board DIR --baud 110", {}, "{} must be greater than or equal to 300, not 110"),
    ],
)
def test_one_check_for_both_interfaces(
    words: str, call: dict[str, Any], problem: str, cli: Any, built: Build
) -> None:
    name, _, *options = words.split()
    target = {"implement": {"device": "up5k"}, "bitstream": {"board": "ulx3s-85f"}}.get(name, {})
    needed = {"implement": ["--device", "up5k"], "bitstream": ["--board", "ulx3s-85f"]}
    more = needed.get(name, ["--board", "ulx3s-85f"] if name == "board" else [])
    cli(name, built.folder, *more, *options).refused(problem.format(options[0]))
    if call:
        with pytest.raises(ConfigurationError) as caught:
            getattr(built, name)(**target, **call)
        assert str(caught.value) == problem.format(f"`{next(iter(call))}`")


def test_methods_refuse_options_that_they_do_not_have(built: Build) -> None:
    with pytest.raises(ConfigurationError, match="implement has no option 'seed'; did you mean seeds"):
        built.implement("up5k", seed=3)
    with pytest.raises(ConfigurationError, match="`seed` is for random input"):
        built.simulate(np.zeros((2, built.inputs)), seed=3)
    with pytest.raises(InputError, match="`steps` must be at most the steps of the input, 2, not 3"):
        built.simulate(np.zeros((2, built.inputs)), steps=3)
    with pytest.raises(ConfigurationError, match="`device` must be a valid string, not 5"):
        built.implement(5)
