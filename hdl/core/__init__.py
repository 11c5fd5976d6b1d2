"""The core: array, units, sequencer, memories and ports."""
