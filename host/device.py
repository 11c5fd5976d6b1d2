"""A core behind a transport: its registers, memories, streams and the networks on it, in integers."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtlstm.host.state import LayerArrays, StateLayout
from rtlstm.host.transport import Transport, guarded
from rtlstm.spec.errors import ConfigurationError, DeviceError, InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.packing import pack_tables
from rtlstm.spec.parameters import MOST_NETWORKS, NETWORK_BIT
from rtlstm.spec.program.fields import FIRST, Bases
from rtlstm.spec.program.step import compile_program
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import IDENTITY, Command, Region, Register, field
from rtlstm.spec.residents import Part, find_rows, program_words, resident_parts, step_row


class OpenStreams(Protocol):
    """The part of an accelerator that the others on its device ask for."""

    @property
    def open_streams(self) -> list[int]:
        """Numbers of its open streams."""


Resident = TypeVar("Resident", bound=OpenStreams)


class Residents(Generic[Resident]):
    """What accelerators on one device know of each other.

    ``device`` is the manifest of any build for the device.
    """

    def __init__(self, device: Manifest) -> None:
        self.count = device.parameters.networks
        """Networks that the device can hold."""
        self.chosen = 0
        """The network whose steps the connection takes now."""
        self.known = False
        """Whether what the device holds was loaded over this connection: what it held before was cleared."""
        self.loaded: dict[int, tuple[Manifest, Bases]] = {}
        """What is loaded, and from which rows on."""
        self.accelerators: dict[int, Resident] = {}
        """The accelerator of each network."""

    def number(self, network: Any, device: Manifest) -> int:
        """Check the number of a network of the device.

        Raises InputError if it is no whole number, ConfigurationError if the device has no such network.
        """
        try:
            found = operator.index(network)
        except TypeError:
            raise InputError(f"network must be a whole number, not {network!r}") from None
        if not 0 <= found < self.count:
            held = "1 network" if self.count == 1 else f"{self.count} networks, 0 to {self.count - 1}"
            if found < 0:
                raise ConfigurationError(f"network must be at least 0, not {found}; the device holds {held}")
            more = f"with `capacities={{'networks': {found + 1}}}`"
            if found >= MOST_NETWORKS:
                more = f"for more, {MOST_NETWORKS} at most"
            raise ConfigurationError(
                f"network must be one that the device has room for, but {device.name!r} holds {held}, and "
                f"network {found} was named; generate it {more}"
            )
        return found

    def accelerator(self, network: int) -> Resident:
        """Return the accelerator of a network. Raises DeviceError if it is not loaded."""
        if network not in self.accelerators:
            held = ", ".join(map(str, sorted(self.accelerators)))
            raise DeviceError(
                f"network {network} is not loaded, and the device holds {held or 'none'}; "
                f"load(folder, network={network}) loads a build"
            )
        return self.accelerators[network]

    def taken(self) -> set[int]:
        """Numbers of the streams that are open, of any network."""
        return {number for each in self.accelerators.values() for number in each.open_streams}

    def find_rows(self, number: int, manifest: Manifest) -> Bases:
        """Return free rows for a network that is loaded as ``number`` beside the others.

        Raises ConfigurationError if its tables are not theirs, or if there is no room.
        """
        self._check_tables(number, manifest)
        return find_rows(self.loaded, number, manifest)

    def _check_tables(self, number: int, manifest: Manifest) -> None:
        mine = pack_tables(manifest.numerics)
        for other, _ in self.loaded.values():
            theirs = pack_tables(other.numerics)
            if not all(np.array_equal(mine[region], theirs[region]) for region in mine):
                raise ConfigurationError(
                    f"networks of one device share its tables, but network {number} of {manifest.name!r} "
                    "would have other tables of activations than the network that is loaded; generate both "
                    "with `device` and one folder"
                )


_BUSY = field(Register.STATUS, "BUSY")
_STATE_IS_ZERO = field(Register.FLAGS, "ZERO")
_IS_COPIED = field(Register.FLAGS, "COPIED")
_REGION, _BANK = field(Register.SELECT, "REGION"), field(Register.SELECT, "BANK")
_POLLS = 100_000
"""Reads of STATUS, in addition to the cycles of a few steps, before a device counts as dead."""


def refuse_spatial(device: Manifest) -> None:
    """Raise a ConfigurationError if a device's weights are constants of its hardware."""
    if device.spatial is not None:
        raise ConfigurationError(
            f"weights of {device.name!r} cannot be loaded, because they are constants of its logic: generate "
            "the retrained model as a build of its own, and place and route that; or leave out "
            "`array='spatial'`"
        )


