"""A wake word's network and one of speech on a ULX3S, through its serial port."""

from pathlib import Path

import numpy as np
import pytest
from support.loadable_builds import stacked

from rtlstm import Accelerator, DeviceError, Manifest, QuantizationSettings
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.simulated_board import BoardPort
from rtlstm.spec.link import NUMBER_MASK
from rtlstm.spec.parameters import NETWORK_BIT, Parameters

pytestmark = [pytest.mark.rtl, pytest.mark.slow]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wake word's device with room for a second network, and the network of speech for it."""
    folder = tmp_path_factory.mktemp("networks")
    wake, speech = stacked(10, 8, dense=((1, "sigmoid"),)), stacked(13, 12, dense=((6, "identity"),), seed=1)
    generate_build(
        wake,
        folder / "wake",
        settings=QuantizationSettings(weight_bits=8, data_bits=8),
        parameters=Parameters.for_family("ecp5", lanes=4, macs=4, streams=2),
        capacities={"networks": 2, "inputs": 13, "outputs": 6, "weight_rows": 256, "shift_rows": 64}
        | {"bias_rows": 32, "partial_rows": 12, "vector_words": 6, "cell_rows": 12},
    )
    generate_build(speech, folder / "speech", device=folder / "wake")
    return folder / "wake", folder / "speech"


def test_a_wake_word_and_speech_share_a_board(folders: tuple[Path, Path]) -> None:
    """The wake word's stream goes on, whatever is asked of the other network before and while it is there."""
    native = OnBoard.create(folders[0], "ulx3s-85f", 50.0).simulate()
    timeouts = LinkTimeouts(retry=0.005, least_retry=0.001, most_retry=0.01)
    manifest = Manifest.load(folders[0])
    rng = np.random.default_rng(1)
    sound, words = rng.integers(-60, 60, (8, 10)), rng.integers(-60, 60, (4, 13))
    with Accelerator.open(folders[0]) as golden:
        expected = golden.run(sound)[0], golden.load(folders[1]).run(words)[0]
    with Accelerator(LinkTransport(BoardPort(native), manifest, timeouts, seed=1), manifest) as accelerator:
        accelerator.load(folders[0], verify=False)
        with accelerator.stream() as wake:
            heard = [wake.step(sound[0])]
            # The number of a network that is not loaded: the device refuses the step, and goes on.
            transport = accelerator.device.transport
            with pytest.raises(DeviceError, match="does not hold its network"):
                transport.exchange([1 << NETWORK_BIT], sound[:1])
            heard.append(wake.step(sound[1]))
            speech = accelerator.load(folders[1], verify=False, network=1)
            heard.append(wake.step(sound[2]))
            with accelerator.stream(network=1) as talk:
                assert NUMBER_MASK >> NETWORK_BIT == 15
                said = []
                for index in range(4):
                    said.append(talk.step(words[index]))
                    heard.append(wake.step(sound[3 + index]))
                    first = speech.manifest.cycles.first_step_latency_cycles
                    assert accelerator.measured_latency_cycles <= max(
                        first, manifest.cycles.first_step_latency_cycles
                    )
            heard.append(wake.step(sound[7]))
    np.testing.assert_array_equal(heard, expected[0])
    np.testing.assert_array_equal(said, expected[1])
    native.close()
