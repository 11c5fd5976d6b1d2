"""The driver: open a build on a device, run batches of sequences, hold streams."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, get_args
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.device import Device, Residents, check_loadable, refuse_spatial
from rtlstm.host.embeddings import Tables, decode, load_tables
from rtlstm.host.raw_values import (
    CodesWarning,
    SaturationWarning,
    as_array,
    as_codes,
    as_numbers,
    check_values,
    is_raw,
    to_caller,
    warn_saturated,
)
from rtlstm.host.state import LayerArrays, State, StateLayout, load_initial_state
from rtlstm.host.stream import Stream
from rtlstm.host.transport import Closing, Factory, Transport, open_transport
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ConfigurationError, DeviceError, ImageError, InputError, warn_caller
from rtlstm.spec.files import as_path
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.image import WeightImage
from rtlstm.spec.layout import (
    Pad,
    as_steps,
    is_front,
    padded_behind,
    padded_in_front,
    part_slices,
    sequences_first,
    valid_steps,
)
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.packing import check_image
from rtlstm.spec.progress import Progress, shown, tell
from rtlstm.spec.record import as_flag
from rtlstm.spec.registers import Register

Outputs = Literal["all", "last", "none"]
"""Which steps' outputs a run computes."""


@dataclass(frozen=True)
class _Batch:
    """The checked arguments of a run."""

    x: IntArray
    """``(T, N, inputs)``; zero past a sequence's length."""
    lengths: IntArray
    h: LayerArrays | None
    c: LayerArrays | None