def check_loadable(manifest: Manifest, device: Manifest) -> None:
    """Check that ``manifest``'s network can be loaded into the hardware that ``device`` describes.

    Raises ConfigurationError if the hardware's program is fixed and of another network, or it lacks a
    capacity, or differs in anything else.
    """
    if manifest.device_hash == device.device_hash:
        return
    refuse_spatial(device)
    if device.parameters.capacity is None:
        raise ConfigurationError(
            f"a device must have a loadable program to be given another network, but that of {device.name!r} "
            "is fixed and takes other weights alone; generate it with `capacities`, or this "
            "build, if only its weights are new, with `device` and the device's folder"
        )
    if not manifest.passes:
        # Says which capacity is too small, if one is.
        compile_program(manifest.layers, device.parameters, device.timing)
    raise ConfigurationError(
        f"a build must be made for the device that it is loaded into ({device.name!r}, hardware "
        f"{device.device_hash[:8]}), but this one is for {manifest.name!r} ({manifest.device_hash[:8]}), "
        f"with other {_differences(manifest, device)}; generate it with "
        "`device` and the device's folder"
    )


def _differences(manifest: Manifest, device: Manifest) -> str:
    found = ["name"] if manifest.name != device.name else []
    for ours, theirs in ((manifest.parameters, device.parameters), (manifest.numerics, device.numerics)):
        found += [name for name in type(ours).model_fields if getattr(ours, name) != getattr(theirs, name)]
    return ", ".join(found)


