"""Trains a rounded network to give what the float network gives: from inputs alone, without labels."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import Field

from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.padding import Pad
from rtlstm.spec.progress import Progress, shown
from rtlstm.spec.record import Record
from rtlstm.train.layers import LayerStates
from rtlstm.train.module import Prepared
from rtlstm.train.prepare import prepare
from rtlstm.train.pruning import Among, Pruned

_MEASURED = 24
"""Batches that show what the words change."""
_STAGES = 8
"""The most stages in which words of weights go."""


class FinetuneRequest(Record):
    """How long and how a network is trained on its own float outputs."""

    updates: int = Field(default=1500, ge=1)
    """The most updates of the weights."""
    rate: float = Field(default=5e-4, gt=0, allow_inf_nan=False)
    """Learning rate of the first update; it falls to a hundredth, as a cosine does."""
    range_rate: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    """That of trained ranges, ``train_ranges=True``: logarithms, which have a longer way to go."""
    sequences: int = Field(default=32, ge=1)
    """Pieces of sequences in an update."""
    steps: int = Field(default=64, ge=2)
    """Steps of such a piece."""
    hidden: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """Weight of the recurrent layers' outputs beside the network's."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Share of the data that is not trained on, and judges."""
    checks: int = Field(default=20, ge=1)
    """How often the held-out data are run."""
    stop_after: int = Field(default=6, ge=1)
    """Checks without a better one after which training ends."""
    prune: float = Field(default=0.0, ge=0, lt=1)
    """Share of the words of weights that goes, in stages in the first half of the updates."""
    prune_among: Among = "group"
    """Which words are compared, as :meth:`Prepared.prune` has it."""
    in_float: float = Field(default=0.0, ge=0, lt=1)
    """Share of the updates, the first ones, that do not round: they are several times as fast for LSTMs."""
    mixed: float = Field(default=0.0, ge=0, le=1)
    """Share of pieces whose inputs are mixed with those of another one, in a drawn proportion; the float
    network gives what it makes of them (Zhang et al., arXiv 1710.09412; Beyer et al., arXiv 2106.05237)."""
    seed: int = 0

    @property
    def float_updates(self) -> int:
        """How many updates do not round."""
        return int(self.in_float * self.updates)

    def pruning_schedule(self) -> dict[int, float]:
        """Return after which updates words go, and the share that has gone then.

        Most goes early, while most is left, as Zhu and Gupta have it (arXiv 1710.01878).
        """
        if not self.prune:
            return {}
        half = max(1, self.updates // 2)
        stages = min(_STAGES, half)
        return {
            half * stage // stages: self.prune * (1.0 - (1.0 - stage / stages) ** 3)
            for stage in range(1, stages + 1)
        }


class Errors(Record):
    """Differences from the float network's outputs on held-out data."""

    rms: float
    largest: float


class PruningStage(Record):
    """What was left of the words of weights after a stage of pruning."""

    update: int
    """The update before which words went."""
    share: float
    """Share of the words that has gone."""
    kept: int
    """Words of weights that are left."""
    array_cycles: int
    """Cycles from a step's input to its output in which the array multiplies."""
    interval_cycles: int
    """Cycles of a step, back to back with others."""


class FinetuneReport(Record):
    """What training did."""

    rounded: Errors
    """Errors of the network that is rounded only, as ``rtlstm generate`` does it."""
    first: Errors
    """Before training, with rows' limits that have the smallest square error."""
    trained: Errors
    """Errors of the best network that was checked."""
    updates: int
    """Updates that were made."""
    steps: int
    """Held-out steps."""
    prune: float
    """Share of the words of weights that went."""
    pruned: bool
    """Whether weights are zero for good: in words that went, or in those that an existing device skips."""
    stages: tuple[PruningStage, ...]
    """How they went; the first is before pruning. Empty if none did."""
    diverged: bool
    """Whether training ended because numbers grew beyond all formats; the best before are kept."""
    helped: bool
    """Whether that network is better than the one that is rounded only."""


@dataclass(frozen=True)
class Finetuned:
    """The trained module, and what training did."""

    module: Prepared
    report: FinetuneReport


def finetune(
    model: Any,
    data: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    state: Any = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
    request: FinetuneRequest | None = None,
    array: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Finetuned:
    """Prepare a model, and train it on what its float network gives for typical inputs.

    The loss is the square error of the outputs, and of each recurrent layer's outputs, relative to their
    variance. Sequences are cut in pieces, which begin with the float network's state there.

    Parameters
    ----------
    model
        What :func:`rtlstm.train.prepare` takes.
    data
        Typical inputs, floats, ``(T, I)`` or ``(T, N, I)``; ``(N, T, I)`` if ``batch_first``, by default as
        the model has it. The last
        sequences, or the last steps if there are few sequences, are held out. All calibrate the formats.
    lengths
        Valid steps of each sequence, ``(N,)``.
    pad
        Where the padding of sequences shorter than T stands in ``data``, as for :meth:`rtlstm.Build.run`.
    state
        Initial state of each sequence, ``(h_0, c_0)`` as for :meth:`rtlstm.Build.run`; if None, the one in
        which the model begins, zeros for most. Steps that are held out of a sequence begin with it, too.
    request
        How to train.
    array
        The array that pruned words are those of, as :meth:`Prepared.prune` takes it.
    progress
        Called as ``progress(what, done, total)``.
    options
        Those of :func:`rtlstm.train.prepare`.

    Raises
    ------
    InputError
        If the data do not fit the model, or are too short to hold some out.
    ConfigurationError
        If training diverges before all words to prune have gone, or formats cannot be built. If it diverges
        later, the best weights so far are kept, and the report says so.
    """
    asked = request or FinetuneRequest()
    module = prepare(
        model,
        calibration=data,
        calibration_lengths=lengths,
        calibration_state=state,
        batch_first=batch_first,
        pad=pad,
        **options,
    )
    assert module.calibration is not None
    trained_on, held_out = _split(module.calibration, asked.held_out, module.network.whole_sequences)
    judge = _Judge(module, held_out)
    plain = judge.of(module.rounded_only())
    trainer = _Trainer(module, asked, trained_on)
    pruner = _Pruner(module, asked, array or {}, trainer)
    first = best = judge.of_module(module)
    chosen = copy.deepcopy(module.state_dict())
    every, waited, done, diverged = max(1, asked.updates // asked.checks), 0, 0, False
    # What is better before cannot be kept: it has weights that will go, or is not rounded yet.
    begin = max(pruner.last, asked.float_updates + 1 if asked.float_updates else 0)
    try:
        with shown(progress) as seen:
            for done in range(1, asked.updates + 1):
                pruner.before(done)
                trainer.update(done - 1)
                if seen:
                    seen(f"train{pruner.left}", done, asked.updates)
                if done < begin or (done != begin and done % every and done < asked.updates):
                    continue
                found = judge.of_module(module)
                if found.rms < best.rms or done == begin:
                    best, chosen, waited = found, copy.deepcopy(module.state_dict()), 0
                    continue
                waited += 1
                if waited == asked.stop_after:
                    break
    except ConfigurationError:
        if done <= begin:
            raise
        diverged = True
    module.load_state_dict(chosen)
    report = FinetuneReport(
        rounded=plain,
        first=first,
        trained=best,
        updates=done,
        steps=int(held_out.lengths.sum()),
        prune=asked.prune,
        pruned=module.pruned,
        stages=tuple(pruner.stages),
        diverged=diverged,
        helped=best.rms < plain.rms,
    )
    return Finetuned(module, report)


class _Pruner:
    """Takes words of weights away as the schedule has it, and counts what is left."""

    def __init__(
        self, module: Prepared, asked: FinetuneRequest, array: Mapping[str, Any], trainer: "_Trainer"
    ) -> None:
        self._module, self._array, self._trainer = module, array, trainer
        self._schedule, self._among = asked.pruning_schedule(), asked.prune_among
        self.last = max(self._schedule, default=0)
        """The update before which the last words go; 0 if none do."""
        self.stages: list[PruningStage] = []
        self.left = ""
        """What is left, for the progress."""
        if self._schedule:
            self._note(0, 0.0, module.cycles(**array))

    def before(self, update: int) -> None:
        """Prune if the schedule has a stage before this update."""
        if update in self._schedule:
            share = self._schedule[update]
            if self._among == "network":
                self._trainer.measure_slopes(update - 1)
            self._note(update, share, self._module.prune(share, among=self._among, **self._array))

    def _note(self, update: int, share: float, found: Pruned) -> None:
        cycles = found.cycles
        stage = PruningStage(
            update=update,
            share=share,
            kept=found.kept,
            array_cycles=cycles.array_cycles,
            interval_cycles=cycles.step_interval_cycles,
        )
        self.stages.append(stage)
        self.left = f", {share:.0%} pruned, {cycles.array_cycles:,} array cycles"


def _split(data: Calibration, share: float, whole: bool) -> tuple[Calibration, Calibration]:
    """Hold out the last sequences; if there are fewer than five, the last steps of each."""
    count = data.sequences
    if count >= 5:
        last = min(max(1, round(share * count)), count - 1)
        order, steps = np.arange(count), data.steps
        return data.take(order[:-last], steps), data.take(order[-last:], steps)
    if whole or data.lengths.min() < 10:
        raise InputError(
            "data to train on must be 5 sequences or more, or long ones of a network that goes forward, so "
            f"that some can be held out, but there are {count} of {data.lengths.tolist()} steps; give more"
        )
    cut = max(2, int(data.lengths.min() * (1.0 - share)))
    head = Calibration(data.x[:cut], np.full(count, cut), data.state)
    return head, Calibration(data.x[cut:], data.lengths - cut, data.state)


class _Judge:
    """The golden model on held-out data, against the float network."""

    def __init__(self, module: Prepared, data: Calibration) -> None:
        self._data = data
        self._wanted = run_float(module.network, data.x, data.state, data.lengths).y

    def of_module(self, module: Prepared) -> Errors:
        """Return the errors of what was trained; infinite ones if its sums do not fit the device any more."""
        try:
            return self.of(module.quantised())
        except ConfigurationError:
            if module.for_device:
                return Errors(rms=math.inf, largest=math.inf)
            raise

    def of(self, network: QuantizedNetwork) -> Errors:
        """Return the errors of a network."""
        data = self._data
        codes = network.numerics.quantise_input(data.x)
        found = Golden(network).run(codes, data.integer_state(network), data.lengths)
        error = network.shapes[-1].output.to_floats(found.y) - self._wanted
        mine = error[data.alive]
        return Errors(rms=float(np.sqrt(np.mean(mine**2))), largest=float(np.abs(mine).max()))


@dataclass(frozen=True)
class _Pieces:
    """Pieces of sequences, all of ``S`` steps, side by side; with the float network's states and outputs."""

    x: Any
    """``(S, P, inputs)``."""
    alive: Any
    """``(S, P, 1)``."""
    state: LayerStates
    """Before the first step, ``(P, values)`` each."""
    outputs: list[Any]
    """y, then the outputs of each recurrent layer, ``(S, P, values)``."""

    def take(self, chosen: Any) -> "_Pieces":
        """Return some of the pieces."""
        h, c = ([values[chosen] for values in part] for part in self.state)
        outputs = [values[:, chosen] for values in self.outputs]
        return _Pieces(self.x[:, chosen], self.alive[:, chosen], (h, c), outputs)


class _Trainer:
    """The optimizer with its data, and an update."""

    def __init__(self, module: Prepared, asked: FinetuneRequest, data: Calibration) -> None:
        self._module, self._asked = module, asked
        self._teacher = _float_network(module)
        with torch.no_grad():
            self._pieces = self._cut(data)
        self._scales = [1.0 / (float(values.var()) + 1e-12) for values in self._pieces.outputs]
        ranges = [] if module.ranges is None else [*module.ranges.parameters()]
        apart = {id(each) for each in ranges}
        others = [each for each in module.parameters() if id(each) not in apart]
        self._optimizer = torch.optim.Adam([{"params": others}, {"params": ranges}])
        self._rates = asked.rate, asked.range_rate
        self._draw = np.random.default_rng(asked.seed)

    def _cut(self, data: Calibration) -> _Pieces:
        """Run the float network piece by piece, all sequences side by side."""
        module = self._teacher
        x = torch.from_numpy(data.x).to(torch.get_default_dtype())
        length = len(x) if module.network.whole_sequences else min(self._asked.steps, len(x))
        x = torch.cat([x, x.new_zeros((-len(x) % length, *x.shape[1:]))])
        alive = torch.arange(len(x))[:, None, None] < torch.from_numpy(data.lengths)[:, None]
        state, parts = module.first_state(data.state, x.shape[1]), []
        for begin in range(0, len(x), length):
            mine, valid = x[begin : begin + length], alive[begin : begin + length]
            seen: dict[int, Any] = {}
            y, after = module.run(mine, state, valid, seen)
            part = _Pieces(mine, valid, state, [y, *(seen[at] for at in sorted(seen))])
            parts.append(part.take(valid[:, :, 0].any(dim=0).nonzero()[:, 0]))
            state = after
        h, c = (
            [torch.cat(values) for values in zip(*(part.state[at] for part in parts), strict=True)]
            for at in range(2)
        )
        return _Pieces(
            torch.cat([part.x for part in parts], dim=1),
            torch.cat([part.alive for part in parts], dim=1),
            (h, c),
            [torch.cat(values, dim=1) for values in zip(*(part.outputs for part in parts), strict=True)],
        )

    def update(self, number: int) -> None:
        """Change the weights once.

        Raises
        ------
        ConfigurationError
            If a parameter is not finite any more.
        """
        asked = self._asked
        share = 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * number / asked.updates))
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * share
        batch, found = self._run(number)
        loss = found[0].new_zeros(())
        for mine, wanted, weight in zip(found, batch.outputs, self._weights(batch), strict=True):
            loss = loss + weight * ((mine - wanted) * batch.alive).square().sum()
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._module.parameters(), 1.0)
        self._optimizer.step()
        self._module.check_finite()

    def measure_slopes(self, number: int) -> None:
        """Let the rows note how much each weight changes the outputs, as the loss weighs these.

        The gradients of the outputs' sums with drawn signs have squares whose mean is the diagonal of the
        Gauss-Newton matrix. Those of the loss itself vanish as long as the outputs are the float network's.
        """
        for rows in self._module.rows:
            rows.forget_slopes()
        for _ in range(_MEASURED):
            batch, found = self._run(number)
            total = found[0].new_zeros(())
            for mine, weight in zip(found, self._weights(batch), strict=True):
                signs = torch.from_numpy(self._draw.choice((-1.0, 1.0), tuple(mine.shape))).to(mine)
                total = total + weight**0.5 * (mine * signs * batch.alive).sum()
            total.backward()
        self._optimizer.zero_grad()

    def _run(self, number: int) -> tuple[_Pieces, list[Any]]:
        """Draw pieces and run them; return them with the outputs that the module gives."""
        batch = self._pieces.take(self._chosen())
        if self._asked.mixed:
            batch = self._mixed(batch)
        self._round_from(number)
        seen: dict[int, Any] = {}
        y, _ = self._module.run(batch.x, batch.state, self._alive(batch), seen)
        return batch, [y, *(seen[at] for at in sorted(seen))]

    def _weights(self, batch: _Pieces) -> list[float]:
        """Return the weight of each square error, for y and the outputs of each recurrent layer."""
        steps = float(batch.alive.sum())
        return [
            scale * (self._asked.hidden if at else 1.0) / (steps * values.shape[-1])
            for at, (values, scale) in enumerate(zip(batch.outputs, self._scales, strict=True))
        ]

    def _round_from(self, number: int) -> None:
        """Turn the rounding on or off as the request has it."""
        rounding = number >= self._asked.float_updates
        if rounding and not self._module.rounding:
            self._module.fit_limits()
        self._module.rounding = rounding

    def _chosen(self) -> Any:
        count = self._pieces.x.shape[1]
        return torch.from_numpy(self._draw.choice(count, min(self._asked.sequences, count), replace=False))

    def _mixed(self, batch: _Pieces) -> _Pieces:
        """Mix some pieces' inputs with others', and ask the float network what it makes of them."""
        draw, count = self._draw, batch.x.shape[1]
        parts = draw.uniform(size=count) * (draw.uniform(size=count) < self._asked.mixed)
        others = self._pieces.x[:, self._chosen()]
        x = torch.lerp(batch.x, others, torch.from_numpy(parts).to(others)[:, None])
        seen: dict[int, Any] = {}
        with torch.no_grad():
            y, _ = self._teacher.run(x, batch.state, self._alive(batch), seen)
        return _Pieces(x, batch.alive, batch.state, [y, *(seen[at] for at in sorted(seen))])

    @staticmethod
    def _alive(batch: _Pieces) -> Any:
        """Return where pieces have steps; None if everywhere, which is faster."""
        return None if bool(batch.alive.all()) else batch.alive


def _float_network(module: Prepared) -> Prepared:
    """Return the float network of a module's parameters, nothing of it pruned."""
    found = copy.deepcopy(module)
    found.rounding = False
    for kept in found.rows.buffers():
        kept.fill_(True)
    return found
