"""Boards beside the processor: ``rtlstm bench --boards``.

The times of boards are those of :mod:`rtlstm.boards.wire`. The software's share is measured here, against
simulated boards' sockets, and the processor's time of a step by the engines of the other tables.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import computed_field

from rtlstm.bench.hardware import build_shape
from rtlstm.bench.records import CpuTime, Machine
from rtlstm.bench.shapes import Floats, Shape, find_shapes
from rtlstm.bench.worker import describe_machine, start
from rtlstm.boards.board import Link
from rtlstm.boards.catalogue import usable_boards
from rtlstm.boards.wire import LINK_COSTS
from rtlstm.gen.builds.generate import BuildRequest
from rtlstm.gen.builds.on_board import BoardOffer, compare_boards, mark_cheapest
from rtlstm.host import Accelerator
from rtlstm.spec.errors import ToolError
from rtlstm.spec.progress import Progress, counted
from rtlstm.spec.record import Record

NETWORKS: Final = ("toptag", "stac_a", "vad128")
ENGINES: Final = ("c++ int8", "onnxruntime")
_CALIBRATION = 64
"""Steps of the inputs that set the formats."""
_SERVED: Final[Mapping[Link, tuple[str, ...]]] = {
    "serial": ("--board", "ulx3s-85f", "--no-pty", "--tcp", "0"),
    "spi": ("--board", "ulx3s-85f", "--spi", "--tcp", "0"),
    "ethernet": ("--board", "colorlight-i5", "--ip", "192.168.1.50", "--udp", "0"),
}
"""How a simulated board with each link is reached."""
_CLOCK_MHZ = 25
"""A slow core is simulated faster; the driver does not notice."""
_SMALL = Shape(name="driven", origin="", inputs=6, units=(4,), steps=1, macs=4, bits=8, family="ecp5")


class Software(Record):
    """The driver's processor time of a step over the socket of a simulated board.

    That of a link that is not Ethernet is measured at a TCP socket, so it is the same for all: the larger.
    """

    link: Link
    alone_us: float
    batch_us: float
    """For a step alone, and for one of many."""


class NetworkBoards(Record):
    """A network on each board, and on this machine's processor."""

    name: str
    boards: tuple[BoardOffer, ...]
    cpu: tuple[CpuTime, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """One sentence: where the fastest board loses to the processor, and where it wins.

        Boards that need fewer bits than were asked for are left out.
        """
        builds = [(offer.board, offer.build) for offer in self.boards if offer.build]
        links = [(on, link) for on, build in builds if not build.changed for link in build.links]
        times = {time.engine: time.mean_us if time.kernel else time.p50_us for time in self.cpu}
        times = {engine: us for engine, us in times.items() if us is not None}
        if not links or not times:
            return f"{self.name}: nothing to compare."
        parts = []
        for name, where in (("core", "in the core"), ("pins", "at the pins"), ("host", "at the host")):
            us, board, link = min((getattr(each, f"{name}_us"), board, each.link) for board, each in links)
            verbs = (f"{'wins against' if us < cpu else 'loses to'} {each}" for each, cpu in times.items())
            on = board if name == "core" else f"{board} on {link}"
            parts.append(f"{where} {on}, {us:.3g} us ({', '.join(verbs)})")
        cpu = ", ".join(f"{each} {us:.3g} us" for each, us in times.items())
        return f"{self.name}: here {cpu}; the fastest boards: {'; '.join(parts)}."


class BoardsResult(Record):
    """The result of ``rtlstm bench --boards``."""

    machine: Machine
    software: tuple[Software, ...]
    networks: tuple[NetworkBoards, ...]


def run_boards(
    names: Sequence[str] | None, folder: Path, quick: bool = False, progress: Progress | None = None
) -> BoardsResult:
    """Compare boards and the processor for networks, by default :data:`NETWORKS`.

    Raises ConfigurationError if there is no such network. Raises ToolError if a simulator is missing.
    """
    chosen = find_shapes(list(names or NETWORKS))
    machine = describe_machine()
    build = folder / _SMALL.name
    build_shape(_SMALL, build, progress)
    software = _alike_at_tcp(
        [_measure(build, link, 10 if quick else 60) for link in counted(progress, "links", LINK_COSTS)]
    )
    names = [shape.name for shape in chosen]
    times: dict[str, list[CpuTime]] = {name: [] for name in names}
    for engine in counted(progress, "time a step on the processor", ENGINES):
        for line in start("engine", engine=engine, names=names, seconds=0.05 if quick else 1.0):
            times[line["shape"]].append(CpuTime(**line["time"]))
    found = []
    for shape in chosen:
        request = BuildRequest(
            network=shape.network(),
            settings=shape.settings,
            calibration=shape.input_values(_CALIBRATION).astype(np.float64),
        )
        offers = compare_boards(request, usable_boards(), progress, f"compare boards for {shape.name}")
        ours = mark_cheapest([_with_software(offer, software) for offer in offers])
        found.append(NetworkBoards(name=shape.name, boards=ours, cpu=tuple(times[shape.name])))
    return BoardsResult(machine=machine, software=tuple(software.values()), networks=tuple(found))


def _alike_at_tcp(measured: Sequence[Software]) -> dict[Link, Software]:
    at_tcp = [each for each in measured if each.link != "ethernet"]
    larger = {name: max(getattr(each, name) for each in at_tcp) for name in ("alone_us", "batch_us")}
    return {each.link: each.replace(**larger) if each in at_tcp else each for each in measured}


def _with_software(offer: BoardOffer, software: Mapping[Link, Software]) -> BoardOffer:
    """Put what was measured here in the place of what is known of another machine."""
    if offer.build is None:
        return offer
    links = tuple(
        each.replace(software_us=software[each.link].alone_us, batch_us=software[each.link].batch_us)
        for each in offer.build.links
    )
    return offer.replace(build=offer.build.replace(links=links))


def _measure(build: Path, link: Link, steps: int) -> Software:
    """Measure the driver's processor time over the socket of a simulated board, which is another process."""
    options = [*_SERVED[link], "--clock", str(_CLOCK_MHZ)]
    command = [sys.executable, "-P", "-m", "rtlstm", "board", str(build), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as board:
        assert board.stdout is not None
        try:
            said: list[str] = []
            for line in board.stdout:
                said.append(line)
                if found := re.search(r"\b(?:tcp|udp):localhost:\d+", line):
                    break
            else:
                raise ToolError(f"the simulated board on {link} must begin to serve, but: {''.join(said)}")
            with Accelerator.open(build, found[0]) as driver, driver.stream() as stream:
                x = _SMALL.input_values(steps)
                alone = [_processor_us(stream.step, row) for row in x]
                many = _processor_us(stream.steps, _SMALL.input_values(10 * steps))
        finally:
            board.send_signal(signal.SIGTERM)
    return Software(
        link=link, alone_us=round(float(np.median(alone)), 1), batch_us=round(many / (10 * steps), 2)
    )


def _processor_us(call: Callable[[Floats], object], x: Floats) -> float:
    begun = time.process_time()
    call(x)
    return 1e6 * (time.process_time() - begun)
