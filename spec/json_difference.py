"""Names the first difference between two JSON values, for messages."""

import json
from collections.abc import Iterable
from typing import Any


def json_difference(found: Any, wanted: Any, path: str = "") -> str | None:
    """Return a text with the first path at which two JSON values differ, and both values, or None."""
    if type(found) is type(wanted) and isinstance(wanted, dict | list) and len(found) == len(wanted):
        pairs: Iterable[tuple[Any, Any]] = wanted.items() if isinstance(wanted, dict) else enumerate(wanted)
        for key, value in pairs:
            inside = f"{path}.{key}" if path else str(key)
            if difference := json_difference(found[key], value, inside):
                return difference
        return None
    if found == wanted:
        return None
    return f"{path} must be {short_json(wanted)}, not {short_json(found)}"


def short_json(value: Any) -> str:
    """Return a value's JSON, cut after some 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."
