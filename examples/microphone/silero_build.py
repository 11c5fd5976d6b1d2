"""silero VAD with its convolutions on a core that leaves room for the transform: the build, and sound."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parent.parent / "silero_vad"))

from convolutions import BINS, CALIBRATION_SECONDS, FRAMES, SETTINGS, magnitudes, read_all
from stages import Stages

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.hardware import ArrayRequest
from rtlstm.gen.frontends import read_model
from rtlstm.spec.layout import join_frames
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.zoo.silero import (
    RATE,
    STEPS_PER_SECOND,
    SileroFiles,
    chunk_audio,
    fetch_silero,
    read_speech,
    run_float_model,
)

__all__ = ["Stages", "build_silero", "prepare"]

ARRAY = ArrayRequest(family="ecp5", lanes=8, macs=9, skip_zeros=True)
"""Half the multipliers of the array in convolutions.py, which has nearly all of the device's."""


def build_silero(files: SileroFiles, folder: Path, progress: Progress | None = None) -> Manifest:
    """Generate the build from the magnitudes on, calibrated with the first 20 s of silero's recording."""
    audio = read_speech(files.speech)
    given, _ = magnitudes(onnx.load(str(files.model)), chunk_audio(audio))
    frames = given.transpose(0, 2, 1).reshape(-1, 1, BINS).astype(np.float64)
    model = read_all(files.model)
    return generate_build(
        model,
        folder,
        name="vad",
        settings=SETTINGS,
        array=ARRAY,
        calibration=join_frames("x", frames, 0, FRAMES)[: round(CALIBRATION_SECONDS * STEPS_PER_SECOND)],
        batch_first=False,
        progress=progress,
    )


def prepare(
    folder: Path, sound: Path | None, seconds: float, progress: Progress | None = None
) -> tuple[Manifest, Any, Any]:
    """Return the build, the sound, samples within -1 and 1, and onnxruntime's probability of each step.

    The build is generated into ``folder``. The sound ends after so many seconds.
    """
    files = fetch_silero(progress)
    audio = read_speech(sound or files.speech)[: round(seconds * RATE)]
    tap = read_model(files.model).report.input
    probability = run_float_model(files.model, audio, tap).probability
    return build_silero(files, folder, progress), audio, probability
