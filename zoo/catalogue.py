"""The zoo's models by name."""

import difflib

from rtlstm.spec.errors import ConfigurationError
from rtlstm.zoo.entry import Entry
from rtlstm.zoo.gait import GAIT
from rtlstm.zoo.silero import SILERO
from rtlstm.zoo.taggers import SEGMENTER, UZMORPH

__all__ = ["ENTRIES", "find_entry"]

ENTRIES: dict[str, Entry] = {entry.name: entry for entry in (SILERO, GAIT, UZMORPH, SEGMENTER)}


def find_entry(name: str) -> Entry:
    """Return a model by its name.

    Raises
    ------
    ConfigurationError
        If there is none of this name.
    """
    if name in ENTRIES:
        return ENTRIES[name]
    similar = difflib.get_close_matches(name, ENTRIES, n=1)
    hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(ENTRIES)}"
    raise ConfigurationError(f"the zoo has no model {name!r}; {hint}")
