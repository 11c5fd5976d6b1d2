"""silero VAD from its published ONNX file to bit-exact RTL, on real speech, with one command.

    python examples/silero_vad/demo.py

fetches network and speech with pip, generates a core, runs the speech through its RTL in a
simulator and compares every word with the golden model. Does so again, for the first steps of the speech,
with the convolutions on the core, too. Prints one table and draws a picture.
Exits with 1 if a gate fails, with 2 if something that it needs is missing.
"""

import argparse
import json
import sys
from pathlib import Path

try:
    from convolutions import measure_convolutions
    from measure import compare_words, measure_accuracy, run_golden, run_rtl, whole_chunks
    from peer import time_peer
    from picture import draw_picture
    from results import Results
    from rich.console import Console
    from stages import Stages

    from rtlstm.gen.builds.generate import generate_build
    from rtlstm.gen.frontends import read_model
    from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
    from rtlstm.spec.errors import RtlstmError
    from rtlstm.spec.parameters import Parameters
    from rtlstm.zoo.silero import (
        STEPS_PER_SECOND,
        Recording,
        SileroFiles,
        fetch_silero,
        read_speech,
        run_float_model,
    )
except ModuleNotFoundError as missing:
    print(
        f"error: the demo needs {missing.name}; install it with 'pip install \".[demo]\"' in the "
        "project's folder",
        file=sys.stderr,
    )
    sys.exit(2)

CALIBRATION_SECONDS = 20.0
DEFAULT_SECONDS = {"verilator": 60.0, "icarus": 1.0}
"""Speech that goes through the RTL: all of it, unless the simulator is slow."""
SETTINGS = QuantizationSettings()
NARROW_SETTINGS = QuantizationSettings(weight_bits=8)
PARAMETERS = Parameters(lanes=4, macs=32)


def measure(
    files: SileroFiles, output: Path, simulator: str, seconds: float, stages: Stages
) -> tuple[Results, Recording]:
    """Generate the builds into folders of ``output``, run everything and return what was found."""
    stages("read the network", 0, 1)
    model = read_model(files.model, name="vad")
    tap = model.report.input
    stages("float model (onnxruntime)", 0, 1)
    recording = run_float_model(files.model, read_speech(files.speech), tap)
    features, reference = recording.features, recording.probability
    calibration = features[: round(CALIBRATION_SECONDS * STEPS_PER_SECOND)]

    manifest = generate_build(
        model,
        output / "vad",
        name="vad",
        settings=SETTINGS,
        parameters=PARAMETERS,
        calibration=calibration,
        progress=stages,
    )
    # The golden model gets its integers from the network itself, not from the build's weight
    # image: packing, image and loading are part of what the comparison proves.
    stages("golden model", 0, 2)
    golden = run_golden(quantise(model.network, SETTINGS, calibration), features)
    stages("golden model", 1, 2)
    narrow = run_golden(quantise(model.network, NARROW_SETTINGS, calibration), features)
    rtl = run_rtl(output / "vad", simulator, features[: whole_chunks(seconds, len(features))], stages)
    stages("time onnxruntime", 0, 1)
    peer = time_peer(files.model, recording, tap)
    # Verilator, whatever simulates the first build: Icarus takes minutes to load these weights.
    convolutions = measure_convolutions(
        files, recording, output / "convolutions", progress=stages.within("convolutions")
    )
    compared, different = compare_words(golden, rtl)
    results = Results(
        manifest=manifest,
        simulator=simulator,
        calibration_steps=len(calibration),
        golden=golden,
        rtl=rtl,
        words_compared=compared,
        words_different=different,
        accuracy=measure_accuracy(golden.probability, reference),
        rtl_accuracy=measure_accuracy(rtl.probability, reference),
        narrow_accuracy=measure_accuracy(narrow.probability, reference),
        peer=peer,
        convolutions=convolutions,
    )
    return results, recording


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="silero VAD as bit-exact RTL, on real speech")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/demo"), help="folder to write to")
    parser.add_argument("--simulator", choices=sorted(DEFAULT_SECONDS), default="verilator")
    parser.add_argument(
        "--seconds",
        type=float,
        help="speech to run through the RTL: more than 0, up to 60; 60 by default, 1 with icarus",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    chosen = parser.parse_args(arguments)
    if chosen.seconds is None:
        chosen.seconds = DEFAULT_SECONDS[chosen.simulator]
    if not 0 < chosen.seconds <= 60:
        parser.error(f"--seconds must be more than 0 and at most 60, not {chosen.seconds:g}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    chosen = parse_arguments(arguments)
    picture = chosen.output / "speech.png"
    try:
        with Stages() as stages:
            chosen.output.mkdir(parents=True, exist_ok=True)
            files = fetch_silero(stages)
            results, recording = measure(files, chosen.output, chosen.simulator, chosen.seconds, stages)
            stages("draw the picture", 0, 1)
            draw_picture(picture, recording.audio, recording.probability, results.rtl.probability)
    except (RtlstmError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    written = {"picture": picture, "report": chosen.output / "vad" / "report.html"}
    if chosen.json:
        print(json.dumps(results.as_json() | {name: str(path) for name, path in written.items()}, indent=1))
    else:
        console = Console(width=None if sys.stdout.isatty() else 110)
        console.print(results.table())
        for name, path in written.items():
            print(f"{name}: {path}")
    for gate in results.gates:
        if not gate.passed:
            print(f"failed: {gate.name} ({gate.found})", file=sys.stderr)
    return 0 if results.passed else 1


if __name__ == "__main__":
    sys.exit(main())
