"""Makes the modules of the silero VAD demo importable, if what they need is installed."""

import sys
from importlib.util import find_spec
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "silero_vad"

sys.path.insert(0, str(DEMO))

collect_ignore = []
if not all(find_spec(name) for name in ("matplotlib", "onnx", "onnxruntime")):
    collect_ignore.append("test_silero_demo.py")
