"""The module that :func:`rtlstm.train.prepare` returns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch.nn.utils import rnn

from rtlstm.gen.builds.hardware import ArrayRequest, device_hardware
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.gen.quantise.calibration import Calibration, check_lengths
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import ArrayLayer
from rtlstm.gen.quantise.plan import (
    FormatChoices,
    Plan,
    QuantizationSettings,
    RowChoices,
    RowPlan,
)
from rtlstm.gen.quantise.quantiser import TrainedNetwork, quantise_with
from rtlstm.gen.quantise.ranges import Candidate, Ranges
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.host.embeddings import Embedding
from rtlstm.sim.reference import FloatState
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.layout import Pad, is_front, padded_behind, padded_in_front
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Dense, Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import map_words
from rtlstm.train.layers import LayerStates, Squares, States, TorchLayers
from rtlstm.train.parameters import LayerArrays, NetworkParameters, TrainedRanges
from rtlstm.train.pruning import (
    Among,
    Masks,
    Pruned,
    choose_words,
    contributions,
    effects,
    manifest_of,
    pruned_report,
)
from rtlstm.train.rows import LayerRows

Steps = Literal["all", "first", "last"]


@dataclass(frozen=True)
class ExistingDevice:
    """A build folder, whose hardware takes the trained weights."""

    folder: Path
    manifest: Manifest

    @property
    def hardware(self) -> TargetHardware:
        """Formats and, if its program is fixed, layers."""
        return device_hardware(self.manifest)

    @property
    def skips(self) -> bool:
        """Whether it skips words, so that the weights in them must be zero."""
        return bool(self.manifest.program.kept)

    def kept_weights(self) -> Masks:
        """Return which weights of each layer a device with a fixed program has words for, where it skips
        some: of the product with h (True) and of that with the layer's input."""
        mine = self.manifest
        whole = Manifest.create(mine.name, mine.layers, mine.parameters, mine.numerics, mine.passes)
        found: Masks = [{} for _ in mine.layers]
        for (layer, recurrent), groups in mine.program.kept.items():
            words = next(each for each in map_words(whole, layer) if each.recurrent == recurrent)
            there = np.zeros((words.groups, words.columns), dtype=bool)
            for group, columns in enumerate(groups):
                there[group, list(columns)] = True
            found[layer][recurrent] = there.ravel()[words.numbers]
        return found


@dataclass(frozen=True)
class CallForm:
    """How a model is called, and what it returns."""

    batch_first: bool = False
    steps: Steps = "all"
    """Which steps' outputs it returns."""
    state: bool = True
    """Whether it returns its final state, too."""
    squeezed: bool = False
    """Whether its outputs, one of each step, have no axis of their own."""


