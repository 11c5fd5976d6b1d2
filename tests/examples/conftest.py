"""Makes the modules of the examples importable, and this folder's helper."""

import sys

from support.paths import EXAMPLES

for folder in (EXAMPLES, EXAMPLES / "silero_vad", EXAMPLES / "microphone"):
    sys.path.insert(0, str(folder))
