"""What ``rtlstm accuracy`` promises against what is got: on the networks of ``bench --accuracy``.

Half of the data that calibrated nothing predicts. The advice is followed, and judged on the other half:
``python -m rtlstm.bench.advice [NETWORK]... [--widths 4/8,8/8]``.
"""

import argparse
from typing import Any

import numpy as np

from rtlstm.bench.cases import Case, find_cases
from rtlstm.fpga.estimate import estimate_devices
from rtlstm.gen.accuracy.measure import fixed_outputs, measure_errors
from rtlstm.gen.accuracy.records import Advice, named_part
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.generate import BuildRequest
from rtlstm.gen.builds.hardware import ArrayRequest, Asked, hardware_options
from rtlstm.gen.builds.widths import Made, Widths
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ToolError
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.record import Record, few_digits
from rtlstm.zoo.entry import Subject

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
    typical, inputs = subject.typical, subject.x.shape[2]
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
        lengths = np.full(x.shape[1], steps)
    one, other = (Samples.of(x[:, first::2], inputs, lengths[first::2]) for first in (0, 1))
    return one, other


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
    request = BuildRequest(network=network, settings=settings, array=array, initial_state=begin)
    manifest, _ = request.manifest("advice", quantised, request.sizes("advice", quantised))
    asked = Asked(settings=settings, hardware=hardware_options(array))
    device = next((each for each in estimate_devices(manifest) if each.fits), None)
    errors = measure_errors(quantised, mine, network)
    made = Made(request, asked, data, quantised, manifest, device)
    _, advice = Widths(made, mine, run_float(network, mine.x, None, mine.lengths), errors).run()
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
    exact = run_float(network, samples.x, None, samples.lengths).y
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
            subject = case.load(None)
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
