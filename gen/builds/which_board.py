"""Which board to buy for a network: what ``--fit`` would choose on each, and a step's time over its links."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rtlstm.boards.bitstream import expected_clock
from rtlstm.boards.board import Board
from rtlstm.boards.catalogue import find_target, price_class
from rtlstm.boards.wire import WireTime, link_timing, predict_wire
from rtlstm.fpga.fit import NothingFitsError
from rtlstm.gen.builds.generate import BuildRequest, Design, choose_design
from rtlstm.gen.builds.hardware import check_hardware
from rtlstm.gen.quantise.accuracy import Accuracy, measure_accuracy
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.progress import Progress, counted
from rtlstm.spec.record import Record

_MEASURED = ("rms_error", "spread", "decisions", "decisions_changed")


class BoardBuild(Record):
    """What ``rtlstm generate --fit BOARD --fit-anyway`` would choose."""

    weight_bits: int
    changed: dict[str, Any]
    """Options of the numbers that are not as asked, because the network would not fit."""
    lanes: int
    macs: int
    clock_mhz: float
    """The core's clock that is expected of the bitstream."""
    step_cycles: int
    cell_share: float
    """Share of the device's logic cells in percent, with the serial link."""
    rms_error: float
    spread: float
    decisions: int
    decisions_changed: int
    """Those of :class:`~rtlstm.gen.quantise.accuracy.Accuracy`, on the calibration data."""
    links: tuple[WireTime, ...]


class BoardOffer(Record):
    """A board, and whether a network fits it."""

    board: str
    title: str
    device: str
    price: str
    build: BoardBuild | None
    refusal: str = ""
    """Why nothing fits; empty if something does."""
    cheapest: bool = False
    """Whether no board that fits is cheaper, and none of its class is faster at the host. Boards that need
    fewer bits than were asked for count only if all do."""

    @property
    def _cost(self) -> tuple[bool, int, float]:
        assert self.build is not None
        fastest = min(link.host_us for link in self.build.links)
        return bool(self.build.changed), price_class(self.board)[0], fastest


def compare_boards(
    request: BuildRequest,
    boards: Sequence[Board],
    progress: Progress | None = None,
    what: str = "compare boards",
) -> tuple[BoardOffer, ...]:
    """Compare boards for a network; ``request`` is that of a build, without its hardware, ``what`` the phase.

    Raises NothingFitsError if the network fits none; the message says which comes closest. Raises
    ConfigurationError if no board's link can carry the network's steps, as of whole sequences, and InputError
    if the calibration data do not fit.
    """
    if lower(unfold(request.network))[1]:
        raise ConfigurationError(
            "a board's link takes steps one by one, but this network has a reverse direction: connect the "
            "ports of its core yourself, and choose a device for it with `fit` and `max_steps`"
        )
    data, measured = request.data(), dict[str, Accuracy]()
    designs, offers = dict[Any, Design | NothingFitsError](), list[BoardOffer]()
    decides = request.source is not None and request.source.decides
    for board in counted(progress, what, boards):
        # Boards whose devices and clocks are alike take the same design.
        target = find_target(board.name)
        key = target.chosen.label, target.board_mhz
        if key not in designs:
            asked = {"tables": request.settings.tables, "fit_anyway": True}
            try:
                fitted = replace(request, **check_hardware(board.name, asked))
                designs[key] = choose_design(fitted, data)
            except NothingFitsError as refused:
                designs[key] = refused
        found, build, refusal = designs[key], None, ""
        if isinstance(found, NothingFitsError):
            refusal = found.said_of(board.name)
        else:
            numbers = found.settings.model_dump_json()
            if numbers not in measured:
                given = request.network, found.quantised, data, request.initial_state, decides
                measured[numbers] = measure_accuracy(*given)
            build = _describe(board, found, measured[numbers], request)
        names = {"board": board.name, "title": board.title, "device": board.chosen.label}
        price = price_class(board.name)[1]
        offers.append(BoardOffer(**names, price=price, build=build, refusal=refusal))
    if not any(offer.build for offer in offers):
        refusals = [each for each in designs.values() if isinstance(each, NothingFitsError)]
        if not refusals:
            raise ConfigurationError("there must be boards to compare, but none can be made")
        closest = min(refusals, key=lambda each: each.share or float("inf"))
        raise NothingFitsError(
            f"the network fits none of {len(offers)} boards; what comes closest: {closest} with "
            "`family`, `lanes` and `macs`, or make the network smaller",
            closest.share,
        )
    return mark_cheapest(offers)


def mark_cheapest(offers: Sequence[BoardOffer]) -> tuple[BoardOffer, ...]:
    """Return offers, at least one of which fits, with the cheapest one marked."""
    best = min((offer for offer in offers if offer.build), key=lambda offer: offer._cost)
    return tuple(offer.replace(cheapest=offer is best) for offer in offers)


def _describe(board: Board, found: Design, accuracy: Accuracy, request: BuildRequest) -> BoardBuild:
    manifest, asked = found.manifest, request.settings.model_dump()
    # A model's integers have scales that nobody asked for.
    chosen = found.settings.model_dump(exclude={"scale_bits"})
    assert found.fit is not None
    clock = float(expected_clock(manifest, board))
    return BoardBuild(
        weight_bits=manifest.numerics.weight_bits,
        changed={name: value for name, value in chosen.items() if value != asked[name]},
        lanes=manifest.parameters.lanes,
        macs=manifest.parameters.macs,
        clock_mhz=round(clock, 2),
        step_cycles=manifest.cycles.step_latency_cycles,
        cell_share=found.fit.estimate.cell_share,
        **{name: getattr(accuracy, name) for name in _MEASURED},
        links=tuple(predict_wire(manifest, link_timing(board, link, clock)) for link in board.links),
    )
