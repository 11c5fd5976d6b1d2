"""What the command line calls options, for messages; see :mod:`rtlstm.spec.options`."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from rtlstm.spec.options import BARE

__all__ = ["CommandWording", "chosen_for", "next_command", "typed_options"]


class CommandWording:
    """Names options as they are typed behind a command.

    Parameters
    ----------
    find_command
        Returns the command of a name, whose parameters have the names that Python has.
    running
        The command that is under way.
    """

    separator = " "
    call = "rtlstm {command} {folder} {options}"

    def __init__(self, find_command: Callable[[str], Any], running: str) -> None:
        self._find_command = find_command
        self._running = running

    def name(self, option: str, value: Any, command: str) -> str:
        """Return an option of a command, by default of ``generate`` or the running one, and its value."""
        if isinstance(value, Mapping):
            # One option for each: capacities={"headroom": 4} is --capacity headroom=4.
            return typed_options(
                "--capacity", [f"{key.replace('_', '-')}={each}" for key, each in value.items()]
            )
        yes, no = self._flags(option, command)
        if value is BARE or value is True:
            return yes
        values = list(value) if isinstance(value, list | tuple) else [value]
        return no if value is False else typed_options(yes, values)

    def _flags(self, option: str, command: str) -> tuple[str, str]:
        """What an option is called, and what turns it off."""
        for holder in (command,) if command else ("generate", self._running):
            for each in self._find_command(holder).params:
                if each.name == option and each.opts[-1].startswith("--"):
                    return each.opts[-1], (each.secondary_opts or ["--no-" + each.opts[-1][2:]])[-1]
        return f"--{option.replace('_', '-')}", f"--no-{option.replace('_', '-')}"


def typed_options(flag: str, values: list[Any]) -> str:
    """Return an option once for each value, quoted where a shell needs that."""
    texts = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return " ".join(f"{flag} {shlex.quote(text)}" for text in texts)


def chosen_for(fit: Mapping[str, Any]) -> str:
    """Say what the sizes of an array were chosen for, from the JSON object of a ``Fit``."""
    from rtlstm.fpga.fit import Fit

    link = ", its link counted in" if fit["estimate"]["board"] else ""
    return (
        f"Sizes chosen for {fit['device']}{link}, with the {fit['pipeline']} pipeline, of {fit['tried']:,} "
        f"worked out; {Fit.model_validate(fit).limit_text}."
    )


def next_command(command: str, folder: object, **options: object) -> str:
    """Return a command for what a command before made, as it is typed."""
    texts = (typed_options(f"--{name}", [value]) for name, value in options.items())
    return " ".join([f"rtlstm {command} {shlex.quote(str(folder))}", *texts])