class Prepared(torch.nn.Module):
    """A network in the hardware's arithmetic, called like the model that it was made from.

    ``q(x)`` gives the hardware's bits: those of the golden model for the network that :meth:`trained_network`
    returns. Gradients go straight through what is rounded, and are 0 where something has saturated. Make one
    with :func:`rtlstm.train.prepare`.

    Attributes
    ----------
    rounding
        Set it to False, and the module computes the float network of its parameters.
    """

    def __init__(
        self,
        read: ReadResult,
        settings: QuantizationSettings,
        choices: FormatChoices,
        form: CallForm,
        weight_bits: dict[str, int],
        calibration: Calibration | None,
        looks_up: bool = False,
        device: ExistingDevice | None = None,
        weight_normalisation: bool = False,
        train_ranges: bool = False,
    ) -> None:
        super().__init__()
        self._read, network, self.embedding = read, read.network, None
        if looks_up:
            table = torch.tensor(read.embeddings[0].table, dtype=torch.get_default_dtype())
            self.embedding = torch.nn.Embedding.from_pretrained(table, freeze=False)
        self._first_choices = choices
        # Training rounds each weight to the nearest.
        choices = replace(choices, moments=())
        self.form, self.settings, self._choices, self.rounding = form, settings, choices, True
        self._weight_bits, self._calibration = weight_bits, calibration
        self._device, self._hardware = device, None if device is None else device.hardware
        self._squares: Squares = {}
        self.ranges = TrainedRanges(network, settings, choices) if train_ranges else None
        self._exponents = [] if self.ranges is None else self.ranges.of(choices)
        self._normalised = weight_normalisation
        self.weights = NetworkParameters(network, choices.input_factors, weight_normalisation)
        plans = self._plans()
        self.rows = torch.nn.ModuleList(
            LayerRows(plan, self.weights.trains(index)) for index, plan in enumerate(plans)
        )
        self.layers = TorchLayers(self._formats(plans), plans)
        if device is not None and device.skips:
            for rows, kept in zip(self.rows, device.kept_weights(), strict=True):
                rows.keep(kept)
        if device is not None:
            self.quantised()  # It refuses what does not fit.

    @property
    def network(self) -> Network:
        """The network that was prepared, with its first numbers."""
        return self._read.network

    @property
    def calibration(self) -> Calibration | None:
        """The data that the formats were chosen with."""
        return self._calibration

    # Formats

    @property
    def choices(self) -> FormatChoices:
        """What the formats follow from, as it is now."""
        self._follow_ranges()
        return self._choices

    def _plans(self) -> list[RowPlan]:
        unfolded = unfold(self.network)

        def bits(layer: ArrayLayer) -> int:
            """Those of the network's layer that it is made from; structure alone has the settings' bits."""
            if layer.origin < 0:
                return self.settings.weight_bits
            origin = self.network.layers[unfolded.origins[layer.origin][0]]
            return self._weight_bits.get(origin.name, self.settings.bits_of(isinstance(origin, Dense)))

        return Plan(self.network, self.settings, self._choices, self._hardware, weight_bits=bits).rows()

    def _formats(self, plans: list[RowPlan]) -> QuantizedNetwork:
        """Return the network's formats, for which its numbers do not matter."""
        rows = self._row_choices(plans)
        return quantise_with(self.weights.blank(), self.settings, self._choices, self._hardware, rows)

    def _row_choices(self, plans: list[RowPlan]) -> RowChoices:
        return RowChoices(
            weight_bits=tuple(plan.form.bits for plan in plans),
            fractions=tuple(
                tuple(fractions.cpu().numpy() for fractions in rows.fractions(mine))
                for rows, mine in self._lowered()
            ),
            constants=tuple(plan.constants for plan in plans),
        )

    def get_extra_state(self) -> dict[str, Any]:
        """Return the ranges that the formats follow from, for a checkpoint."""
        choices = self.choices
        return {
            "input_range": choices.input_range,
            "input_factors": list(choices.input_factors),
            "input_offsets": list(choices.input_offsets),
            "preactivation": choices.ranges.preactivation,
            "layers": list(choices.ranges.layers),
            "begins": list(choices.ranges.begins),
            "cell_ranges": list(choices.cell_ranges),
            "choice_limits": list(choices.choice_limits),
            "candidate": choices.candidate.model_dump(mode="json"),
            "settings": self.settings.model_dump(mode="json"),
            "weight_bits": [rows.plan.form.bits for rows in self.rows],
            "device": None if self._device is None else self._device.manifest.build_hash,
            "weight_normalisation": self._normalised,
            "train_ranges": self.ranges is not None,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over the ranges of a checkpoint."""
        here = self.get_extra_state()
        # A checkpoint may be from before there were some of these options.
        given: dict[str, Any] = {"device": None, "weight_normalisation": False, "train_ranges": False}
        given |= {"begins": (), "input_offsets": [], "choice_limits": ()} | state
        given["settings"] = QuantizationSettings(**given["settings"]).model_dump(mode="json")
        options = ("settings", "weight_bits", "device", "weight_normalisation", "train_ranges")
        for name in (*options, "input_factors", "input_offsets"):
            if (saved := given[name]) != here[name]:
                alike, those = ("options", "those") if name in options else ("calibration data", "the data")
                raise ConfigurationError(
                    f"a checkpoint must be of a model that was prepared with the same {alike}, but its "
                    f"{name} are {saved} and here {here[name]}; prepare the model with {those} of the "
                    "first run"
                )
        self._adopt(
            FormatChoices(
                input_range=state["input_range"],
                input_factors=tuple(state["input_factors"]),
                ranges=Ranges(state["preactivation"], tuple(state["layers"]), tuple(given["begins"])),
                cell_ranges=tuple(state["cell_ranges"]),
                candidate=Candidate(**state["candidate"]),
                input_offsets=tuple(given["input_offsets"]),
                choice_limits=tuple(given["choice_limits"]),
            )
        )

    def _adopt(self, choices: FormatChoices) -> None:
        """Take other ranges, and the formats that follow from them."""
        self._choices = choices
        plans = self._plans()
        for rows, plan in zip(self.rows, plans, strict=True):
            rows.plan = plan
        self.layers = TorchLayers(self._formats(plans), plans).to(self._like())
        if self.ranges is not None:
            self._exponents = self.ranges.of(choices)

    def _follow_ranges(self) -> None:
        """Take the formats of the trained ranges, if a range has reached another power of two.

        Where the hardware does not take all that have, it takes one after the other, and those stay that it
        refuses.
        """
        if self.ranges is None or (wanted := self.ranges.wanted()) == self._exponents:
            return
        if not all(bool(torch.isfinite(each.detach()).all()) for each in self.parameters()):
            return  # What has diverged is refused elsewhere, and a checkpoint can be loaded over it.
        if self._takes(wanted):
            return
        for number, power in enumerate(wanted):
            now = self._exponents
            if power != now[number] and not self._takes([*now[:number], power, *now[number + 1 :]]):
                self.ranges.keep(number, now[number], power)

    def _takes(self, wanted: list[int]) -> bool:
        """Take the formats of these ranges if they can be built; return whether they can."""
        assert self.ranges is not None
        before = self._choices
        try:
            self._adopt(self.ranges.moved(before, self._exponents, wanted))
            self._trained().quantised()
        except ConfigurationError:
            self._adopt(before)
            return False
        return True

    # What it is now

    def trained_network(self) -> TrainedNetwork:
        """Return the network as it is now, in its integers, for :func:`rtlstm.compile`."""
        self.check_finite()
        self._follow_ranges()
        return self._trained()

    def _trained(self) -> TrainedNetwork:
        with torch.no_grad():
            arrays = [dict(rows.exported(mine)) for rows, mine in self._lowered()]
        return TrainedNetwork(
            read=self._read.replace(network=self.weights.raised(arrays), embeddings=self._tables()),
            settings=self.settings,
            choices=self._choices,
            rows=self._row_choices([rows.plan for rows in self.rows]),
            calibration=self._calibration,
            hardware=self._hardware,
            device=None if self._device is None else self._device.folder,
        )

    def _tables(self) -> tuple[Embedding, ...]:
        """The model's tables as they are now: a module trains its own."""
        if self.embedding is None:
            return self._read.embeddings
        table = self.embedding.weight.detach().cpu().double().numpy()
        return (Embedding(name=self._read.embeddings[0].name, table=table),)

    def quantised(self) -> QuantizedNetwork:
        """Return the integers of the network as it is now."""
        return self.trained_network().quantised()

    def rounded_only(self) -> QuantizedNetwork:
        """Return the network with its first numbers, rounded as ``rtlstm generate`` does it."""
        return quantise_with(self.network, self.settings, self._first_choices, self._hardware)

    @property
    def for_device(self) -> bool:
        """Whether it was prepared for an existing device."""
        return self._device is not None

    @property
    def pruned(self) -> bool:
        """Whether some weights are zero for good."""
        return not all(bool(kept.all()) for rows in self.rows for kept in rows.buffers())

    def prune(self, share: float, *, among: Among = "group", **array: Any) -> Pruned:
        """Set whole words of weights to zero, and keep them there from now on.

        Call it several times in training, with a growing share: what has gone does not come back. A build
        skips these words with ``skip_zeros=True`` on the same array.

        Parameters
        ----------
        share
            Share of the words that goes, 0 to 1.
        among
            ``"group"``: of each group of rows goes this share, what contributes least to the calibration
            data's sums: by the squares of the weights, each times the mean square of what it multiplies,
            measured when words first go. ``"network"``: of all words goes this share, what changes the loss
            least: by the squares of the weights, each times the mean square of its gradient in the last
            hundred or so backward passes. Then groups, products and layers lose different
            shares.
        array
            The array, as :func:`rtlstm.compile` takes it: ``lanes``, ``macs``, ``family`` and so on.

        Raises
        ------
        ConfigurationError
            If the share or the array is none, or no gradients have been seen for ``"network"``.
        """
        _, manifest = self._on_array(array)
        if among == "network":
            weights = effects(self._lowered())
        else:
            if self._calibration is not None and not self._squares:
                self._squares = self._measure_squares(self._calibration)
            weights = contributions(self._lowered(), self._squares)
        counted = [mine if rows.trained else {} for rows, mine in zip(self.rows, weights, strict=True)]
        for rows, kept in zip(self.rows, choose_words(manifest, counted, share, among), strict=True):
            rows.keep(kept)
        return self.cycles(**array)

    def _measure_squares(self, data: Calibration) -> Squares:
        """Run the float network of the parameters on the calibration data."""
        found: Squares = {}
        x = torch.from_numpy(data.x).to(self._like())
        state, alive = self.first_state(data.state, x.shape[1]), self._alive(x, data.lengths)
        arrays = [rows.fold_zeros(rows.prune(mine)) for rows, mine in self._lowered()]
        self.layers.run(arrays, self.layers.scale(x), state, alive, rounding=False, squares=found)
        return found

    def cycles(self, **array: Any) -> Pruned:
        """Return the words that are not zero, and the cycles of a step that skips the others."""
        return pruned_report(*self._on_array(array))

    def _on_array(self, array: dict[str, Any]) -> tuple[QuantizedNetwork, Manifest]:
        network = self.quantised()
        request = ArrayRequest(**{"tables": self.settings.tables} | array)
        request.check()
        return network, manifest_of(network, request)

    def arrays(self) -> list[LayerArrays]:
        """Return the arrays of each layer: rounded to the hardware's integers, or floats without rounding."""
        if self.rounding:
            self._follow_ranges()
            return [rows(mine) for rows, mine in self._lowered()]
        return [rows.fold_zeros(rows.floats(mine)) for rows, mine in self._lowered()]

    def _lowered(self) -> list[tuple[LayerRows, LayerArrays]]:
        """Return the rows of each layer with its arrays, as they follow from the parameters."""
        return [*zip(cast(Iterable[LayerRows], self.rows), self.weights(), strict=True)]

    def fit_limits(self) -> None:
        """Choose the rows' limits anew, with the smallest square error of the weights as they are now.

        For weights that were trained with ``rounding`` off, which leaves the limits as they were.
        """
        for rows, mine in self._lowered():
            if rows.trained:
                rows.fit_limits(mine)

    def begin_cancelling(self) -> None:
        """Take the weights and scales that ``rtlstm generate`` gives with the calibration data.

        That is so that what rounding changes in a row's sums cancels. Where it rounds to the nearest, nothing
        changes. Without rounding, the module is not the model's network any more.
        """
        if moments := self._first_choices.moments:
            for rows, mine in zip(self.rows, moments, strict=True):
                if rows.trained:
                    rows.take_scales(mine)
            self.fix(1.0)
            self.settle()

    def fix(self, share: float, digit_price: float = 0.0) -> None:
        """Fix columns of weights to their integers, so that this ``share`` of them is fixed.

        The others are not rounded from then on, and training lets them make up for what is fixed. If nothing
        is trained, the integers are those of ``rtlstm generate``; with a price of their signed digits, in
        squares of a step, they have fewer digits.
        """
        moments = self._first_choices.moments
        arrays: list[LayerArrays] = []
        for index, (rows, mine) in enumerate(self._lowered()):
            if rows.trained:
                mine = rows.fix(mine, share, moments[index] if moments else None, digit_price)
            arrays.append(mine)
        self._take(arrays)

    @property
    def fixed(self) -> list[Any]:
        """Which weights of each array layer are fixed, and to what."""
        return [rows.fixed for rows in self.rows]

    @fixed.setter
    def fixed(self, fixed: list[Any]) -> None:
        for rows, mine in zip(self.rows, fixed, strict=True):
            rows.fixed = mine

    def mean_step(self) -> float:
        """Return the geometric mean of the steps of the rows' weights."""
        trained = [(rows, mine) for rows, mine in self._lowered() if rows.trained]
        found = [fractions for rows, mine in trained for fractions in rows.fractions(mine)]
        return float(torch.exp2(-torch.cat(found).double().mean()))

    def settle(self) -> None:
        """Let the parameters have what is fixed, and round all weights again."""
        if any(rows.fixed is not None for rows in self.rows):
            self._take([rows.settled(mine) for rows, mine in self._lowered()])

    def _take(self, arrays: Sequence[LayerArrays]) -> None:
        """Take the parameters that are lowered to these arrays of the array's layers."""

        def floats(values: Any) -> np.ndarray[Any, Any]:
            found: np.ndarray[Any, Any] = torch.as_tensor(values).detach().cpu().double().numpy()
            return found

        raised = self.weights.raised([{name: floats(mine[name]) for name in mine} for mine in arrays])
        taken = NetworkParameters(raised, self._choices.input_factors, self._normalised)
        with torch.no_grad():
            for mine, other in zip(self.weights.parameters(), taken.parameters(), strict=True):
                mine.copy_(other)

    # Runs

    def forward(self, input: Any, hx: Any = None, lengths: Any = None, pad: Pad = "back") -> Any:
        """Run sequences, as the model does that was prepared.

        Parameters
        ----------
        input
            Floats, ``(T, N, I)``, or ``(N, T, I)`` if the model has the batch first, or ``(T, I)`` for one
            sequence; or a PackedSequence. If the model has an embedding, numbers to look up, without the last
            axis; the table is trained like the weights, and stays with the host.
        hx
            The state before the first step, ``(h_0, c_0)`` of an LSTM, ``h_0`` of others; zeros if None.
        lengths
            Valid steps of each sequence, ``(N,)``; all if None.
        pad
            Where the padding of shorter sequences stands, in inputs and outputs: ``back``, behind their
            steps, or ``front``.

        Returns
        -------
        Outputs of all steps or of one, as the model returns them, with the final state if the model has it.

        Raises
        ------
        InputError
            If shapes or values do not fit the network.
        ConfigurationError
            If training has diverged: a parameter is not finite; or if torch may round the factors of float32
            products, as TF32 does on a GPU.
        """
        self.check_finite()
        packed = isinstance(input, rnn.PackedSequence)
        if packed:
            given = input
            input, lengths = rnn.pad_packed_sequence(input)
        if self.embedding is not None:
            input = self.embedding(self._checked_numbers(input))
        if not isinstance(input, torch.Tensor) or not input.is_floating_point():
            kind = input.dtype if isinstance(input, torch.Tensor) else type(input).__name__
            raise InputError(f"input must be a tensor of floats, not {kind}")
        single = input.ndim == 2
        x = input[:, None] if single else input
        swapped = self.form.batch_first and not packed and not single
        x = x.transpose(0, 1) if swapped else x
        if x.ndim != 3 or x.shape[2] != self.network.inputs or 0 in x.shape:
            order = "N, T" if self.form.batch_first else "T, N"
            raise InputError(
                f"input must be ({order}, {self.network.inputs}), or (T, {self.network.inputs}) for one "
                f"sequence, and not empty, not {tuple(input.shape)}"
            )
        if not bool(torch.isfinite(x.detach()).all()):
            raise InputError("input must be finite numbers, but some are NaN or infinite")
        alive = self._alive(x, lengths)
        valid = None
        if packed and pad == "front":
            raise InputError("a PackedSequence has no padding, so it takes no pad; leave it out")
        if is_front(pad, lengths):
            valid = alive[:, :, 0].sum(dim=0).cpu().numpy()
            x = padded_behind(x, valid)
        (y, *_), state = self.run(x, self._states.begin(hx, x.shape[1], single), alive)
        y = self._chosen(y, alive)
        if valid is not None and self.form.steps == "all":
            y = padded_in_front(y, valid)
        if packed:
            result = self._packed(y, lengths, given) if self.form.steps == "all" else y
        elif self.form.steps == "all":
            result = y[:, 0] if single else y.transpose(0, 1) if swapped else y
        else:
            result = y[0] if single else y
        if self.form.squeezed:
            result = result.squeeze(-1)
        return (result, self._states.end(state, single)) if self.form.state else result

    def run(self, x: Any, state: LayerStates, alive: Any = None) -> tuple[list[Any], LayerStates]:
        """Run ``(T, N, inputs)`` from the layers' states; see :meth:`rtlstm.train.layers.TorchLayers.run`."""
        if self.rounding:
            _check_exact_products()
            self._follow_ranges()
        ranges = None if self.ranges is None or not self.rounding else self.ranges()
        read = self.layers.read(x, ranges) if self.rounding else self.layers.scale(x)
        like = self._like()
        if self.rounding:
            begin = self._states.rounded(state)
        else:
            begin = [part.to(like) for part in state[0]], [part.to(like) for part in state[1]]
        arrays = self.arrays()
        (y, *others), found = self.layers.run(
            arrays, read.to(like), begin, alive, self.rounding, ranges=ranges
        )
        return [y.to(x.dtype), *others], found

    def _checked_numbers(self, numbers: Any) -> Any:
        assert self.embedding is not None
        rows = self.embedding.num_embeddings
        whole = isinstance(numbers, torch.Tensor) and numbers.dtype in (torch.int32, torch.int64)
        if not whole or numbers.numel() == 0 or int(numbers.min()) < 0 or int(numbers.max()) >= rows:
            raise InputError(f"input must be whole numbers from 0 to {rows - 1}, which the model looks up")
        return numbers

    @staticmethod
    def _alive(x: Any, lengths: Any) -> Any:
        if lengths is None:
            return None
        given = lengths.detach().cpu().numpy() if isinstance(lengths, torch.Tensor) else lengths
        steps, batch = x.shape[:2]
        valid = torch.from_numpy(check_lengths("lengths", given, steps, batch)).to(x.device)
        return (torch.arange(steps, device=x.device)[:, None] < valid)[:, :, None]

    def _chosen(self, y: Any, alive: Any) -> Any:
        """Return the steps of the outputs that the model returns."""
        if self.form.steps == "all":
            return y
        if self.form.steps == "first":
            return y[0]
        if alive is None:
            return y[-1]
        last = alive[:, :, 0].sum(dim=0) - 1
        return y[last, torch.arange(y.shape[1], device=y.device)]

    @staticmethod
    def _packed(y: Any, lengths: Any, given: Any) -> Any:
        """Pack outputs as the inputs were."""
        if given.sorted_indices is not None:
            order = given.sorted_indices
            y, lengths = y.index_select(1, order), lengths[order.cpu()]
        data = rnn.pack_padded_sequence(y, lengths).data
        return rnn.PackedSequence(data, given.batch_sizes, given.sorted_indices, given.unsorted_indices)

    # States

    @property
    def _states(self) -> States:
        return States(self.layers, self._like())

    def first_state(self, given: FloatState | None, batch: int) -> LayerStates:
        """Return the layers' states for those of calibration data; zeros if None."""
        return self._states.first(given, batch)

    # Checks

    def _like(self) -> Any:
        return next(self.weights.parameters())

    def check_finite(self) -> None:
        """Check all parameters.

        Raises
        ------
        ConfigurationError
            If one is not finite, or is of a type that does not hold the hardware's integers.
        """
        for name, parameter in self.named_parameters():
            if parameter.dtype not in (torch.float32, torch.float64):
                raise ConfigurationError(
                    "parameters must be float32 or float64, which hold the hardware's integers exactly, but "
                    f"{name} is {parameter.dtype}; convert the module with float(), and use torch.autocast "
                    "for the parts around it"
                )
            if not bool(torch.isfinite(parameter.detach()).all()):
                raise ConfigurationError(
                    f"all parameters must be finite, but {name} has NaN or infinite values: training "
                    "diverged; go back to a checkpoint, and train with a smaller learning rate or clipped "
                    "gradients"
                )


def _check_exact_products() -> None:
    """Refuse to round: with factors that torch has rounded, integers are not the hardware's."""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:
        # Torch's newer settings may say what the older one has no word for.
        precision = "set for each backend"
    if precision != "highest":
        raise ConfigurationError(
            "products of float32 must be exact, as the hardware's are, but torch may round their factors "
            f"(torch.get_float32_matmul_precision() is {precision!r}); call "
            "torch.set_float32_matmul_precision('highest')"
        )
