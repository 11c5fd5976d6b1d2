"""What the demo found: gates, one table for people, one JSON object for programs."""

from dataclasses import asdict, dataclass
from typing import Any

from convolutions import MOST_CHANGED, MOST_DIFFERENCE, ConvolutionResults, memory
from measure import Accuracy, GoldenRun, RtlRun
from peer import PeerTiming
from rich.table import Table

from rtlstm.spec.manifest import Manifest
from rtlstm.zoo.silero import STEPS_PER_SECOND

__all__ = ["CLOCK_MHZ", "Gate", "Results"]

CLOCK_MHZ = 100
"""Clock at which cycles are given as time. Assumed, not placed and routed."""

_MOST_DIFFERENCE = 0.01
_MOST_NARROW_FLIPS = 0.003


@dataclass(frozen=True)
class Gate:
    """Something that must hold."""

    name: str
    found: str
    passed: bool


@dataclass(frozen=True)
class Results:
    """All figures of one run of the demo."""

    manifest: Manifest
    simulator: str
    calibration_steps: int
    golden: GoldenRun
    rtl: RtlRun
    words_compared: int
    words_different: int
    accuracy: Accuracy
    """Golden model, 16-bit weights, the whole recording."""
    rtl_accuracy: Accuracy
    narrow_accuracy: Accuracy
    """Golden model, 8-bit weights, the whole recording."""
    peer: PeerTiming
    convolutions: ConvolutionResults
    """Of the build that has the convolutions on the core, too."""

    @property
    def steps_per_second(self) -> float:
        """Speed of the simulation."""
        return len(self.rtl.y) / self.rtl.seconds

    @property
    def latency_us(self) -> float:
        """Measured warm latency at the assumed clock."""
        return self.rtl.warm_latency / CLOCK_MHZ

    @property
    def gates(self) -> list[Gate]:
        """All that must hold for the demo to pass."""
        cycles, rtl = self.manifest.cycles, self.rtl
        predicted = (
            cycles.step_latency_cycles,
            cycles.first_step_latency_cycles,
            (cycles.step_interval_cycles,),
        )
        measured = (rtl.warm_latency, rtl.first_step_latency, rtl.intervals)
        both = (self.accuracy, self.rtl_accuracy)
        difference = max(accuracy.difference for accuracy in both)
        flips = max(accuracy.flips for accuracy in both)
        narrow = self.narrow_accuracy.flips / self.narrow_accuracy.steps
        return [
            Gate(
                "RTL = golden model, every word", f"{self.words_different} differ", not self.words_different
            ),
            Gate(
                "cycles = prediction", "equal" if predicted == measured else "differ", predicted == measured
            ),
            Gate("16-bit weights: no flips", str(flips), flips == 0),
            Gate(
                f"16-bit weights: |dp| <= {_MOST_DIFFERENCE}",
                f"{difference:.4f}",
                difference <= _MOST_DIFFERENCE,
            ),
            Gate(
                f"8-bit weights: flips <= {_MOST_NARROW_FLIPS:.1%}",
                f"{narrow:.2%}",
                narrow <= _MOST_NARROW_FLIPS,
            ),
            *self._convolution_gates(),
        ]

    def _convolution_gates(self) -> list[Gate]:
        found = self.convolutions
        changed = found.changed / found.steps
        return [
            Gate(
                "convolutions: RTL = golden model",
                f"{found.words_different} words and {found.rtl.cycles_different} steps' cycles differ",
                found.exact,
            ),
            Gate(
                f"convolutions: float |dp| <= {MOST_DIFFERENCE:g}",
                f"{found.float_difference:.1e}",
                found.float_difference <= MOST_DIFFERENCE,
            ),
            Gate(f"convolutions: flips <= {MOST_CHANGED:.0%}", f"{changed:.2%}", changed <= MOST_CHANGED),
        ]

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(gate.passed for gate in self.gates)

    def table(self) -> Table:
        """Return the table for people."""
        table = Table(title="silero VAD on an rtlstm core", title_style="bold", highlight=False)
        table.add_column("what", no_wrap=True)
        table.add_column("value", overflow="fold")
        sections = (
            self._network_rows(),
            self._exactness_rows(),
            self._accuracy_rows(),
            self._speed_rows(),
            self._convolution_rows(),
        )
        for rows in sections:
            for name, value in rows:
                table.add_row(name, value)
            table.add_section()
        for gate in self.gates:
            verdict = "[bold green]PASS[/]" if gate.passed else "[bold red]FAIL[/]"
            table.add_row(f"gate: {gate.name}", f"{verdict}  {gate.found}")
        return table

    def _network_rows(self) -> list[tuple[str, str]]:
        manifest = self.manifest
        numbers, parameters = manifest.numerics, manifest.parameters
        layers = (f"{layer.kind} {layer.inputs} -> {layer.outputs}" for layer in manifest.layers)
        formats = (
            f"input {numbers.input}, h {numbers.hidden}, c {numbers.cell}, pre-activation "
            f"{numbers.preactivation}, gates {numbers.gate}, weights {numbers.weight_bits} bits"
        )
        macs = parameters.lanes * parameters.macs
        return [
            ("network", f"{', '.join(layers)}; 1 step = 32 ms of speech"),
            ("formats (sBITS.FRACTION)", formats),
            (
                "calibrated on",
                f"the first {_seconds(self.calibration_steps)} of {_seconds(self.accuracy.steps)} of speech",
            ),
            ("lanes x macs", f"{parameters.lanes} x {parameters.macs} = {macs} multipliers"),
        ]

    def _exactness_rows(self) -> list[tuple[str, str]]:
        cycles, rtl = self.manifest.cycles, self.rtl
        found = " to ".join(str(value) for value in sorted({*rtl.intervals[:1], *rtl.intervals[-1:]}))
        return [
            (
                "cycles, warm step latency",
                f"predicted {cycles.step_latency_cycles}, measured {rtl.warm_latency}",
            ),
            (
                "cycles, first step latency",
                f"predicted {cycles.first_step_latency_cycles}, measured {rtl.first_step_latency}",
            ),
            ("cycles, steps back to back", f"predicted {cycles.step_interval_cycles}, measured {found}"),
            (
                f"RTL ({self.simulator}), {_seconds(len(rtl.y))}",
                f"{self.words_compared} words compared (every output; h and c once a second and at the "
                f"end), {self.words_different} different",
            ),
        ]

    def _accuracy_rows(self) -> list[tuple[str, str]]:
        golden = self.golden
        rows = (
            ("16-bit weights, golden", self.accuracy),
            ("16-bit weights, RTL", self.rtl_accuracy),
            ("8-bit weights, golden", self.narrow_accuracy),
        )
        accuracies = [
            (
                f"{name}, {_seconds(found.steps)}",
                f"|dp| <= {found.difference:.4f}, {found.flips} of {found.steps} decisions differ from float",
            )
            for name, found in rows
        ]
        saturated = f"{golden.saturated_inputs} inputs, {golden.saturated_cells} cell states"
        return [*accuracies, ("saturated (16-bit, golden)", saturated)]

    def _speed_rows(self) -> list[tuple[str, str]]:
        speed, peer = self.steps_per_second, self.peer
        interval_us = self.manifest.cycles.step_interval_cycles / CLOCK_MHZ
        return [
            (
                f"simulation ({self.simulator})",
                f"{speed:.3g} steps/s = {speed / STEPS_PER_SECOND:.3g} x real time",
            ),
            (
                "core, one step",
                f"{self.latency_us:.2f} us, every {interval_us:.2f} us, at {CLOCK_MHZ} MHz (assumed, "
                "not placed and routed; without the link to the host)",
            ),
            (
                "onnxruntime, the same step",
                f"p50 {peer.p50_us:.1f} us, p99 {peer.p99_us:.1f} us (1 thread of this machine, {peer.calls} "
                "calls, bound buffers)",
            ),
        ]

    def _convolution_rows(self) -> list[tuple[str, str]]:
        found = self.convolutions
        rtl, parameters = found.rtl, found.manifest.parameters
        latency, alone = (each.cycles.step_latency_cycles for each in (found.manifest, found.alone))
        every, every_alone = (each.cycles.step_interval_cycles for each in (found.manifest, found.alone))
        return [
            (
                "with the convolutions on the core",
                f"{parameters.lanes} x {parameters.macs} multipliers, 8-bit weights, words that are zero "
                f"skipped; {found.changed} of {found.steps} decisions differ from float (golden)",
            ),
            (
                f"RTL ({rtl.simulator}), {rtl.steps} steps",
                f"{found.words_compared} words compared (every output; h and c at the end), "
                f"{found.words_different} different; {rtl.cycles_predicted} cycles predicted, "
                f"{rtl.cycles_measured} measured",
            ),
            (
                "saves the host, one step",
                f"p50 {found.host_us:.1f} us of onnxruntime (1 thread of this machine, bound buffers)",
            ),
            (
                "costs the core, one step",
                f"{latency} cycles instead of {alone} without them on this array, every {every} instead of "
                f"{every_alone}: {(latency - alone) / CLOCK_MHZ:.2f} us more at {CLOCK_MHZ} MHz (assumed)",
            ),
            (
                "costs memory and link",
                f"{memory(found.manifest):.0f} KiB of weights instead of {memory(found.alone):.0f}; "
                f"{found.manifest.program.inputs} inputs a step instead of {found.alone.program.inputs}",
            ),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all figures of the table."""
        manifest, rtl = self.manifest, self.rtl
        numbers, cycles = manifest.numerics, manifest.cycles
        return {
            "passed": self.passed,
            "gates": [asdict(gate) for gate in self.gates],
            "layers": [
                {"kind": layer.kind, "inputs": layer.inputs, "outputs": layer.outputs}
                for layer in manifest.layers
            ],
            "formats": {
                "input": str(numbers.input),
                "h": str(numbers.hidden),
                "c": str(numbers.cell),
                "preactivation": str(numbers.preactivation),
                "gate": str(numbers.gate),
                "weight_bits": numbers.weight_bits,
            },
            "lanes": manifest.parameters.lanes,
            "macs": manifest.parameters.macs,
            "calibration_steps": self.calibration_steps,
            "cycles": {
                "warm_latency": {"predicted": cycles.step_latency_cycles, "measured": rtl.warm_latency},
                "first_step_latency": {
                    "predicted": cycles.first_step_latency_cycles,
                    "measured": rtl.first_step_latency,
                },
                "interval": {"predicted": cycles.step_interval_cycles, "measured": list(rtl.intervals)},
            },
            "words": {"compared": self.words_compared, "different": self.words_different},
            "accuracy": {
                "golden": asdict(self.accuracy),
                "rtl": asdict(self.rtl_accuracy),
                "golden_8_bit_weights": asdict(self.narrow_accuracy),
            },
            "saturated": {"inputs": self.golden.saturated_inputs, "cells": self.golden.saturated_cells},
            "simulation": {
                "simulator": self.simulator,
                "steps": len(rtl.y),
                "steps_per_second": self.steps_per_second,
                "times_real_time": self.steps_per_second / STEPS_PER_SECOND,
            },
            "assumed_clock_mhz": CLOCK_MHZ,
            "latency_us_at_assumed_clock": self.latency_us,
            "onnxruntime": asdict(self.peer),
            "convolutions": self.convolutions.as_json(),
        }


def _seconds(steps: int) -> str:
    return f"{steps / STEPS_PER_SECOND:.3g} s"
