"""An existing device that a network is trained for: its formats, and the weights that it keeps."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rtlstm.gen.builds.hardware import device_hardware
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.packing import map_words
from rtlstm.train.pruning import Masks


@dataclass(frozen=True)
class ExistingDevice:
    """A build folder, whose hardware takes the trained weights."""

    folder: Path
    manifest: Manifest

    @property
    def hardware(self) -> TargetHardware:
        """Formats and, if its program is fixed, layers."""
        return device_hardware(self.manifest)

    @property
    def skips(self) -> bool:
        """Whether it skips words, so that the weights in them must be zero."""
        return bool(self.manifest.program.kept)

    def kept_weights(self) -> Masks:
        """Return which weights of each layer a device with a fixed program has words for, where it skips
        some: of the product with h (True) and of that with the layer's input."""
        mine = self.manifest
        whole = Manifest.create(mine.name, mine.layers, mine.parameters, mine.numerics, mine.passes)
        found: Masks = [{} for _ in mine.layers]
        for (layer, recurrent), groups in mine.program.kept.items():
            words = next(each for each in map_words(whole, layer) if each.recurrent == recurrent)
            there = np.zeros((words.groups, words.columns), dtype=bool)
            for group, columns in enumerate(groups):
                there[group, list(columns)] = True
            found[layer][recurrent] = there.ravel()[words.numbers]
        return found
