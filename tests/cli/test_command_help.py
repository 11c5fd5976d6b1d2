"""Help, lists and progress: what the command line tells before and while it works."""

import json
import re
import shlex
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from rtlstm.boards.catalogue import BOARDS, find_target
from rtlstm.boards.zynq import ZYNQ_BOARDS
from rtlstm.cli import console
from rtlstm.cli.commands import COMMANDS, find_command
from rtlstm.cli.main import app
from rtlstm.cli.results import Text
from rtlstm.fpga.devices import devices


def test_list_of_commands_imports_none_of_them():
    """What a command needs takes a second to import."""
    program = (
        "import sys; from rtlstm.cli.commands import COMMANDS; from rtlstm.cli.main import _run; "
        "_run(['--help']); "
        "heavy = {'numpy', 'pydantic', 'rich', 'amaranth', 'onnx', 'torch', 'jinja2'}; "
        "found = {each.partition('.')[0] for each in sys.modules} & heavy; "
        "assert not found, found; "
        "assert not {f'rtlstm.{each.module}' for each in COMMANDS.values()} & set(sys.modules)"
    )
    command = [sys.executable, "-c", program]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "60"}).stdout
    told = listed.partition("Commands:")[2]
    assert [line.split()[0] for line in told.splitlines() if re.match("  [a-z]", line)] == list(COMMANDS)
    words = " ".join(told.split())
    for name, entry in COMMANDS.items():
        assert f"{name} {entry.summary}" in words
        assert (find_command(name).help or "").split("\n")[0] == entry.summary


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_page_with_its_options_by_groups(name: str):
    command = find_command(name)
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "100"})
    assert done.exit_code == 0 and "<bool>" not in done.stdout
    assert CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "100"}).stdout == done.stdout
    head, *sections = re.split(r"^(\S.*):$", done.stdout, flags=re.MULTILINE)
    assert head.startswith(f"Usage: rtlstm {name} ")
    assert COMMANDS[name].summary in " ".join(head.split())
    titles, texts = sections[::2], sections[1::2]
    for each in command.params:
        title = "Arguments" if each.param_type_name == "argument" else "Options"
        words = " ".join(texts[titles.index(getattr(each, "rich_help_panel", None) or title)].split())
        assert " ".join((each.help or "").split()) in words, each.name
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100 and not any(line.endswith("-") for line in lines)


def completed(typed: str) -> list[str]:
    """Complete the last word, as bash does it."""
    environment = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
        "_RTLSTM_COMPLETE": "complete_bash",
    }
    program = "from rtlstm.cli.main import main; main()"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, env=environment).stdout.split()


def test_commands_and_options_are_completed():
    assert completed("rtlstm ") == list(COMMANDS)
    assert completed("rtlstm bo") == ["board", "boards"]
    assert completed("rtlstm devices --j") == ["--json"]
    assert "--weight-memory" in completed("rtlstm generate --w")


def test_completion_is_offered():
    # It finds out which shell has called it.
    command = ["bash", "-c", f"{shlex.quote(sys.executable)} -m rtlstm --show-completion; true"]
    assert "_rtlstm_completion" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_devices_are_listed(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    found = cli("devices", "--json").good().json["devices"]
    assert [each["name"] for each in found] == list(devices())
    assert all(find_target(each["name"])[0].device.luts == each["luts"] for each in found)
    text = cli("devices").good().out
    assert "place and route" in text and "synthesis only" in text and "83,640" in text
    assert "lfe5u-12f has the die of lfe5u-25f" in text and "Lattice promises only 12,000" in text


def test_boards_are_listed(cli):
    found = cli("boards", "--json").good().json["boards"]
    assert [each["name"] for each in found] == [*BOARDS, *ZYNQ_BOARDS]
    assert all(find_target(each["name"]).board.name == each["name"] for each in found)
    assert "iCEBreaker" in cli("boards").good().out


def test_long_phases_are_told_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("RTLSTM_PROGRESS")
    monkeypatch.setattr(console, "_LONG_SECONDS", 0.2)
    with console.Console(as_json=False, debug=False) as shown, shown.progress() as progress:
        progress("quick", 0, 1)
        progress("long", 0, 2)
        time.sleep(0.5)
        progress("long", 1, 2)
        progress("after", 0, 1)
    time.sleep(0.5)
    assert capsys.readouterr().err == "long ...\n"
    # Now and then, how far it is.
    now = iter([0.0, 20.0, 40.0, 40.0, 60.0, 80.0, 80.0])
    monkeypatch.setattr(console, "monotonic", lambda: next(now))
    with console.Console(as_json=False, debug=False) as shown, shown.progress() as progress:
        for done in range(5):
            progress("long", 1000 * done, 4000)
            time.sleep(0.5 if not done else 0.0)
    assert capsys.readouterr().err.splitlines() == [
        "long ...",
        "long: 2,000 of 4,000 after 0:40 minutes",
        "long: 4,000 of 4,000 after 1:20 minutes",
    ]
    monkeypatch.setenv("RTLSTM_PROGRESS", "none")
    with console.Console(as_json=False, debug=False) as shown, shown.progress() as progress:
        progress("long", 0, 2)
        time.sleep(0.5)
    assert capsys.readouterr().err == ""


def test_what_others_wait_for_is_told_before_the_json_object(capsys: pytest.CaptureFixture[str]):
    """Such as the port of a simulated board."""
    view = (Text("TCP: tcp:localhost:{tcp}"),)
    with console.Console(as_json=True, debug=False) as shown:
        shown.show(view, waiting=True, tcp=5000)
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", "TCP: tcp:localhost:5000\n")
        shown.show(view, cycles=3)
    told = capsys.readouterr()
    assert told.err == "" and json.loads(told.out).items() >= {"tcp": 5000, "cycles": 3}.items()
    with console.Console(as_json=False, debug=False) as shown:
        shown.show(view, waiting=True, tcp=0)
    assert capsys.readouterr() == ("TCP: tcp:localhost:0\n", "")
