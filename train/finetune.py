"""Trains a rounded network to give what the float network gives: from inputs alone, without labels."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from rtlstm.gen.quantise.calibration import Calibration, fixed_outputs
from rtlstm.gen.quantise.search import cut_in_time
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, InputError, warn_caller
from rtlstm.spec.layout import Pad
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.progress import Progress, shown
from rtlstm.spec.record import Record
from rtlstm.train.layers import LayerStates
from rtlstm.train.module import Prepared
from rtlstm.train.prepare import prepare
from rtlstm.train.pruning import Among, Pruned

Integers = NDArray[np.int64]

_MEASURED = 24
"""Batches that show what the words change."""
_GAP = 1.5
"""By how much less errors fall on held-out data if training is said to have learned its sequences alone."""
_FIXINGS, _FIXED_AT = 20, 0.85
"""Stages in which weights are fixed, and the share of these updates after which all are."""
_MOVES, _MOST_MOVE = 3.0, 1 / 64
"""Mean steps of the weights that one of them may move in all updates, and in one, at the default rate."""
_STAGES = 8
"""The most stages in which words of weights go."""


class FinetuneRequest(Record):
    """How long and how a network is trained on its own float outputs."""

    updates: int = Field(default=1500, ge=1)
    """The most updates of the weights."""
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Learning rate of the first update; by default a share of the mean step of the weights. It falls to a
    hundredth, as a cosine does: when all weights are fixed, or with ``in_float`` from the beginning."""
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
    digit_price: float = Field(default=0.0, ge=0, le=4, allow_inf_nan=False)
    """What a signed digit of a weight costs when it is rounded, in squares of its step: with fewer digits,
    products in space have fewer adders."""
    seed: int = 0

    def fixing_schedule(self) -> dict[int, float]:
        """Return before which updates weights are fixed, and the share that is fixed then.

        It begins when the last words have gone and weights are rounded. Those that are left make up for those
        that are fixed (Zhou et al., arXiv 1702.03044).
        """
        begin = max([*self.pruning_schedule(), self.float_updates + 1])
        end = begin + round(_FIXED_AT * max(0, self.updates - begin))
        return {begin + (end - begin) * stage // _FIXINGS: stage / _FIXINGS for stage in range(_FIXINGS + 1)}

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


class DigitTrial(Record):
    """What came of training with one price of digits."""

    digit_price: float
    adders: int
    """Adders of all products in space."""
    rms: float
    """Error on held-out data."""
    built: bool


class FinetuneReport(Record):
    """What training did."""

    rounded: Errors
    """Errors of the network that is rounded only, as ``rtlstm generate`` does it with the same data."""
    first: Errors
    """Before training."""
    trained: Errors
    """Errors of the best network that was checked."""
    trained_on: tuple[Errors, Errors]
    """On data that training saw, about as many: before training, and at its end."""
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
    warning: str = ""
    """What to say if training learned its sequences more than what they have in common; else empty."""
    digits: tuple[DigitTrial, ...] = ()
    """The prices of digits that were tried for a spatial build, in ascending order; empty for arrays."""

    @property
    def trained_is_built(self) -> bool:
        """Whether the trained network is built: pruned weights are zero even if that is worse."""
        return self.helped or self.pruned


@dataclass(frozen=True)
class Finetuned:
    """The trained module, and what training did."""

    module: Prepared
    report: FinetuneReport

    @property
    def network(self) -> QuantizedNetwork:
        """The better network on held-out data, which ``rtlstm generate`` builds: trained, or rounded only."""
        return self.module.quantised() if self.report.trained_is_built else self.module.rounded_only()


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
    variance. Training begins with the weights as ``rtlstm generate`` rounds them, and goes through sequences
    in pieces: each begins in the state that the network has reached in the one before.

    Parameters
    ----------
    model
        What :func:`rtlstm.train.prepare` takes.
    data
        Typical inputs, floats, ``(T, I)`` or ``(T, N, I)``; ``(N, T, I)`` if ``batch_first``, by default as
        the model has it. The last sequences, or the last steps of a single one, are held out. All calibrate
        the formats.
    lengths
        Valid steps of each sequence, ``(N,)``.
    pad
        Where the padding of sequences shorter than T stands in ``data``, as for :meth:`rtlstm.Build.run`.
    state
        Initial state of each sequence, ``(h_0, c_0)`` as for :meth:`rtlstm.Build.run`; if None, the one in
        which the model begins, zeros for most.
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
    trained_on, held_out = _split(module.network, module.calibration, asked.held_out)
    judge = _Judge(module, held_out)
    seen_judge = _Judge(module, trained_on.sample(max(held_out.total_steps, trained_on.steps)))
    plain = judge.of(module.rounded_only())
    trainer = _Trainer(module, asked, trained_on)
    model_weights = copy.deepcopy(module.weights.state_dict())
    if not asked.in_float:
        module.begin_cancelling()
    pruner = _Pruner(module, asked, array or {}, trainer)
    first = best = judge.of_module(module)
    first_seen = seen_judge.of_module(module)
    chosen, fixed = copy.deepcopy(module.state_dict()), module.fixed
    fixings = asked.fixing_schedule()
    # The scales stay, but the weights are the model's again: they are rounded when they are fixed.
    module.weights.load_state_dict(model_weights)
    every, waited, done, diverged = max(1, asked.updates // asked.checks), 0, 0, False
    # What is better before cannot be kept: it has weights that will go, or is not rounded yet.
    begin = max(pruner.last, asked.float_updates + 1 if asked.float_updates else 0)
    if asked.digit_price:
        # What is not fixed yet would be rounded without the price.
        begin = max(begin, *fixings)
    try:
        with shown(progress) as seen:
            for done in range(1, asked.updates + 1):
                pruner.before(done)
                if done in fixings:
                    trainer.round_from(done - 1)
                    module.fix(fixings[done], asked.digit_price)
                trainer.update(done - 1)
                if seen:
                    seen(f"train{pruner.left}", done, asked.updates)
                if done < begin or (done != begin and done % every and done < asked.updates):
                    continue
                found = judge.of_module(module)
                if found.rms < best.rms or done == begin:
                    best, waited = found, 0
                    chosen, fixed = copy.deepcopy(module.state_dict()), module.fixed
                    continue
                waited += done >= max(fixings)
                if waited == asked.stop_after:
                    break
    except ConfigurationError:
        if done <= begin:
            raise
        diverged = True
    # At the end of training, not of what is kept: where held-out errors do not fall, that is the beginning.
    last_seen, last = (
        (first_seen, first) if diverged else (each.of_module(module) for each in (seen_judge, judge))
    )
    module.load_state_dict(chosen)
    module.fixed = fixed
    module.settle()
    report = FinetuneReport(
        rounded=plain,
        first=first,
        trained=best,
        trained_on=(first_seen, last_seen),
        updates=done,
        steps=int(held_out.lengths.sum()),
        prune=asked.prune,
        pruned=module.pruned,
        stages=tuple(pruner.stages),
        diverged=diverged,
        helped=best.rms < plain.rms,
        warning=_warn_of_gap((first_seen, last_seen), (first, last)),
    )
    if report.warning:
        warn_caller(report.warning)
    return Finetuned(module, report)


def _warn_of_gap(seen: tuple[Errors, Errors], held_out: tuple[Errors, Errors]) -> str:
    """Return what to say if errors before and after training fell more on data that it saw; else nothing."""
    ratios = [after.rms / before.rms if before.rms else 1.0 for before, after in (seen, held_out)]
    if ratios[1] < _GAP * ratios[0]:
        return ""
    texts = [f"from {before.rms:.3g} to {after.rms:.3g}" for before, after in (seen, held_out)]
    return (
        f"the error must fall alike on all sequences, but went {texts[0]} on those that training saw, and "
        f"{texts[1]} on those that it did not: it learned what only the first have, so give more sequences"
    )


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


def _split(network: Network, data: Calibration, share: float) -> tuple[Calibration, Calibration]:
    """Hold out the last sequences, or the last steps of a single one."""
    count, steps = data.sequences, data.steps
    if count > 1:
        last = min(max(1, round(share * count)), count - 1)
        order = np.arange(count)
        return data.take(order[:-last], steps), data.take(order[-last:], steps)
    if network.whole_sequences or steps < 10:
        raise InputError(
            "data to train on must be 2 sequences or more, or a long one of a network that goes forward, so "
            f"that some can be held out, but there is one of {steps} steps; give more"
        )
    return cut_in_time(network, data, max(2, int(steps * (1.0 - share))))


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
        mine = (fixed_outputs(network, self._data) - self._wanted)[self._data.alive]
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
    sequence: Any
    """The sequence that each is a piece of, ``(P,)``."""

    def take(self, chosen: Any) -> "_Pieces":
        outputs = [values[:, chosen] for values in self.outputs]
        state = _some(self.state, chosen)
        return _Pieces(self.x[:, chosen], self.alive[:, chosen], state, outputs, self.sequence[chosen])

    def following(self) -> Integers:
        """Return for each piece the number of the one that follows it in its sequence; -1 for the last."""
        found, last = np.full(len(self.sequence), -1), dict[int, int]()
        for number, sequence in enumerate(self.sequence.tolist()):
            if sequence in last:
                found[last[sequence]] = number
            last[sequence] = number
        return found


def _some(state: LayerStates, chosen: Any) -> LayerStates:
    h, c = ([values[chosen] for values in part] for part in state)
    return h, c


class _Walk:
    """Goes through sequences piece by piece, several side by side.

    The first pieces are drawn, and begin with the float network's states there. Those that follow begin with
    the states that the trained network has reached. Where a sequence ends, a drawn one begins.
    """

    def __init__(self, pieces: _Pieces, count: int, draw: np.random.Generator) -> None:
        self._pieces, self._draw = pieces, draw
        self._following = pieces.following()
        begins = np.ones(len(self._following), dtype=bool)
        begins[self._following[self._following >= 0]] = False
        self._begins = np.flatnonzero(begins)
        self._at = draw.choice(len(begins), min(count, len(begins)), replace=False)
        self.states: list[LayerStates] = [_some(pieces.state, self._at)] * 2
        """Those before the next pieces: of the network, and of the float network."""

    def next(self) -> _Pieces:
        """Return the next pieces, with the network's states before them."""
        return replace(self._pieces.take(self._at), state=self.states[0])

    def go_on(self, reached: LayerStates, in_float: LayerStates | None) -> None:
        """Go to the pieces behind these, after which the network is in the states ``reached``.

        ``in_float`` are those of the float network, if its inputs were others than the pieces' own.
        """
        following = self._following[self._at]
        ended = np.flatnonzero(following < 0)
        some = min(len(ended), len(self._begins))
        following[ended[:some]] = self._draw.choice(self._begins, some, replace=False)
        following[ended[some:]] = self._draw.choice(self._begins, len(ended) - some)
        self._at, fresh = following, _some(self._pieces.state, following)
        goes_on = torch.ones(len(following), dtype=torch.bool)
        goes_on[ended] = False
        self.states = [
            _merged(goes_on, reached, fresh),
            fresh if in_float is None else _merged(goes_on, in_float, fresh),
        ]


def _merged(chosen: Any, some: LayerStates, others: LayerStates) -> LayerStates:
    """Return the states of ``some`` where ``chosen``, and those of ``others`` elsewhere."""
    mask = chosen[:, None]
    h, c = (
        [torch.where(mask, one.detach().to(other), other) for one, other in zip(*part, strict=True)]
        for part in zip(some, others, strict=True)
    )
    return h, c


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
        self._rates = (
            asked.rate or min(_MOVES / asked.updates, _MOST_MOVE) * module.mean_step(),
            asked.range_rate,
        )
        self._draw = np.random.default_rng(asked.seed)
        self._walk = _Walk(self._pieces, asked.sequences, self._draw)

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
            outputs, after = module.run(mine, state, valid)
            part = _Pieces(mine, valid, state, outputs, torch.arange(x.shape[1]))
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
            torch.cat([part.sequence for part in parts]),
        )

    def update(self, number: int) -> None:
        """Change the weights once. Raises ConfigurationError if a parameter is not finite any more."""
        asked = self._asked
        # What is trained in float first needs a small rate then; else weights must move until all are fixed.
        fixed = 0 if asked.float_updates else max(asked.fixing_schedule())
        part = max(0, number - fixed) / max(1, asked.updates - fixed)
        share = 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * part))
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
            rows.slopes = {}
        for _ in range(_MEASURED):
            batch, found = self._run(number)
            total = found[0].new_zeros(())
            for mine, weight in zip(found, self._weights(batch), strict=True):
                signs = torch.from_numpy(self._draw.choice((-1.0, 1.0), tuple(mine.shape))).to(mine)
                total = total + weight**0.5 * (mine * signs * batch.alive).sum()
            total.backward()
        self._optimizer.zero_grad()

    def _run(self, number: int) -> tuple[_Pieces, list[Any]]:
        """Run the next pieces; return them with the outputs that the module gives."""
        batch, in_float = self._walk.next(), None
        if self._asked.mixed:
            batch, in_float = self._mixed(batch)
        self.round_from(number)
        outputs, reached = self._module.run(batch.x, batch.state, self._alive(batch))
        self._walk.go_on(reached, in_float)
        return batch, outputs

    def _weights(self, batch: _Pieces) -> list[float]:
        """Return the weight of each square error, for y and the outputs of each recurrent layer."""
        steps = float(batch.alive.sum())
        return [
            scale * (self._asked.hidden if at else 1.0) / (steps * values.shape[-1])
            for at, (values, scale) in enumerate(zip(batch.outputs, self._scales, strict=True))
        ]

    def round_from(self, number: int) -> None:
        """Turn the rounding on or off as the request has it."""
        rounding = number >= self._asked.float_updates
        if rounding and not self._module.rounding:
            self._module.fit_limits()
        self._module.rounding = rounding

    def _mixed(self, batch: _Pieces) -> tuple[_Pieces, LayerStates]:
        """Mix some pieces' inputs with others', and ask the float network what it makes of them.

        Return them, and the states that the float network reaches.
        """
        draw, count = self._draw, batch.x.shape[1]
        parts = draw.uniform(size=count) * (draw.uniform(size=count) < self._asked.mixed)
        others = self._pieces.x[:, draw.choice(self._pieces.x.shape[1], count, replace=False)]
        x = torch.lerp(batch.x, others, torch.from_numpy(parts).to(others)[:, None])
        with torch.no_grad():
            outputs, reached = self._teacher.run(x, self._walk.states[1], self._alive(batch))
        return replace(batch, x=x, outputs=outputs), reached

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
