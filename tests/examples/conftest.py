"""Makes the modules of the examples importable, and this folder's helper."""

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
for folder in (EXAMPLES, EXAMPLES / "silero_vad", Path(__file__).resolve().parent):
    sys.path.insert(0, str(folder))