class Device:
    """Accesses a core through its registers.

    ``transport`` is the connection to the core; the device closes it. ``manifest`` is the build that the core
    must belong to. ``network`` is the number of the network that the core holds. ``residents`` is what is
    known of these; of a device that is not shared, nothing yet.
    """

    def __init__(
        self,
        transport: Transport,
        manifest: Manifest,
        network: int = 0,
        residents: Residents[Any] | None = None,
    ) -> None:
        self.network = network
        self.residents: Residents[Any] = Residents(manifest) if residents is None else residents
        self.manifest = manifest
        self.layout = StateLayout(manifest)
        self.whole = True
        """Whether the memories hold one complete image; if not, no step is taken."""
        self.initial_state: tuple[LayerArrays, LayerArrays] | None = None
        """h and cell states in which the model begins, ``(H_l,)`` per layer; None for zeros."""
        self._transport: Transport | None = transport
        self.owner = transport.owner
        """Guards what takes several accesses."""

    @property
    def label(self) -> str:
        """What messages call the network: other networks' builds for the hardware have its name, too."""
        name = repr(self.manifest.name)
        if self.residents.count > 1:
            return f"network {self.network} of {name}"
        return name if self.manifest.parameters.capacity is None else f"the network in {name}"

    @property
    def transport(self) -> Transport:
        """The connection; DeviceError once closed."""
        if self._transport is None:
            raise DeviceError("the accelerator is closed; open it again with Accelerator.open")
        return self._transport

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._transport is None

    def close(self) -> None:
        """Close the transport. Further calls do nothing."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def register(self, register: Register) -> int:
        """Read a register."""
        return int(self.transport.read(register)[0])

    def identify(self) -> None:
        """Check that the device is an rtlstm core and belongs to this build.

        Raises DeviceError if it is not.
        """
        found = self.register(Register.ID)
        if found != IDENTITY:
            raise DeviceError(
                f"the device's ID register must read {IDENTITY:#010x}, but it reads {found:#010x}; "
                "check the connection and that an rtlstm bitstream is loaded"
            )
        build = self.register(Register.BUILD)
        if build != self.manifest.build_number:
            raise DeviceError(
                f"the device must hold build {self.manifest.build_number:08x} "
                f"({self.manifest.name}), but it holds build {build:08x}; load this build's "
                "bitstream, or open the build folder that the device was made from"
            )

    @guarded
    def adopt(self, manifest: Manifest) -> None:
        """Use another build's manifest for the same hardware, before that build is loaded.

        Raises ConfigurationError if the backend cannot change its steps' sizes.
        """
        self.transport.adopt(manifest)
        self.residents.chosen = self.network
        self.manifest, self.layout, self.whole = manifest, StateLayout(manifest), False

    def _choose(self) -> None:
        """Have the connection take steps of this network."""
        if self.residents.chosen != self.network:
            self.transport.adopt(self.manifest)
            self.residents.chosen = self.network

    def _number(self, stream: int) -> int:
        """The number of a stream that runs this network, as the device has it."""
        return self.network << NETWORK_BIT | stream

    @guarded
    def load(
        self,
        image: WeightImage,
        verify: bool,
        progress: Progress | None = None,
        keep_states: bool = False,
    ) -> None:
        """Write a checked image and read it back if ``verify``. All streams are reset or keep their states.

        Steps in progress are finished first; then no step is taken until everything is written.

        Where there are several networks, the others stay as they are, and so do all streams.

        Raises DeviceError if a word reads back differently. Raises ConfigurationError if there is no room
        beside the other networks; nothing was changed then.
        """
        several = self.residents.count > 1
        bases = self.residents.find_rows(self.network, self.manifest) if several else FIRST
        self._await_idle()
        self.whole = False
        if several:
            self.clear()
        parts = resident_parts(image, self.manifest, bases) if several else _parts(image)
        done = 0
        for check in (False, True) if verify else (False,):
            for region, bank, row, words in parts:
                if check:
                    self._compare(region, bank, words, row)
                else:
                    self.write_rows(region, bank, row, words.reshape(-1))
                done += 1
                if progress:
                    what = "check weights" if check else "load weights"
                    progress(what, done, len(parts) * (2 if verify else 1))
        self._release(image, verify, bases)
        self.whole = True
        if several:
            self.residents.loaded[self.network] = self.manifest, bases
        elif not keep_states:
            self.reset(range(self.manifest.parameters.streams))

    @guarded
    def clear(self) -> None:
        """Take the network off the device: its steps are refused until it is loaded again.

        Before the first one of a connection is loaded, those are taken off that the device held.
        """
        residents = self.residents
        for network in (self.network,) if residents.known else range(residents.count):
            words = self.manifest.regions[Region.PROGRAM].words
            empty = np.zeros(words, dtype=np.int64)
            self.write_rows(Region.PROGRAM, 0, step_row(self.manifest, network), empty)
        residents.known = True
        residents.loaded.pop(self.network, None)
        self.whole = False

    def _release(self, image: WeightImage, verify: bool, bases: Bases) -> None:
        """Write a program's last row, after everything else: a loadable core takes no step until then."""
        if Region.PROGRAM not in image.regions:
            return
        _, words = program_words(self.manifest, bases)
        row = step_row(self.manifest, self.network)
        self.write_rows(Region.PROGRAM, 0, row, words.reshape(-1))
        if verify:
            self._compare(Region.PROGRAM, 0, words, row)

    def _compare(self, region: Region, bank: int, words: IntArray, first: int = 0) -> None:
        found = self.read_rows(region, bank, first, words.size).reshape(words.shape)
        if np.array_equal(found, words):
            return
        row, word = (int(axis[0]) for axis in np.nonzero(found != words))
        raise DeviceError(
            f"memory must read back as written, but {region.name} bank {bank} row {first + row} word {word} "
            f"reads {found[row, word]:#010x} instead of {words[row, word]:#010x}; load the "
            "weights again, and check connection, clock and power if it stays"
        )

    @guarded
    def write_rows(self, region: Region, bank: int, row: int, words: IntArray) -> None:
        """Write words, beginning at the start of a row."""
        if len(words):
            self._point(region, bank, row)
            self.transport.write(Register.DATA, words)

    @guarded
    def read_rows(self, region: Region, bank: int, row: int, count: int) -> IntArray:
        """Read ``count`` words, beginning at the start of a row."""
        if not count:
            return np.zeros(0, dtype=np.int64)
        self._point(region, bank, row)
        return self.transport.read(Register.DATA, count)

    def _point(self, region: Region, bank: int, row: int) -> None:
        self.transport.write(Register.SELECT, [_REGION.at(region) | _BANK.at(bank)])
        self.transport.write(Register.ROW, [row])

    def _await_idle(self) -> None:
        polls = _POLLS + 4 * self.manifest.cycles.step_interval_cycles
        for _ in range(polls):
            if not _BUSY.of(self.register(Register.STATUS)):
                return
        raise DeviceError(
            f"the device must finish its steps, but STATUS still says busy after {polls} reads; "
            "reset it and open it again"
        )

    def _command(self, stream: int, command: Command) -> None:
        self.transport.write(Register.STREAM, [self._number(stream)])
        self.transport.write(Register.COMMAND, [command])

    @guarded
    def reset(self, streams: Iterable[int]) -> None:
        """Set the state of streams to that in which the model begins, zeros for most."""
        for stream in streams:
            self._command(stream, Command.RESET)
            if self.initial_state is not None:
                self.write_state(stream, *self.initial_state)

    @guarded
    def write_state(self, stream: int, h: Sequence[IntArray], c: Sequence[IntArray]) -> None:
        """Set a stream's state, arrays ``(H_l,)`` per layer: h, and cell states."""
        vectors, cells = self.layout.encode(h, c)
        self.write_rows(Region.VECTORS, 0, self._vector_row(stream), vectors)
        for bank, words in enumerate(cells):
            self.write_rows(Region.CELLS, bank, self._cell_row(stream), words)
        self._command(stream, Command.STATE_WRITTEN)

    @guarded
    def take_over(self, stream: int, other: "Device") -> None:
        """Let a stream of another network on this device go on with this network, in the state that it has.

        Nothing is moved where both networks have their states in the same rows.

        Raises InputError if sizes or formats of their states differ.
        """
        mine, theirs = self.layout, other.layout
        if mine.kinds != theirs.kinds:
            raise InputError(
                f"the stream before must have the state of network {self.network}, {mine.described}, but "
                f"network {other.network} has {theirs.described}; where only formats differ, give its "
                "state to a new stream, which rounds it: `stream.state = other.state`"
            )
        if mine.rows == theirs.rows and self.residents.count > 1:
            self._command(stream, Command.HAND_OVER)
        else:
            self.write_state(stream, *other.read_state(stream))

    @guarded
    def read_state(self, stream: int) -> tuple[LayerArrays, LayerArrays]:
        """Return a stream's h and cell states, arrays ``(H_l,)`` per layer."""
        self.transport.write(Register.STREAM, [self._number(stream)])
        flags = self.register(Register.FLAGS)
        if _STATE_IS_ZERO.of(flags):
            # The memories still hold what was there before the reset.
            h, c = self.layout.zeros(1)
            return tuple(array[0] for array in h), tuple(array[0] for array in c)
        layout, first = self.layout, self._vector_row(stream)
        # The first layer's h has two addresses. Only the one in use is read: the other may never be written.
        copy_words, words = self.manifest.program.copy_words, self.manifest.regions[Region.VECTORS].words
        current = copy_words if _IS_COPIED.of(flags) else 0
        vectors = np.zeros(layout.vector_span[1] * words, dtype=np.int64)
        vectors[: copy_words * words] = self.read_rows(Region.VECTORS, 0, first + current, copy_words * words)
        rest = 2 * copy_words * words
        if len(vectors) > rest:
            vectors[rest:] = self.read_rows(Region.VECTORS, 0, first + 2 * copy_words, len(vectors) - rest)
        count, row = layout.cell_span[1], self._cell_row(stream)
        cells = [self.read_rows(Region.CELLS, bank, row, count) for bank in range(layout.banks)]
        return layout.decode(vectors, np.stack(cells))

    def _vector_row(self, stream: int) -> int:
        return stream * self.manifest.program.vector_context + self.layout.vector_span[0]

    def _cell_row(self, stream: int) -> int:
        return stream * self.manifest.program.cell_context + self.layout.cell_span[0]

    @guarded
    def exchange(
        self,
        streams: IntArray,
        x: IntArray,
        suppress: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> IntArray:
        """Run steps in order: streams ``(K,)``, x ``(K, inputs)``, result ``(K, outputs)``.

        ``suppress`` ``(K,)`` says which outputs are not wanted; they are 0. ``ends`` ``(K,)`` says which
        steps are the last of a sequence, for builds that take whole ones.
        """
        self._check_whole()
        self._choose()
        y = self.transport.exchange(self._number(0) | streams, x, suppress, ends)
        if suppress is not None and len(suppress) and suppress[-1]:
            self._await_idle()
        return self._answers(y, len(streams))

    def begin(self, streams: IntArray, x: IntArray) -> Callable[[], IntArray]:
        """Begin an exchange and return the function that ends it and gives the outputs."""
        self._check_whole()
        self._choose()
        finish = self.transport.begin(self._number(0) | streams, x)
        return lambda: self._answers(finish(), len(streams))

    def _check_whole(self) -> None:
        if not self.whole:
            raise DeviceError(
                "the device takes no steps, because loading it has failed and its memories hold parts of "
                "several images; load weights or a build again"
            )

    def _answers(self, y: IntArray, steps: int) -> IntArray:
        y = np.asarray(y, dtype=np.int64)
        expected = (steps, self.manifest.program.outputs)
        if y.shape != expected:
            raise DeviceError(
                f"the device must answer {steps} steps with an array {expected}, not "
                f"{y.shape}; reset it and open it again"
            )
        return y[:, self.manifest.schedule.output_index]


def _parts(image: WeightImage) -> list[Part]:
    """Return everything that is written before a program's last row.

    The program comes first: its first word makes a loadable core stop taking steps.
    """
    order = sorted(image.regions, key=lambda region: region != Region.PROGRAM)
    return [
        (region, bank, 0, words[:-1] if region == Region.PROGRAM else words)
        for region in order
        for bank, words in enumerate(image.regions[region].astype(np.int64))
    ]
