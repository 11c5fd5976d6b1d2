"""What rounding costs the zoo's and other networks on data that calibrated nothing, beside others' 8 bits.

What ``rtlstm accuracy`` promises is compared with what is got: half of the data that calibrated nothing
predicts, the advice is followed, and it is judged on the other half: ``python -m rtlstm.bench.accuracy
[NETWORK]... [--widths 4/8,8/8]``.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from rtlstm.bench.cases import Case, find_cases
from rtlstm.bench.int8 import round_weights, run_int8, run_onnxruntime
from rtlstm.bench.jobs import code_digest, open_journal
from rtlstm.fpga.estimate import estimate_devices
from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.records import Advice, named_part
from rtlstm.gen.accuracy.samples import Floats, Samples
from rtlstm.gen.builds.generate import BuildRequest
from rtlstm.gen.builds.hardware import ArrayRequest, Asked, hardware_options
from rtlstm.gen.builds.widths import Made, Widths
from rtlstm.gen.quantise.calibration import Calibration, fixed_outputs
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise, quantise_with
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.progress import Progress, tell
from rtlstm.spec.record import Record, few_digits
from rtlstm.tools.cache import digest
from rtlstm.tools.work import open_workers
from rtlstm.zoo.entry import Subject

WIDTHS = ((16, 16), (8, 16), (8, 8), (4, 8), (3, 8), (2, 8))
"""Bits of weights and of data; the first three are the quick ones."""
DATA_BITS = (16, 8)
_QUICK = 3
_TRAINED_BITS, _UPDATES = 4, 400
"""Most bits of weights that are finetuned, as rounding costs little with more; updates of a finetuning."""
PER_TENSOR, PER_CHANNEL = "per tensor", "per channel"
ROUNDED, FINETUNED, NAIVE = "rounded", "finetuned", "weights alone"
"""Ours, as ``generate`` does it, without and with ``--finetune``; and weights with one scale for each matrix,
all else in float."""
RUNTIME, EXACT = "onnxruntime", "exact int8"
"""onnxruntime's dynamic int8 on this processor, and its arithmetic with sums that hold every product."""


_Widths = Sequence[tuple[int, int]]


class Figures(Record):
    """What one way to round gives."""

    name: str
    """Numbers and widths, as ``rounded 8/16``."""
    numbers: str
    """Who rounds: one of the names above; int8 with its scales behind a comma."""
    weight_bits: int
    data_bits: int | None
    """None for float."""
    relative_rms: float
    """Error of the outputs by the standard deviation of float's."""
    metric: float
    seconds: float | None = None
    """What choosing formats took; where the network is finetuned, too, with training, for both together."""
    detail: str = ""
    """Type of onnxruntime's weights, and the operators that multiply matrices."""


class CaseResult(Record):
    """A network and what was measured of it."""

    name: str
    source: str
    metric: str
    less_is_better: bool
    in_float: float | None = None
    """The metric in float; None if the network could not be had."""
    outputs: int = 0
    """Values that are compared."""
    figures: tuple[Figures, ...] = ()
    missing: tuple[str, ...] = ()
    """What was not measured, and why."""

    def find(self, numbers: str, weight_bits: int, data_bits: int | None) -> Figures | None:
        """Return the figures of one way to round."""
        wanted = (numbers, weight_bits, data_bits)
        return next((each for each in self.figures if _key(each) == wanted), None)

    def int8(self, scales: str) -> Figures | None:
        """Return the better figures of int8: onnxruntime's, if it has all layers, or the exact ones."""
        found = [self.find(f"{who}, {scales}", 8, 8) for who in (RUNTIME, EXACT)]
        some = [each for each in found if each is not None and not _in_float(each)]
        return min(some, key=lambda each: each.relative_rms, default=None)

    def is_worse(self, mine: Figures, other: Figures) -> bool:
        """Whether figures are worse than others: by the metric, and by rms where that is equal."""
        sign = 1 if self.less_is_better else -1
        return (sign * mine.metric, mine.relative_rms) > (sign * other.metric, other.relative_rms)


def _key(figures: Figures) -> tuple[str, int, int | None]:
    return figures.numbers, figures.weight_bits, figures.data_bits


def _in_float(figures: Figures) -> bool:
    """Whether onnxruntime left recurrent layers in float."""
    return bool({"GRU", "LSTM", "RNN"} & set(figures.detail.replace(";", "").split()))


