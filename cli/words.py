"""Messages of the library in the words of the command line: options in place of Python's argument names."""

import re
import shlex
from collections.abc import Mapping

__all__ = ["command_words"]

_FIELDS = {
    "output": "output_tensor",
    "branches": "branch",
    "lut_macs": "multipliers",
    "all_lut": "multipliers",
}
"""Fields that are called otherwise than the command's parameters."""


def command_words(message: str, options: Mapping[str, str]) -> str:
    """Return a message in which options stand where it names the arguments that they set.

    Parameters
    ----------
    options
        Of the command: its parameters' names, and what they are called on the command line.
    """
    names = dict(options) | {field: options[name] for field, name in _FIELDS.items() if name in options}
    # Messages that know of both name both: NAME (--option), or NAME='value' (--option).
    both = "|".join(sorted(("lstm", "output", "dense", "branches")))
    message = re.sub(
        rf"\b(?:{both})=(?:'([^']*)'|\"([^\"]*)\") \((--[a-z-]+)\)",
        lambda found: f"{found[3]} {shlex.quote(found[1] or found[2] or '')}",
        message,
    )
    message = re.sub(rf"\b(?:{both}) \((--[a-z-]+)\)", r"\1", message)
    for name, option in names.items():
        if "_" in name:
            message = re.sub(rf"(?<![\w./'\"-]){name}(?![\w./'\"=-])", option, message)
        # What a field's check says: "lanes: must be", "lanes must be", "beat_in (3) must".
        message = re.sub(
            rf"(?:(?<=^)|(?<=; )|(?<=: )){name}:? (?=(?:\([^)]*\) )?must )", f"{option} ", message
        )
    # A value is wrong in one place: the option needs no colon behind it.
    return re.sub(r"(?<![\w-])(--[a-z-]+): must ", r"\1 must ", message)
