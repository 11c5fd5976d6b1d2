"""An option from outside: a record that declares it and a command that takes it, and nothing else."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from support.paths import DOCS

from rtlstm.cli.declared import takes_options
from rtlstm.cli.main import COMMANDS
from rtlstm.cli.options_page import options_page
from rtlstm.cli.wording import CommandWording
from rtlstm.gen.builds.compiled import OPTIONS
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.options import Kept, Option, declared_options, named, option, options, worded
from rtlstm.spec.record import Record


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

    @takes_options(Colours)
    def draw(file: str, options: Mapping[str, Any]) -> None:
        Colours(**options)
        taken.append(options)

    app = typer.Typer(add_completion=False)
    app.command("draw")(draw)
    return typer.main.get_command(app), taken


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


def test_one_message_in_the_words_of_each_interface(command: tuple[Any, list[Mapping[str, Any]]]) -> None:
    program, _ = command
    limit = "must be less than or equal to 9, not 10"
    with pytest.raises(ConfigurationError, match=f"^ink_bits {limit}$"):
        run(program, "--ink-bits", "10")
    with worded(CommandWording({"draw": program, "generate": program}, "draw")):
        with pytest.raises(ConfigurationError, match=f"^--ink-bits {limit}$"):
            run(program, "--ink-bits", "10")
        assert options({"paper": "my own", "glossy": False, "ink_bits": 3}) == (
            "--paper 'my own' --dull --ink-bits 3"
        )
        assert option("names", ("a", "b")) == "--name a --name b" and option("names") == "--name"
        assert option("capacities", {"vector_words": 8}) == "--capacity vector-words=8"
    assert options({"paper": "my own", "glossy": False}) == "paper='my own', glossy=False"


def test_a_message_from_another_process_is_worded_here() -> None:
    with worded(Kept()):
        text = f'{{"text": "give {option("lstm", "a b")} or {option("output")}"}}'
    assert named(text) == '{"text": "give lstm=\'a b\' or output"}'
    with worded(CommandWording(COMMANDS, "inspect")):
        assert named(text) == '{"text": "give --lstm \'a b\' or --output-tensor"}'
    with pytest.raises(ValueError, match="non-hexadecimal"):
        named("\ue000zz\ue001")


def test_every_option_is_on_the_command_line_and_on_the_page() -> None:
    flags = {flag for each in COMMANDS["generate"].params for flag in (*each.opts, *each.secondary_opts)}
    for each in declared_options(*OPTIONS):
        assert set(each.flag.split("/")) <= flags
    assert (DOCS / "options.md").read_text() == options_page(), "run python -m rtlstm.cli.options_page"
