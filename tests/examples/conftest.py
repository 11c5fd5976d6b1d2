"""Makes the modules of the silero VAD demo importable, and this folder's helper."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "silero_vad"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