class Accelerator(Closing):
    """A core that holds one build, on any backend.

    One thread at a time may use it, in the process that opened it; any other use raises DeviceError. A
    :class:`SharedAccelerator` is for several threads.

    Parameters
    ----------
    transport
        Connection to the device; most callers use :meth:`open` instead.
    manifest
        The build that the device must hold.
    progress
        Called as ``progress(what, done, total)`` during long work.
    beside
        What is known of the networks of a device that holds several, and the number of this one's; most
        callers use :meth:`load` instead.

    Raises
    ------
    DeviceError
        If the device is not an rtlstm core of this build.
    """

    def __init__(
        self,
        transport: Transport,
        manifest: Manifest,
        progress: Progress | None = None,
        beside: "tuple[Residents[Accelerator], int] | None" = None,
    ) -> None:
        if not isinstance(transport, Transport) or not isinstance(manifest, Manifest):
            raise InputError(
                f"an Accelerator needs a transport and a manifest, not {transport!r} and {manifest!r}; "
                "Accelerator.open makes both from a build folder"
            )
        self.manifest = manifest
        residents, network = (None, 0) if beside is None else beside
        self.device = Device(transport, manifest, network, residents)
        """The register-level view; for tools."""
        self.saturated_inputs = 0
        """Number of input values that saturated since the accelerator was opened."""
        self.saturated_outputs = 0
        """Number of outputs at a limit of their format since then, if the last layer is unbounded."""
        self.tables = Tables()
        """The tables in which tokens are looked up, if the model begins with one."""
        last = manifest.layers[-1]
        self._bounded = (
            manifest.gives_number
            or manifest.parameters.decide == "softmax"
            or not last.dense
            or ActivationFunction.of(last.activation).within_one
        )
        ends = {at + layer.feedback for at, layer in enumerate(manifest.layers) if layer.has_h}
        self._gives_states = len(manifest.layers) - 1 in ends
        self._progress = progress
        self._unloaded = False
        """Whether its network was taken off a device that holds several."""
        self._image: WeightImage | None = None
        """The image that was loaded last."""
        self._lengths: list[int] = []
        self._streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        """Open streams by number. A stream that nothing refers to is removed."""
        self._codes_noted = False
        self._told: set[str] = set()
        """The data whose order of axes was told."""
        if residents is None:
            self.device.identify()
            self.device.residents.accelerators[network] = self

    @classmethod
    def open(
        cls,
        folder: str | Path,
        backend: str | Factory = "golden",
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Self:
        """Open a build folder on a backend and load its weights.

        Parameters
        ----------
        folder
            What ``rtlstm generate`` wrote.
        backend
            ``golden``, ``verilator``, ``icarus``, ``amaranth``, ``serial:PORT``, ``tcp:HOST:PORT``,
            ``mmio:PATH``, ``pynq``, or another installed one; or a function that makes a transport, as
            :data:`~rtlstm.host.transport.BACKENDS` has them.
        verify
            Read the weights back and compare every word.
        progress
            Called as ``progress(what, done, total)`` during long work.

        Raises
        ------
        BuildError, ImageError
            If the folder's manifest or weights cannot be used.
        InputError
            If ``folder`` is no path, ``verify`` no flag or ``progress`` no function.
        ConfigurationError
            If there is no such backend.
        DeviceError
            If the device holds another build, or its memories do not read back.
        """
        folder, verify = as_path("the build folder", folder), as_flag("verify", verify)
        if progress is not None and not callable(progress):
            raise InputError(f"progress must be a function of what, done and total, not {progress!r}")
        manifest = Manifest.load(folder)
        image = WeightImage.load(folder / "weights.bin", manifest)
        with shown(progress) as seen:
            transport = open_transport(backend, folder, manifest, seen)
        try:
            accelerator = cls(transport, manifest, progress)
            accelerator._begin_as(folder, manifest)
            accelerator.load_weights(image, verify)
        except BaseException:
            transport.close()
            raise
        return accelerator

    def begin_as(self, folder: str | Path) -> None:
        """From now on, sequences and streams begin in the state of a build's model, zeros for most.

        Tokens are looked up in its tables. :meth:`open` and :meth:`load` do this; do it yourself beside
        :meth:`load_weights` of a retrained model. Open streams keep their states until they are reset.

        Raises
        ------
        BuildError
            If the folder is no build, or its ``state.npz`` or ``embeddings.npz`` is missing, was changed or
            has other layers or tables.
        """
        folder = as_path("the build folder", folder)
        self._begin_as(folder, Manifest.load(folder))

    def _begin_as(self, folder: Path, manifest: Manifest) -> None:
        tables = load_tables(folder, manifest)
        self.device.initial_state = load_initial_state(folder, manifest, self.device.layout)
        self.tables = tables

    def load_weights(
        self, weights: str | Path | WeightImage, verify: bool = True, keep_states: bool = False
    ) -> None:
        """Load an image or an image file. Every stream, open or not, is reset or keeps its state.

        The weights change between two steps: steps requested before are computed with the old weights,
        later ones with the new weights. If ``verify`` finds a word that differs, the previous weights are
        loaded again. If that fails as well, or the link is dead, every step is refused until a complete
        image is loaded.

        Tokens are then looked up in the table beside ``weights.bin``, if it is in its build's folder. Other
        weights, without their table, are a :class:`~rtlstm.NoteWarning` if the driver looks up.

        Parameters
        ----------
        verify
            Read the weights back and compare every word.
        keep_states
            Streams continue from their present h and c.

        Raises
        ------
        ImageError
            If the image is damaged, is another build's or lies in another build's folder, or sums of its
            weights need more bits than the build has. The device is unchanged.
        BuildError
            If the folder's table is damaged. The device is unchanged.
        ConfigurationError
            If the build is spatial and the image is not its own, which holds nothing: its weights are
            constants of the hardware.
        DeviceError
            If ``verify`` is set and a word does not read back, or the link is dead.
        """
        self._check_open()
        verify, keep_states = as_flag("verify", verify), as_flag("keep_states", keep_states)
        try:
            image = weights if isinstance(weights, WeightImage) else WeightImage.load(weights, self.manifest)
            check_image(image, self.manifest)
        except ImageError:
            refuse_spatial(self.manifest)
            raise
        tables = None if isinstance(weights, WeightImage) else self._tables_beside(Path(weights))
        others = self._image is not None and image != self._image
        with self.device.owner, shown(self._progress) as progress:
            try:
                self.device.load(image, verify, progress, keep_states)
            except DeviceError as error:
                if self._image is None:
                    raise
                self._restore(self._image, error)
            self._image = image
            # All streams begin anew, but where there are several networks those of this one.
            if not keep_states and (self.device.initial_state is not None or self.device.residents.count > 1):
                self.device.reset(list(self._streams))
        if tables is not None:
            self.tables = tables
        elif others and self.tables.tables and not self.tables.in_core:
            warn_caller(
                "these weights come without a table: tokens are still looked up in the one before; if it was "
                "trained, too, load weights.bin in its build's folder, or call begin_as(folder)"
            )

    def _tables_beside(self, image: Path) -> Tables | None:
        """The tables of the build whose ``weights.bin`` is given, if it stands in its folder."""
        folder = image.parent
        alone = image.name != "weights.bin" or not (folder / "manifest.json").exists()
        if alone or not self.manifest.embeddings:
            return None
        manifest = Manifest.load(folder)
        if manifest.build_hash != self.manifest.build_hash:
            raise ImageError(
                f"{image} must stand alone or in its build's folder, which has its table, but the manifest "
                f"beside it is of {manifest.name}, another build; copy weights.bin to another folder"
            )
        tables = load_tables(folder, manifest)
        return tables if tables.tables else None

    def _restore(self, image: WeightImage, error: DeviceError) -> NoReturn:
        """Load the previous image again with the streams' states kept, then raise a DeviceError."""
        try:
            self.device.load(image, True, self._progress, keep_states=True)
        except DeviceError as again:
            raise DeviceError(
                f"{error}; the previous weights could not be loaded again either ({again}): every step is "
                "refused until weights are loaded completely"
            ) from None
        raise DeviceError(
            f"{error}; the previous weights have been loaded again and checked, and streams keep their states"
        ) from None

    def load(self, folder: str | Path, verify: bool = True, network: int | None = None) -> "Accelerator":
        """Load the network of another build into a loadable device: program, weights, tables, sizes.

        The other build must be generated for the device (``rtlstm generate MODEL --for DIR``), or be the
        build that the device was made from. If the program is fixed, only the weights may differ. The device
        takes no step of the network until everything is written and checked.

        A device may hold several networks (``--capacity networks=2``): with another number than this
        accelerator's, the build is loaded beside its network, whose streams go on.

        Parameters
        ----------
        folder
            The other build.
        verify
            Read everything back and compare every word.
        network
            Which of the device's networks it becomes: this accelerator's, if None.

        Returns
        -------
        The accelerator of the network: this one, or another one on the same device.

        Raises
        ------
        BuildError, ImageError
            If the folder's manifest or weights cannot be used.
        ConfigurationError
            If the device's program is fixed, the build is not for this device, or the device has no such
            network or no room for it. The device is unchanged then.
        DeviceError
            If a stream of the network is open, or the device fails: then its steps are refused until a build
            is loaded completely.
        """
        self._check_open(loaded=False)
        residents = self.device.residents
        number = self.device.network if network is None else residents.number(network, self.manifest)
        if number != self.device.network:
            other = residents.accelerators.get(number)
            if other is None:
                other = type(self)(self.device.transport, self.manifest, self._progress, (residents, number))
            return other.load(folder, verify)
        folder, verify = as_path("the build folder", folder), as_flag("verify", verify)
        manifest = Manifest.load(folder)
        check_loadable(manifest, self.manifest)
        image = WeightImage.load(folder / "weights.bin", manifest)
        check_image(image, manifest)
        initial_state = load_initial_state(folder, manifest, StateLayout(manifest))
        tables = load_tables(folder, manifest)
        self._require_no_streams("a build is loaded, whose state may have another layout")
        if residents.count > 1:
            residents.find_rows(number, manifest)
        with self.device.owner, shown(self._progress) as progress:
            self.device.adopt(manifest)
            self.manifest, self._image, self._lengths = manifest, None, []
            self.tables = tables
            self.device.initial_state = initial_state
            residents.accelerators[number] = self
            self._unloaded = False
            self.device.load(image, verify, progress)
            self._image = image
        return self

    def unload(self, network: int) -> None:
        """Take a network off a device that holds several, so that others have room.

        Raises
        ------
        ConfigurationError
            If the device has no such network.
        DeviceError
            If it is not loaded, one of its streams is open, or the device fails.
        """
        self._check_open(loaded=False)
        residents = self.device.residents
        other = residents.accelerator(residents.number(network, self.manifest))
        other._require_no_streams("its network is unloaded")
        other.device.clear()
        del residents.accelerators[other.device.network]
        other._unloaded = True

    @property
    def open_streams(self) -> list[int]:
        """Numbers of the streams that are open on this network."""
        return list(self._streams)

    def _require_no_streams(self, what: str) -> None:
        held = len(self._streams)
        if held:
            raise DeviceError(
                f"no stream may be open while {what}, "
                f"but {held} are open; close them first, for example with close_streams"
            )

    def run(
        self,
        x: ArrayLike,
        lengths: ArrayLike | None = None,
        state: Any = None,
        batch_first: bool | None = None,
        outputs: Outputs = "all",
        pad: Pad = "back",
    ) -> tuple[NDArray[Any], State]:
        """Run whole sequences, with PyTorch's shapes.

        Sequences share the free streams, in several passes if there are more sequences than streams. Steps
        past a sequence's length are not sent to the device.

        Parameters
        ----------
        x
            Of a model with several inputs a dictionary of arrays, or a tuple in their order: each
            ``(T, N, width)``, or ``(N, width)`` if it is the same in every step. Else one array,
            ``(T, N, I)``, ``(N, T, I)`` if ``batch_first``, or ``(T, I)`` for one sequence. A build of a
            model with strides takes several of its frames in a step: give the frames, ``T`` a multiple of
            ``manifest.frames``, or steps with these side by side. Outputs are one for each step.
            Floats are quantised and saturate (with a :class:`SaturationWarning`); integers are
            taken as codes of the input format (with a :class:`CodesWarning`, once). If the model begins with
            an embedding, integers ``(T,)``, ``(T, N)`` or ``(N, T)`` are tokens, which are looked up in its
            table and count as floats.
        lengths
            Valid steps of each sequence, ``(N,)`` integers 1 to T in any order; all T if None. In frames if
            ``x`` is. They are the first of T, or the last ones if padding stands in ``front``.
        state
            ``(h_0, c_0)`` in the structure returned, floats if ``x`` is, else integers; if None, the state
            in which the model begins, zeros for most.
        batch_first
            Whether ``x`` and ``y`` have the batch first; by default as the model has it,
            ``manifest.batch_first``. The state never has.
        outputs
            Which steps' outputs to compute: ``all``; ``last``, only each sequence's last valid step; or
            ``none``, if only the states are needed. Other outputs are not computed and take no time.
        pad
            Where the padding of sequences stands that are shorter than T, in ``x`` and in ``y``: ``back``,
            behind their steps, or ``front``, before them, as Keras' ``pad_sequences`` does by default.

        Returns
        -------
        y
            ``(T, N, O)`` as ``x`` is laid out, float32 if ``x`` is; zero in a sequence's padding. With
            ``last`` ``(N, O)``, with ``none`` ``(0, N, O)``; each without N if ``x`` was unbatched. If
            the device decides, the number of each step's largest output, integers without the axis O; if it
            gives the K largest ones, a structured array with the axis K: ``y["number"]``, and ``y["score"]``
            of the type said.
        (h_n, c_n)
            State after each sequence's last valid step: ``(num_layers, N, H)`` each, without N
            if ``x`` was unbatched; tuples of ``(N, H_l)``, one per recurrent layer, if the layers
            differ in size. float64, which holds every cell state exactly, or integers if ``x`` holds
            integers.

        Raises
        ------
        InputError
            If shapes, types or values are wrong, or a sequence is longer than the build allows.
        DeviceError
            If no stream is free, the accelerator is closed or the device fails.

        Warns
        -----
        LayoutWarning
            Once, if neither the model nor ``batch_first`` tells the order of the axes: it is ``(T, N, I)``.
        """
        self._check_open()
        given = as_numbers("x", self.tables.look_up(x, lengths, batch_first, pad))
        known, counts = self.manifest.batch_first, state if lengths is None else lengths
        batch_first = sequences_first("x", given, batch_first, known, counts, self._told)
        axis = int(batch_first and given.ndim == 3)
        given, lengths = as_steps(
            "x", given, lengths, axis, self.inputs, self.manifest.frames, self.manifest.window, pad
        )
        array, batched = self._check_batch(given, batch_first)
        swapped = batched and batch_first
        if swapped:
            array = array.swapaxes(0, 1)
        raw = is_raw(array)
        if not isinstance(outputs, str) or outputs not in get_args(Outputs):
            raise InputError(f"outputs must be one of {', '.join(get_args(Outputs))}, not {outputs!r}")
        steps = array if batched else array[:, np.newaxis]
        front = is_front(pad, lengths)
        batch = self._check_run(steps, lengths, state, batched, swapped, front)
        with self.device.owner, shown(self._progress) as progress:
            y, h, c = self._run_waves(batch, outputs, progress)
        self._count_saturated(y, raw)
        if not raw:
            self._warn_states("c_n", c)
        self._lengths = batch.lengths.tolist()
        if outputs == "last":
            y = y[batch.lengths - 1, np.arange(len(batch.lengths))]
        elif outputs == "none":
            y = y[:0]
        elif front:
            y = padded_in_front(y, batch.lengths)
        values = self._present(y, array)
        if not batched:
            values = values[0] if outputs == "last" else values[:, 0]
        elif swapped and outputs != "last":
            values = values.swapaxes(0, 1)
        return values, self.device.layout.present(h, c, raw, batched)

    def _check_batch(self, x: ArrayLike, batch_first: bool) -> tuple[NDArray[Any], bool]:
        """Return a run's inputs as an array with a valid shape, and whether they are a batch."""
        array, axes = as_numbers("x", x), ("T", "N")
        if array.ndim == 2:
            return check_values(array, ("T",), self.manifest), False
        others = f"; (N, T, {self.inputs}) with batch_first, (T, {self.inputs}) for one sequence"
        return check_values(array, axes[::-1] if batch_first else axes, self.manifest, others), True

    def _check_run(
        self,
        array: NDArray[Any],
        lengths: ArrayLike | None,
        state: Any,
        batched: bool,
        swapped: bool,
        front: bool,
    ) -> _Batch:
        """Check a run's arguments, ``array`` as ``(T, N, I)``, and quantise them.

        The caller's array is ``(N, T, I)`` if ``swapped``, and ``(T, I)`` if not ``batched``; it has its
        padding in ``front``, or behind.
        """
        inputs, limit = self.inputs, self.manifest.parameters.max_steps
        steps, count, _ = array.shape
        if not steps:
            raise InputError("x must have at least one step, but T is 0; leave empty sequences out")
        if limit is not None and steps > limit:
            frames = self.manifest.frames
            each = f", of {frames} frames each," if frames > 1 else ","
            # What a reverse direction gives for a part depends on what follows.
            split = "split them and pass the state on, or " if self.manifest.sequence is None else ""
            raise InputError(
                f"this build takes sequences of at most {limit} steps{each} not {steps}; {split}generate "
                "with a larger `max_steps`"
            )
        other = f"; x was read as {steps} steps of {count} sequences, say otherwise with "
        other += f"`batch_first={not swapped}`"
        valid = self._check_lengths(lengths, steps, count, other if batched else "")
        if lengths is not None:
            # Padding may hold anything, even NaN: it is never sent.
            array = np.where(valid_steps(steps, valid, front)[..., None], array, array.dtype.type(0))
        raw = is_raw(array)
        h = c = None
        if state is not None:
            h, c, saturations = self.device.layout.parse(state, count if batched else None, raw)
            self.device.layout.warn_saturations(("h_0", "c_0"), saturations, count)
        # In the caller's shape, so that a message gives an index into the caller's array.
        given = array.swapaxes(0, 1) if swapped else array if batched else array[:, 0]
        x = self._quantise_input(given, int(valid.sum()) * inputs)
        x = x.swapaxes(0, 1) if swapped else x.reshape(array.shape)
        return _Batch(padded_behind(x, valid) if front else x, valid, h, c)

    @staticmethod
    def _check_lengths(lengths: ArrayLike | None, steps: int, count: int, other: str) -> IntArray:
        if lengths is None:
            return np.full(count, steps, dtype=np.int64)
        array = np.atleast_1d(as_array("lengths", lengths))
        if not is_raw(array) or array.shape != (count,):
            raise InputError(
                f"lengths must be {count} integers, one per sequence, not an array of shape {array.shape} "
                f"and type {array.dtype}{other}"
            )
        if count and (array.min() < 1 or array.max() > steps):
            raise InputError(
                f"lengths must be within 1 to T = {steps}, but they range from {array.min()} to "
                f"{array.max()}{'; leave empty sequences out of the batch' if array.min() < 1 else ''}"
            )
        return array.astype(np.int64)

    def _quantise_input(self, array: NDArray[Any], total: int) -> IntArray:
        numerics = self.manifest.numerics
        x, saturated = as_codes(array, self.manifest)
        self.saturated_inputs += saturated
        self._note_codes(array)
        if saturated:
            warn_saturated("x", saturated, total, numerics.input, numerics.input_limits)
        return x

    def _note_codes(self, array: NDArray[Any]) -> None:
        """Warn, once, that integers are taken as codes: counts and class numbers are integers, too."""
        if self._codes_noted or not is_raw(array):
            return
        self._codes_noted = True
        numerics = self.manifest.numerics
        suffix = ", of features with an input factor divided by it" if numerics.input_factors else ""
        suffix += ", and features have codes of zero of their own" if numerics.input_zeros else ""
        warn_caller(
            f"x holds {array.dtype}: integers are taken as codes of the input format {numerics.input} (1 is "
            f"{numerics.input.step:g}{suffix}), and outputs are codes, too; give floats for real values",
            CodesWarning,
        )

    def _count_saturated(self, y: IntArray, raw: bool) -> None:
        """Count outputs that may have saturated, and warn about them unless they are integers."""
        if self._bounded:
            return
        form, y = self.manifest.output, y[..., self.manifest.parameters.best :]
        saturations = int(np.count_nonzero(np.abs(y) == form.maximum))
        self.saturated_outputs += saturations
        if saturations and not raw:
            warn_caller(
                f"{saturations:,} of {y.size:,} values of y are at the limits of their format, "
                f"+-{form.to_floats(form.maximum):.6g}, and may have saturated; generate with "
                "calibration data that covers them",
                SaturationWarning,
            )

    def _warn_states(self, name: str, c: Sequence[IntArray]) -> None:
        """Warn about final states that may have saturated, if the network's states are results like y.

        If the last layer is dense, c may saturate on purpose, where that makes y more accurate.
        """
        if self._gives_states:
            self.device.layout.warn_at_limit(name, c)

    def _run_waves(
        self, batch: _Batch, outputs: Outputs, progress: Progress | None
    ) -> tuple[IntArray, LayerArrays, LayerArrays]:
        streams = np.array(self._free(), dtype=np.int64)
        if not len(streams):
            raise DeviceError(self._busy("a run needs at least one free stream"))
        steps, count, _ = batch.x.shape
        y = np.zeros((steps, count, self.manifest.outputs), dtype=np.int64)
        h, c = self.device.layout.zeros(count)
        # Sequences of similar length run in the same pass, so that streams end together.
        order = np.argsort(-batch.lengths, kind="stable")
        if progress and not self._progress:
            progress("run", 0, count)
        for begin in range(0, count, len(streams)):
            members = order[begin : begin + len(streams)]
            self._run_wave(batch, members, streams[: len(members)], outputs, y, h, c)
            tell(progress, "run", begin + len(members), count)
        return y, h, c

    def _run_wave(
        self,
        batch: _Batch,
        members: IntArray,
        streams: IntArray,
        outputs: Outputs,
        y: IntArray,
        h: LayerArrays,
        c: LayerArrays,
    ) -> None:
        """Run sequences ``members`` on ``streams``; fill their columns of y, rows of h and c."""
        device = self.device
        for member, stream in zip(members.tolist(), streams.tolist(), strict=True):
            if batch.h is None or batch.c is None:
                device.reset([stream])
            else:
                device.write_state(
                    stream, [part[member] for part in batch.h], [part[member] for part in batch.c]
                )
        lengths = batch.lengths[members]
        step, column, ends = self.manifest.schedule.order(lengths)
        chosen = (step, members[column])
        suppress = None
        if outputs != "all":
            suppress = (outputs == "none") | (step < lengths[column] - 1)
        y[chosen] = device.exchange(streams[column], batch.x[chosen], suppress, ends)
        for member, stream in zip(members.tolist(), streams.tolist(), strict=True):
            found_h, found_c = device.read_state(stream)
            for part, found in zip((*h, *c), (*found_h, *found_c), strict=True):
                part[member] = found

    def decode(
        self,
        first: ArrayLike,
        steps: int,
        *,
        stop: int | None = None,
        state: Any = None,
        after: Stream | Sequence[Stream] | None = None,
    ) -> tuple[IntArray, State]:
        """Run a decoder greedily: the number of a step's largest output is the token of the next step.

        The device decides, or where it gives outputs, this method. Sequences share the free streams.

        Parameters
        ----------
        first
            The first token, an integer, or one of each sequence, ``(N,)``.
        steps
            The most steps of a sequence.
        stop
            The token after which a sequence takes no further step.
        state
            The state in which sequences begin, as for :meth:`run`, such as an encoder's final one.
        after
            In place of that the stream of an encoder on the same device, or one for each sequence, as for
            :meth:`stream`: they are closed.

        Returns
        -------
        tokens
            ``(T, N)`` in the model's order of axes, or ``(T,)``: those that were decided, up to and with
            ``stop``, which also fills the steps after it. T is that of the longest sequence.
        (h_n, c_n)
            The states after each sequence's last step, as :meth:`run` returns them.

        Raises
        ------
        ConfigurationError
            If the build's outputs are not numbered as the rows of its model's only table are.
        InputError
            If tokens, ``steps``, ``stop``, ``state`` or ``after`` are wrong.
        DeviceError
            If no stream is free, the accelerator is closed or the device fails.
        """
        self._check_open()
        return decode(self, first, steps, stop, state, after)

    def parts(self, y: ArrayLike) -> dict[str, NDArray[Any]]:
        """Return the model's outputs by name, of outputs ``(..., O)`` of :meth:`run` or of a stream.

        A model with one output has it as ``output``.

        Raises
        ------
        InputError
            If the last axis has not the build's outputs.
        """
        if self.manifest.gives_number or self.manifest.parameters.best:
            raise InputError("y holds numbers of outputs, which have no parts; take y itself")
        array = as_numbers("y", y)
        if array.shape[-1:] != (self.outputs,):
            raise InputError(f"y must be (..., {self.outputs}), the build's outputs, not {array.shape}")
        slices = part_slices(self.manifest.parts) or {"output": slice(None)}
        return {name: array[..., where] for name, where in slices.items()}

    def stream(self, network: int | None = None, after: Stream | None = None) -> Stream:
        """Reserve a stream; close it, or use it in a ``with`` statement.

        It begins in the state in which the model begins, zeros for most, or goes on ``after`` another one.

        A stream is closed automatically when nothing refers to it any more.

        Parameters
        ----------
        network
            Which of the device's networks it runs: this accelerator's, if None.
        after
            A stream of this device, of any network, such as an encoder's: it is closed, and its state is that
            in which the new one begins. It stays on the device.

        Raises
        ------
        ConfigurationError
            If the network has a reverse direction, or the device has no such network.
        InputError
            If ``after`` is no stream of this device, or its state has other sizes or formats.
        DeviceError
            If every stream is open, the network is not loaded, or the accelerator is closed.
        """
        self._check_open(loaded=False)
        residents = self.device.residents
        if network is not None and residents.number(network, self.manifest) != self.device.network:
            other: Accelerator = residents.accelerator(network)
            return other.stream(after=after)
        self._check_open()
        if self.manifest.sequence is not None:
            raise ConfigurationError(
                f"{self.device.label} cannot be streamed: a reverse direction needs a sequence's "
                "last step before the first output; use run"
            )
        with self.device.owner:
            if after is not None:
                number = self._take_over(after)
            else:
                if not (free := self._free()):
                    raise DeviceError(self._busy("no stream is free"))
                number = free[0]
                self.device.reset([number])
            stream = self._streams[number] = Stream(self, number)
        return stream

    def _take_over(self, stream: Stream) -> int:
        """Close a stream of this device whose state a new one begins with; return its number."""
        if not isinstance(stream, Stream):
            raise InputError(f"after must be a stream of this device, not {stream!r}")
        other = stream.accelerator.device
        if other.residents is not self.device.residents:
            raise InputError(
                "after must be a stream of this device, but is another's; give its state to a new stream, "
                "`stream.state = other.state`"
            )
        self.device.take_over(stream.number, other)
        stream.close()
        return stream.number

    def close_streams(self) -> None:
        """Close every open stream, for example those of a notebook's cell that was run before."""
        for stream in list(self._streams.values()):
            stream.close()

    def _free(self) -> list[int]:
        """Numbers of the free streams, in order."""
        residents, streams = self.device.residents, self.manifest.parameters.streams
        if len(residents.taken()) == streams:
            # Streams in a reference cycle are freed only by Python's garbage collector.
            gc.collect()
        return sorted(set(range(streams)) - residents.taken())

    def step_many(self, streams: Sequence[Stream], x: ArrayLike) -> NDArray[Any]:
        """Compute one step of each of several streams, in one exchange.

        Parameters
        ----------
        streams
            ``K`` open streams of this accelerator; one that is named twice takes two steps.
        x
            ``(K, inputs)``, or tokens ``(K,)``, as for :meth:`Stream.step`.

        Returns
        -------
        ``(K, outputs)``; floats, or integers if ``x`` holds integers. What the device decides as :meth:`run`
        returns it.

        Raises
        ------
        InputError
            If ``x`` is wrong or a stream belongs to another accelerator.
        DeviceError
            If a stream or the accelerator is closed, or the device fails.
        """
        self._check_open()
        if not isinstance(streams, Sequence) or not all(isinstance(stream, Stream) for stream in streams):
            raise InputError(f"streams must be a list of streams of this accelerator, not {streams!r}")
        for index, stream in enumerate(streams):
            if stream.accelerator is not self:
                raise InputError(
                    f"streams must all be of this accelerator, but number {index} is of another; "
                    "call that accelerator's step_many for it"
                )
        return self._stream_steps(streams, x, (len(streams),))

    def _stream_steps(
        self, streams: Sequence[Stream], x: ArrayLike, leading: tuple[int | str, ...], advice: str = ""
    ) -> NDArray[Any]:
        """Run x ``(*leading, I)``, a step per stream or all on a single one; returns ``(K, O)``."""
        array = check_values(self.tables.look_up(x, axes=(len(leading),)), leading, self.manifest, advice)
        integers = self._quantise_input(array, array.size)
        integers = integers.reshape(-1, integers.shape[-1])
        numbers = np.array([stream.number for stream in streams], dtype=np.int64)
        numbers = np.broadcast_to(numbers, len(integers))
        y = self.device.exchange(numbers, integers)
        self._count_saturated(y, is_raw(array))
        return self._present(y, array)

    def _present(self, y: IntArray, x: NDArray[Any]) -> NDArray[Any]:
        """Convert outputs ``(..., O)`` to the type of the caller's ``x``; decisions as :meth:`run` does."""
        return y[..., 0] if self.manifest.gives_number else to_caller(y, self.manifest, x)

    def _release(self, number: int) -> None:
        self._streams.pop(number, None)

    def _busy(self, what: str) -> str:
        total = self.manifest.parameters.streams
        return (
            f"{what}, but {f'all {total}' if total > 1 else 'the one'} of this build "
            f"{'are' if total > 1 else 'is'} open; close one, or all with "
            f"close_streams, or generate with `streams={total + 1}`"
        )

    def _check_open(self, loaded: bool = True) -> None:
        """Raise DeviceError if the accelerator is closed; if ``loaded``, too if its network was unloaded."""
        _ = self.device.transport
        if loaded and self._unloaded:
            number = self.device.network
            raise DeviceError(
                f"network {number} was unloaded; use the accelerator that load(folder, network={number}) "
                "returns"
            )

    @property
    def inputs(self) -> int:
        """Number of input values of a time step; 1 if the core looks up tokens."""
        return self.manifest.input_port.values

    @property
    def outputs(self) -> int:
        """Number of output values of a time step."""
        return self.manifest.outputs

    @property
    def _facts(self) -> dict[str, str]:
        total, open_ = self.manifest.parameters.streams, len(self._streams)
        return {
            "build": self.device.label.replace("'", ""),
            "inputs": str(self.inputs),
            "outputs": str(self.outputs),
            "streams": f"{open_} of {total} open",
            "device": "closed" if self.device.closed else type(self.device.transport).__name__,
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts.items())
        return f"<Accelerator {facts}>"

    def _repr_html_(self) -> str:
        return html_table("Accelerator", self._facts)

    @property
    def measured_latency_cycles(self) -> int:
        """Cycles of the last step, from taking its last input beat to giving its last output beat.

        If other steps are in progress, as in a run, a step waits in the device's input buffer, which holds
        two steps; the wait is included. A step sent alone takes ``manifest.cycles.step_latency_cycles``, or
        ``first_step_latency_cycles`` if it is a stream's first.
        """
        return self.device.register(Register.LATENCY)

    @property
    def cycles_saved(self) -> int:
        """Cycles that the last run saved because some sequences were shorter than the longest."""
        cycles = {length: self.manifest.schedule.duration(length) for length in set(self._lengths)}
        longest = max(cycles.values(), default=0)
        return sum(longest - cycles[length] for length in self._lengths)

    @property
    def cell_saturations(self) -> int:
        """Number of cell states that saturated since the device was reset, modulo 2**32."""
        return self.device.register(Register.CELL_SATURATIONS)

    def close(self) -> None:
        """Release the device; further use raises DeviceError. Harmless if closed already."""
        self.device.close()


def html_table(caption: str, facts: Mapping[str, str]) -> str:
    """Return names and values as a table in HTML."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(caption)}</caption>{rows}</table>"
