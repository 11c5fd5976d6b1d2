"""Other people's figures for the benchmark networks, measured on their devices; never mixed with ours.

A figure was *read* in the source itself, *quoted* in a text that quotes it, *derived* by arithmetic
from what was read, or *recalled* from a paper without its text at hand.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from rtlstm.spec.record import Record

Kind = Literal["read", "quoted", "derived", "recalled"]
Timed = Literal["on chip", "on chip, estimated", "on chip, simulated", "end to end", "in process"]
"""On chip: from the first to the last bit on the device. End to end: through a host and back.
In process: a call in a program."""
PeerUnit = Literal["step", "sequence"]
"""What was timed: one step with the state kept, or all the network's steps."""


class Anchor(Record):
    """A published figure of another project."""

    shape: str | None = None
    """Name of the benchmark network; None for a network that is not measured here."""
    network: str = ""
    """The network, if it is not measured here."""
    who: str
    device: str = ""
    clock_mhz: float | None = None
    """None if it is unknown or has no meaning."""
    timed: Timed
    unit: PeerUnit
    lowest_us: float | None = None
    """None if the figure is only an upper bound."""
    highest_us: float
    statistic: str = ""
    """p99 if the source gives that; empty for a constant time or a mean."""
    source: str
    kind: Kind

    @property
    def figure(self) -> str:
        """The time in us, as text."""
        if self.lowest_us is None:
            text = f"< {self.highest_us:g}"
        elif self.lowest_us != self.highest_us:
            text = f"{self.lowest_us:g} to {self.highest_us:g}"
        else:
            text = f"{self.highest_us:g}"
        return f"{text} {self.statistic}".strip()


def _read(file: Path) -> Iterator[Anchor]:
    with file.open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            fields: dict[str, Any] = {name: value for name, value in row.items() if value}
            yield Anchor(**fields)


ANCHORS = tuple(_read(Path(__file__).with_suffix(".csv")))
"""Figures of the networks that are measured here, and a few of others for orientation."""
