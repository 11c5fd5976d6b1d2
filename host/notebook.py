"""Tables that objects show in notebooks."""

from collections.abc import Mapping
from html import escape

__all__ = ["html_table"]


def html_table(caption: str, facts: Mapping[str, str]) -> str:
    """Return names and values as a table in HTML."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(caption)}</caption>{rows}</table>"
