"""Other people's figures for the benchmark networks, measured on their devices; never mixed with ours.

A figure was *read* in the source itself, *quoted* in a text that quotes it, *derived* by arithmetic
from what was read, or *recalled* from a paper without its text at hand.
"""

from typing import Literal

from rtlstm.spec.record import Record

Kind = Literal["read", "quoted", "derived", "recalled"]
Timed = Literal["on chip", "on chip, estimated", "on chip, simulated", "end to end", "in process"]
"""On chip: from the first to the last bit on the device. End to end: through a host and back.
In process: a call in a program."""
PeerUnit = Literal["step", "sequence"]
"""What was timed: one step with the state kept, or all the network's steps."""


class Anchor(Record):
    """A published figure of another project."""

    shape: str | None
    """Name of the benchmark network; None for a network that is not measured here."""
    network: str = ""
    """The network, if it is not measured here."""
    who: str
    device: str
    clock_mhz: float | None
    """None if it is unknown or has no meaning."""
    timed: Timed
    unit: PeerUnit
    lowest_us: float | None
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


def _stac(
    who: str, device: str, times: tuple[float, float, float], source: str, kind: Kind, below: bool = False
) -> list[Anchor]:
    return [
        Anchor(
            shape=shape,
            who=who,
            device=device,
            clock_mhz=None,
            timed="end to end",
            unit="step",
            lowest_us=None if below else time,
            highest_us=time,
            statistic="p99",
            source=source,
            kind=kind,
        )
        for shape, time in zip(("stac_a", "stac_b", "stac_c"), times, strict=True)
    ]


def _one(
    shape: str | None,
    who: str,
    device: str,
    clock: float | None,
    timed: Timed,
    unit: PeerUnit,
    time: float | tuple[float, float],
    source: str,
    kind: Kind,
    network: str = "",
) -> Anchor:
    lowest, highest = time if isinstance(time, tuple) else (time, time)
    return Anchor(
        shape=shape,
        network=network,
        who=who,
        device=device,
        clock_mhz=clock,
        timed=timed,
        unit=unit,
        lowest_us=lowest,
        highest_us=highest,
        source=source,
        kind=kind,
    )


_CREATOR = "elastic-ai.creator"
_VOLLO = "VOLLO SDK 29, 12,288 MAC a cycle"
_VOLLO_CARD = "IA-840F (Agilex)"
_RTNEURAL = "RTNeural, C++ float"

ANCHORS: tuple[Anchor, ...] = (
    _one("traffic20", _CREATOR, "XC7S15", None, "on chip", "sequence", 30.4, "arXiv 2604.19293", "derived"),
    _one("traffic20", _CREATOR, "XC7S15", None, "on chip", "sequence", 57.0, "arXiv 2310.16842", "derived"),
    _one(
        "traffic20",
        f"{_CREATOR} 0.67",
        "LFE5U-85F-8",
        None,
        "on chip, simulated",
        "step",
        (14.0, 18.0),
        "892 cycles simulated, 50 to 63 MHz after place and route",
        "derived",
    ),
    _one(
        "toptag",
        "hls4ml, lowest reuse",
        "HLS",
        200,
        "on chip, estimated",
        "sequence",
        (1.5, 1.7),
        "arXiv 2207.00559",
        "quoted",
    ),
    _one(
        "toptag",
        "hls4ml, high reuse",
        "HLS",
        200,
        "on chip, estimated",
        "sequence",
        (8.0, 12.0),
        "arXiv 2207.00559",
        "quoted",
    ),
    _one(
        "mnist32",
        "Que, RNN_HLS",
        "KU115, 3,680 DSP",
        200,
        "on chip, estimated",
        "sequence",
        1.64,
        "328 cycles, project's own report",
        "read",
    ),
    _one(
        "vad128",
        _VOLLO,
        _VOLLO_CARD,
        320,
        "on chip, estimated",
        "step",
        0.303,
        "97 cycles, the SDK's own model",
        "read",
    ),
    *_stac("VOLLO 0.2", "Agilex AGF027", (5.07, 6.89, 31.0), "STAC MRTL230426", "read"),
    *_stac("VOLLO", "Versal VP1802", (2.0, 3.0, 8.0), "STAC MRTL260323", "quoted", below=True),
    *_stac("NVIDIA", "GH200", (4.70, 7.10, 15.8), "vendor's blog, 2026", "read"),
    *_stac("NVIDIA", "A100", (35.2, 68.5, 640.0), "STAC NVDA221118", "read"),
    _one(
        "deepbench256",
        "Brainwave, 96,000 MAC",
        "Stratix 10 280",
        250,
        "on chip",
        "step",
        2.8,
        "ISCA 2018: 425 us for 150 steps",
        "recalled",
    ),
    _one(
        "deepbench256",
        "Plasticine",
        "its own chip",
        None,
        "on chip, simulated",
        "step",
        0.279,
        "MLSys 2019: 41.9 us for 150 steps",
        "recalled",
    ),
    _one(
        "lstm2x250",
        _VOLLO,
        _VOLLO_CARD,
        320,
        "on chip, estimated",
        "step",
        0.6,
        "192 cycles, the SDK's own model",
        "read",
    ),
    _one(
        "lstm4x177",
        _VOLLO,
        _VOLLO_CARD,
        320,
        "on chip, estimated",
        "step",
        0.981,
        "314 cycles, the SDK's own model",
        "read",
    ),
    _one(
        "gru512",
        _VOLLO,
        _VOLLO_CARD,
        320,
        "on chip, estimated",
        "step",
        0.694,
        "222 cycles, the SDK's own model",
        "read",
    ),
    _one("dropbear", "RTL by hand", "U55C", None, "on chip", "step", 1.42, "arXiv 2309.00801", "read"),
    _one(
        None,
        "VOLLO, no computation",
        "",
        None,
        "end to end",
        "step",
        0.89,
        "64 bytes each way",
        "read",
        network="none",
    ),
    _one(
        None,
        "Spartus, sparse in weights and time",
        "Zynq-7100",
        None,
        "on chip",
        "step",
        1.0,
        "arXiv 2108.02297, mean",
        "read",
        network="1 x 1024",
    ),
    *(
        _one(
            None,
            _RTNEURAL,
            "desktop CPU",
            3200,
            "in process",
            "step",
            time,
            "the project's own table",
            "derived",
            network=f"{size} -> {size}",
        )
        for size, time in ((16, 0.32), (32, 0.88), (64, 3.2))
    ),
)
"""Figures of the networks that are measured here, and a few of others for orientation."""