class Comparison(Record):
    """On which networks we are worse than int8."""

    data_bits: int
    """Ours; weights have 8 bits."""
    scales: str
    """Those of int8."""
    worse: tuple[str, ...]
    of: int


class AccuracyResult(Record):
    """All networks."""

    cases: tuple[CaseResult, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class AccuracyPlan:
    """What to measure."""

    cases: Sequence[Case]
    folder: Path
    """Where finished networks are kept until the end."""
    quick: bool = False
    """Whether 16 and 8 bits are enough."""
    finetune: bool = False
    workers: int | None = 1
    scheduler: str | None = None

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """Bits of weights and of data."""
        return WIDTHS[:_QUICK] if self.quick else WIDTHS


def run_accuracy(plan: AccuracyPlan, progress: Progress | None = None) -> AccuracyResult:
    """Measure all networks that the plan names; those that were finished before an interruption are kept.

    Raises RtlstmError if a network cannot be built. The result says what was not measured because a package
    is missing.
    """
    names = [case.name for case in plan.cases]
    alone = plan.workers == 1 and plan.scheduler is None
    about = digest(code_digest(), repr((plan.quick, plan.finetune)))
    found: dict[str, CaseResult] = {}
    with (
        open_journal(plan.folder / "accuracy.journal", about) as journal,
        open_workers(plan.workers, plan.scheduler) as workers,
    ):
        shared = plan.widths, plan.finetune, progress if alone else None
        for name, fields in journal.run(workers, _measure, shared, {name: name for name in names}):
            found[name] = CaseResult.model_validate(fields)
            tell(progress, "measure networks", len(found), len(names))
    cases = tuple(found[name] for name in names)
    return AccuracyResult(cases=cases, comparisons=tuple(_compare(cases)))


def _compare(cases: Sequence[CaseResult]) -> Iterator[Comparison]:
    for data_bits in DATA_BITS:
        for scales in (PER_TENSOR, PER_CHANNEL):
            pairs = [(case, case.find(ROUNDED, 8, data_bits), case.int8(scales)) for case in cases]
            some = [(case, mine, other) for case, mine, other in pairs if mine and other]
            worse = tuple(case.name for case, mine, other in some if case.is_worse(mine, other))
            if some:
                yield Comparison(data_bits=data_bits, scales=scales, worse=worse, of=len(some))


def _measure(shared: tuple[_Widths, bool, Progress | None], name: str) -> dict[str, Any]:
    (case,) = find_cases([name])
    return measure_case(case, *shared).model_dump(mode="json")


def measure_case(case: Case, widths: _Widths, finetune: bool, progress: Progress | None = None) -> CaseResult:
    """Measure a network with ``widths`` of weights and data; the result names a package that is missing."""
    about: dict[str, Any] = {
        "name": case.name,
        "source": case.source,
        "metric": case.metric.name,
        "less_is_better": case.metric.less_is_better,
    }
    try:
        subject = case.load(progress)
    except ToolError as error:
        return CaseResult(**about, missing=(str(error),))
    judged = _Judged(case, subject)
    figures: list[Figures] = []
    missing: list[str] = []
    for done, (bits, data_bits) in enumerate(widths):
        tell(progress, f"measure {case.name}", done, len(widths))
        figures += judged.ours(bits, data_bits, finetune and bits <= _TRAINED_BITS)
        if bits not in dict(widths[:done]):
            figures.append(judged.figures(NAIVE, bits, None, judged.run_float(bits)))
    figures += judged.exact_int8()
    try:
        figures += list(judged.onnxruntime())
    except (ToolError, ConfigurationError) as error:
        missing.append(str(error))
    tell(progress, f"measure {case.name}", len(widths), len(widths))
    return CaseResult(
        **about,
        in_float=few_digits(subject.judge(judged.exact, subject.typical), 6),
        outputs=int(judged.compared.sum()) * judged.exact.shape[2],
        figures=tuple(figures),
        missing=tuple(missing),
    )


class _Judged:
    """A network, its data, and what the float network gives for them."""

    def __init__(self, case: Case, subject: Subject) -> None:
        self._subject = subject
        self._network = subject.model.network
        self._data = Calibration.of(self._network, subject.x, subject.lengths, subject.state)
        given = subject.calibration
        self._calibration: dict[str, Any] = {
            "lengths": given.get("calibration_lengths"), "state": given.get("calibration_state"),
            "batch_first": False,
        }  # fmt: skip
        self._typical: Floats = given["calibration"]
        self._searched: dict[object, float] = {}
        self.exact = run_float(self._network, subject.x, self._data.state, subject.lengths).y
        self.compared = subject.held_out
        if case.last:
            self.compared = self.compared & (np.arange(len(subject.x))[:, None] == self._data.lengths - 1)
        self._spread = float(self.exact[self.compared].std())

    def figures(
        self, numbers: str, weight_bits: int, data_bits: int | None, y: Floats, **more: Any
    ) -> Figures:
        """Judge outputs."""
        error = (y - self.exact)[self.compared]
        widths = f"{weight_bits}" if data_bits is None else f"{weight_bits}/{data_bits}"
        return Figures(
            name=f"{numbers} {widths}",
            numbers=numbers,
            weight_bits=weight_bits,
            data_bits=data_bits,
            relative_rms=few_digits(np.sqrt(np.mean(error**2)) / self._spread),
            metric=few_digits(self._subject.judge(y, self._subject.typical), 6),
            **more,
        )

    def ours(self, weight_bits: int, data_bits: int, finetune: bool) -> Iterator[Figures]:
        """Yield our figures: rounded, and finetuned if asked for."""
        begin = perf_counter()
        made = self._finetuned(weight_bits, data_bits) if finetune else self._rounded(weight_bits, data_bits)
        seconds = round(perf_counter() - begin, 2)
        for numbers, network in made.items():
            y = fixed_outputs(network, self._data)
            yield self.figures(numbers, weight_bits, data_bits, y, seconds=seconds)

    def _rounded(self, weight_bits: int, data_bits: int) -> dict[str, QuantizedNetwork]:
        data = Calibration.of(self._network, self._typical, **self._calibration)
        settings = QuantizationSettings(weight_bits=weight_bits, data_bits=data_bits)
        begin = self._subject.model.initial_state
        choices = choose_formats(self._network, settings, data, searched=self._searched, initial_state=begin)
        return {ROUNDED: quantise_with(self._network, settings, choices)}

    def _finetuned(self, weight_bits: int, data_bits: int) -> dict[str, QuantizedNetwork]:
        """Training begins with the rounded network, so that is chosen once."""
        from rtlstm.train import FinetuneRequest, finetune

        found = finetune(
            self._subject.model,
            self._typical,
            request=FinetuneRequest(updates=_UPDATES),
            weight_bits=weight_bits,
            data_bits=data_bits,
            **self._calibration,
        )
        return {ROUNDED: found.module.rounded_only(), FINETUNED: found.network}

    def run_float(self, weight_bits: int) -> Floats:
        """Return what the network gives with rounded weights, and all else in float."""
        rounded = round_weights(self._network, weight_bits)
        return run_float(rounded, self._data.x, self._data.state, self._data.lengths).y

    def exact_int8(self) -> Iterator[Figures]:
        """Yield the figures of int8 whose sums hold every product."""
        for scales in (PER_TENSOR, PER_CHANNEL):
            y = run_int8(self._network, self._data, scales == PER_CHANNEL)
            yield self.figures(f"{EXACT}, {scales}", 8, 8, y)

    def onnxruntime(self) -> Iterator[Figures]:
        """Yield the figures of onnxruntime's dynamic int8, with the type of weights that is better."""
        for scales in (PER_TENSOR, PER_CHANNEL):
            found = [
                self.figures(
                    f"{RUNTIME}, {scales}", 8, 8, peer.y, detail=f"{peer.weights}; {' '.join(peer.operators)}"
                )
                for peer in run_onnxruntime(self._network, self._data, scales == PER_CHANNEL)
            ]
            yield min(found, key=lambda each: each.relative_rms)


_PIECES = 24
"""Sequences, at least: fewer are cut into pieces, which begin with zeros."""
_ARRAY: dict[str, Any] = {"family": "ecp5", "lanes": 16, "macs": 4}


class Promise(Record):
    """An advice, and what following it gave on other data."""

    name: str
    """The network and its widths."""
    part: str
    """What costs most; empty if no part alone does."""
    now: float
    uncertainty: float | None
    advice: Advice | None
    now_on_others: float
    got: float
    """The error of the build that is advised, or of this one without advice, on the other data."""

    @property
    def ratio(self) -> float:
        """What is got to what was promised."""
        return self.got / (self.now if self.advice is None else self.advice.rms_error)


def halves(subject: Subject) -> tuple[Samples, Samples]:
    """Return every other sequence that calibrates nothing, or piece of one, and the rest."""
    typical, inputs, state = subject.typical, subject.x.shape[2], subject.state
    if subject.lengths is None:
        x, lengths = subject.x[typical:], np.array([len(subject.x) - typical])
    else:
        x, lengths = subject.x[:, typical:], subject.lengths[typical:]
    parts = -(-_PIECES // x.shape[1])
    if parts > 1 and len({*lengths.tolist()}) == 1:
        steps = len(x) // parts
        x = (
            x[: steps * parts]
            .reshape(parts, steps, -1, inputs)
            .transpose(1, 2, 0, 3)
            .reshape(steps, -1, inputs)
        )
        lengths, state = np.full(x.shape[1], steps), None

    def half(first: int) -> Samples:
        some = slice(typical + first, None, 2)
        begin = state and ([each[some] for each in state[0]], [each[some] for each in state[1]])
        return replace(Samples.of(x[:, first::2], inputs, lengths[first::2]), state=begin)

    return half(0), half(1)


def measure_advice(case: Case, subject: Subject, weight_bits: int, data_bits: int) -> Promise:
    """Ask for advice, follow it, and measure again."""
    network, begin = subject.model.network, subject.model.initial_state
    given = subject.calibration
    data = Calibration.of(
        network,
        given["calibration"],
        given.get("calibration_lengths"),
        given.get("calibration_state"),
    )
    settings = QuantizationSettings(weight_bits=weight_bits, data_bits=data_bits)
    quantised = quantise(network, settings, data, initial_state=begin)
    mine, other = halves(subject)
    array = ArrayRequest(**_ARRAY, max_steps=len(subject.x) if quantised.passes else None)
    request = BuildRequest(read=subject.model, settings=settings, array=array, data=data)
    manifest, _ = request.manifest("advice", quantised, request.sizes("advice", quantised))
    asked = Asked(settings=settings, hardware=hardware_options(array))
    device = next((each for each in estimate_devices(manifest) if each.fits), None)
    errors = measure_errors(quantised, mine, network)
    made = Made(request, asked, quantised, manifest, device)
    _, advice = Widths(made, mine, run_float(network, mine.x, mine.state, mine.lengths), errors).run()
    followed = quantised
    if advice is not None:
        followed = quantise(network, settings.replace(**advice.changes), data, initial_state=begin)
    part = named_part(errors.output)
    return Promise(
        name=f"{case.name} {weight_bits}/{data_bits}",
        part="" if part is None else part.part,
        now=errors.output.rms_error,
        uncertainty=errors.uncertainty,
        advice=advice,
        now_on_others=_rms(network, quantised, other),
        got=_rms(network, followed, other),
    )


def _rms(network: Network, quantised: QuantizedNetwork, samples: Samples) -> float:
    exact = run_float(network, samples.x, samples.state, samples.lengths).y
    error = (fixed_outputs(quantised, samples) - exact)[samples.alive]
    return few_digits(np.sqrt(np.mean(error**2)))


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each network and width."""
    parser = argparse.ArgumentParser(description="Compare what rtlstm accuracy promises with what is got.")
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--widths", default="4/8,8/8", help="bits of weights and data")
    given = parser.parse_args(arguments)
    pairs = [[int(bits) for bits in each.split("/")] for each in given.widths.split(",")]
    print("network | part | error | advice | promised | on other data | ratio | without advice | uncertainty")
    for case in find_cases(given.networks or None):
        try:
            subject = (case.more or case.load)(None)
        except ToolError as error:
            print(f"{case.name} | {error}", flush=True)
            continue
        for weight_bits, data_bits in pairs:
            found = measure_advice(case, subject, weight_bits, data_bits)
            advice = found.advice
            change = "none" if advice is None else " ".join(f"{k}={v}" for k, v in advice.changes.items())
            promised = found.now if advice is None else advice.rms_error
            print(
                f"{found.name} | {found.part} | {found.now:.3g} | {change} | {promised:.3g} | "
                f"{found.got:.3g} | {found.ratio:.3f} | {found.now_on_others / found.now:.3f} | "
                f"{found.uncertainty if advice is None else advice.uncertainty}",
                flush=True,
            )


if __name__ == "__main__":
    main()
