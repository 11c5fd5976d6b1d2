"""Several networks in one core: which one a stream runs, bit by bit and cycle by cycle."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from support.cell_networks import product_graphs
from support.loadable_builds import Build, build_for, make_device, stacked
from support.quick import quick
from support.random_builds import random_parameters
from support.resident_checks import check_steps

from rtlstm import Accelerator, ConfigurationError, DeviceError, InputError, Network, Parameters, Stream
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.golden import Golden
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.program.schedule import step_cycles

pytestmark = pytest.mark.rtl

PARAMETERS = Parameters(lanes=8, macs=4, streams=2, beat_in=2)


@pytest.fixture(scope="module")
def device() -> Build:
    return make_device(
        stacked(3, 5, dense=((2, "sigmoid"),)), PARAMETERS, networks=2, operations=40, weight_rows=100
    )


@pytest.fixture(scope="module")
def other(device: Build) -> Build:
    return build_for(stacked(7, 4, 9, dense=((6, "relu"), (3, "identity")), seed=1), device)


@pytest.fixture(scope="module")
def folders(device: Build, other: Build, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("builds")
    verilog = core_to_verilog(device.manifest)
    return [build.save(folder / name, verilog) for name, build in (("device", device), ("other", other))]


@pytest.mark.parametrize("backend", quick(["golden", "icarus", "verilator"], "golden", "icarus"))
def test_streams_of_two_networks(backend: str, device: Build, other: Build, folders: list[Path]) -> None:
    """Steps in turn: each is its own network's, and takes the time of a first step, but no longer."""
    builds = device, other
    with Accelerator.open(folders[0], backend, verify=backend != "icarus") as accelerator:
        speech = accelerator.load(folders[1], verify=backend != "icarus", network=1)
        streams = accelerator.stream(), accelerator.stream(network=1)
        x = [build.inputs(6, seed)[:, 0] for seed, build in enumerate(builds)]
        found: list[list[IntArray]] = [[], []]
        for step in range(6):
            for network, stream in enumerate(streams):
                found[network].append(stream.step(x[network][step]))
                check_latency(speech if network else accelerator, first=step == 0, changed=step + network > 0)
        for network, build in enumerate(builds):
            np.testing.assert_array_equal(
                found[network], Golden(build.network).run(x[network][:, None]).y[:, 0]
            )
        assert speech.manifest.build_hash == other.manifest.build_hash


def check_latency(accelerator: Accelerator, *, first: bool, changed: bool) -> None:
    """Compare a step's cycles with the schedule's; it began after the one before had ended."""
    manifest = accelerator.manifest
    cycles = step_cycles(manifest.program, manifest.parameters, [0], [] if first else [0], changed=changed)
    predicted = cycles[0][1] - cycles[0][0]
    assert predicted <= manifest.cycles.first_step_latency_cycles
    assert accelerator.measured_latency_cycles == predicted
    if isinstance(transport := accelerator.device.transport, SimulatedDevice):
        assert transport.last_cycles.latency.tolist() == [predicted]


def steps_of(stream: Stream, x: IntArray) -> IntArray:
    return np.array([stream.step(each) for each in x])


@pytest.mark.parametrize("backend", quick(["golden", "icarus"], "golden"))
def test_a_network_is_loaded_while_another_runs(
    backend: str, device: Build, other: Build, folders: list[Path]
) -> None:
    """Steps between the parts of the image, again and again: each has the bits of an undisturbed one."""
    x = device.inputs(200, 3)[:, 0]
    expected = Golden(device.network).run(x[:, None]).y[:, 0]
    found: list[IntArray] = []
    streams: list[Stream] = []

    def step(*_: object) -> None:
        found.extend(stream.step(x[len(found)]) for stream in streams)

    with Accelerator.open(folders[0], backend, verify=False, progress=step) as accelerator:
        streams.append(accelerator.stream())
        for _ in range(2):
            speech = accelerator.load(folders[1], verify=backend == "golden", network=1)
        inputs = other.inputs(5, 4)[:, 0]
        with speech.stream() as second:
            np.testing.assert_array_equal(
                steps_of(second, inputs), Golden(other.network).run(inputs[:, None]).y[:, 0]
            )
        assert len(found) > 20 and not streams[0].closed
        np.testing.assert_array_equal(found, expected[: len(found)])


def test_wrong_and_missing_numbers_are_refused(device: Build, folders: list[Path]) -> None:
    """One error each; the network that is there goes on."""
    x = device.inputs(5, 1)[:, 0]
    expected = Golden(device.network).run(x[:, None]).y[:, 0]
    with Accelerator.open(folders[0]) as accelerator, accelerator.stream() as stream:
        before = steps_of(stream, x[:2])
        with pytest.raises(ConfigurationError, match="holds 2 networks, 0 to 1, and network 2 was named"):
            accelerator.load(folders[1], network=2)
        with pytest.raises(ConfigurationError, match="16 was named; generate it for more, 16 at most$"):
            accelerator.stream(network=16)
        with pytest.raises(ConfigurationError, match="at least 0, not -1"):
            accelerator.load(folders[1], network=-1)
        with pytest.raises(InputError, match="whole number, not '1'"):
            accelerator.stream(network="1")  # type: ignore[arg-type]
        with pytest.raises(DeviceError, match="network 1 is not loaded, and the device holds 0"):
            accelerator.stream(network=1)
        with pytest.raises(DeviceError, match="must hold network 1, but does not"):
            accelerator.device.transport.exchange([1 << 10], x[:1])
        for wrong in (1 << 13, 2, 1 << 14):
            with pytest.raises(InputError, match="must be within"):
                accelerator.device.transport.exchange([wrong], x[:1])
        with pytest.raises(InputError, match="of one network"):
            accelerator.device.transport.exchange([1 << 10, 0], x[:2])
        # The way out of the message.
        accelerator.load(folders[1], network=1)
        accelerator.stream(network=1).close()
        np.testing.assert_array_equal([*before, *steps_of(stream, x[2:])], expected)
        stream.close()
        accelerator.unload(0)
        accelerator.stream(network=1).close()
        with pytest.raises(DeviceError, match="network 0 was unloaded"):
            accelerator.stream()


def test_a_load_that_ends_halfway(device: Build, other: Build, folders: list[Path]) -> None:
    """Steps of that network are refused until it is loaded again; the other one's go on."""
    x = device.inputs(4, 1)[:, 0]
    expected = Golden(device.network).run(x[:, None]).y[:, 0]
    with Accelerator.open(folders[0]) as accelerator, accelerator.stream() as stream:
        speech = accelerator.load(folders[1], network=1)
        first = steps_of(stream, x[:2])

        def interrupt(what: str, done: int, total: int) -> None:
            if done == 3:
                raise KeyboardInterrupt

        speech._progress = interrupt
        with pytest.raises(KeyboardInterrupt):
            speech.load(folders[1])
        speech._progress = None
        with speech.stream() as second, pytest.raises(DeviceError, match="loading it has failed"):
            second.step(other.inputs(1)[0, 0])
        with pytest.raises(DeviceError, match="must hold network 1, but does not"):
            accelerator.device.transport.adopt(other.manifest)
            accelerator.device.transport.exchange([1 << 10], other.inputs(1)[:1, 0])
        accelerator.device.transport.adopt(device.manifest)
        np.testing.assert_array_equal([*first, *steps_of(stream, x[2:])], expected)
        speech.load(folders[1])
        y, _ = speech.run(inputs := other.inputs(3))
        np.testing.assert_array_equal(y, Golden(other.network).run(inputs).y)


def test_room_is_needed_and_given_back(
    device: Build, other: Build, folders: list[Path], tmp_path: Path
) -> None:
    """A network that has no room beside another is refused; unloaded, the other leaves it room."""
    large = build_for(stacked(19, 12, 12, seed=5), device)
    folder = large.save(tmp_path / "large")
    with Accelerator.open(folders[0]) as accelerator:
        speech = accelerator.load(folders[1], network=1)
        with pytest.raises(ConfigurationError, match="weight-rows, of which .* are free side by side"):
            accelerator.load(folder)
        check(accelerator, device)
        with accelerator.stream(network=1), pytest.raises(DeviceError, match="but 1 are open"):
            accelerator.unload(1)
        accelerator.unload(1)
        with pytest.raises(DeviceError, match="network 1 is not loaded, and the device holds 0"):
            accelerator.unload(1)
        for use in (partial(speech.run, other.inputs(4, 2)), speech.stream):
            with pytest.raises(DeviceError, match="use the accelerator that load"):
                use()
        check(accelerator.load(folder), large)
        accelerator.unload(0)
        check(accelerator.load(folders[1], network=1), other)


def check(accelerator: Accelerator, build: Build) -> None:
    """Run sequences on all streams."""
    x = build.inputs(4, 2)
    np.testing.assert_array_equal(accelerator.run(x)[0], Golden(build.network).run(x).y)


@pytest.mark.parametrize("backend", quick(["golden", "icarus"], "golden", "icarus"))
def test_a_stream_that_changes_its_network_begins_anew(
    backend: str, device: Build, other: Build, folders: list[Path]
) -> None:
    """Whatever is at the ports: no step finds another network's state."""
    builds = device, other
    with Accelerator.open(folders[0], backend, verify=False) as accelerator:
        accelerator.load(folders[1], verify=False, network=1)
        transport = accelerator.device.transport
        for turn in range(3):
            for network, build in enumerate(builds):
                transport.adopt(build.manifest)
                x = build.inputs(3, turn)[:, 0]
                y = transport.exchange(np.full(3, network << 10), x)
                np.testing.assert_array_equal(y, Golden(build.network).run(x[:, None]).y[:, 0])


def test_one_network_has_one_number(tmp_path: Path) -> None:
    """Builds that do not ask for more are refused by name; the way out is a device with room."""
    single = make_device(stacked(3, 5), PARAMETERS)
    folder = single.save(tmp_path / "single")
    with Accelerator.open(folder) as accelerator:
        assert accelerator.load(folder, network=0) is accelerator
        with pytest.raises(ConfigurationError, match="holds 1 network, .*'networks': 2"):
            accelerator.load(folder, network=1)
    assert "networks" not in single.manifest.to_json()


def test_no_networks_are_refused_by_that_name_alone(device: Build) -> None:
    """Sizes that follow from their number are not named beside it."""
    with pytest.raises(
        ConfigurationError,
        match=r"^a capacity is out of range: networks: must be greater than or equal to 1, not 0$",
    ):
        device.manifest.needs.capacity(networks=0)


def alike(rng: np.random.Generator) -> list[Network]:
    """Three networks with inputs and outputs of the same number: recurrent ones, deep ones, dense layers."""
    inputs, outputs = int(rng.choice([1, 3, 6])), int(rng.choice([1, 2, 5]))
    units = [int(size) for size in rng.integers(1, 9, 2)]
    kinds = [
        stacked(inputs, units[0], dense=((outputs, "identity"),), seed=1),
        stacked(inputs, *units, dense=((4, "relu"), (outputs, "tanh")), seed=2),
        stacked(inputs, dense=((units[0], "relu"), (outputs, "sigmoid")), seed=3),
        stacked(inputs, dense=((outputs, "identity"),), seed=4),
        stacked(inputs, outputs, seed=5),
    ]
    # Formats are those of the first one, which is recurrent.
    return [kinds[int(rng.integers(0, 2))], *(kinds[int(each)] for each in rng.integers(0, 5, 2))]


@pytest.mark.parametrize(("seed", "count"), quick([*((each, 3) for each in range(1, 13)), (9, 8)], (3, 3)))
def test_steps_of_several_networks_follow_each_other(seed: int, count: int, tmp_path: Path) -> None:
    """Back to back, streams keep their network or change it: bits and cycles of each step."""
    rng = np.random.default_rng(seed)
    networks = alike(rng)
    sizes = {"operations": 60, "weight_rows": 1200, "shift_rows": 300, "bias_rows": 300, "partial_rows": 80}
    parameters = random_parameters(rng).replace(streams=count)
    device = make_device(networks[0], parameters, networks=3, vector_words=80, cell_rows=80, **sizes)
    builds = [device, *(build_for(network, device) for network in networks[1:])]
    check_steps(builds, rng, seed, "icarus" if seed == 3 else "verilator", tmp_path)


@pytest.mark.parametrize("decide", quick([None, "argmax"], "argmax"))
def test_steps_of_several_graphs_follow_each_other(decide: Literal["argmax"] | None, tmp_path: Path) -> None:
    """Networks of products of several results and of layers side by side, which may decide, in turn."""
    parameters = Parameters(lanes=8, macs=4, streams=2, beat_in=2, decide=decide)
    first, *others = product_graphs()
    device = make_device(first, parameters, networks=3, operations=72, weight_rows=600)
    builds = [device, *(build_for(network, device) for network in others)]
    check_steps(builds, np.random.default_rng(4), 4, "icarus", tmp_path)


def pair(*decoder: int, dense: tuple[tuple[int, str], ...] = ((9, "identity"),), **more: Any) -> list[Build]:
    """An encoder that is a device of two networks, and a decoder for it: LSTMs of these sizes."""
    parameters = PARAMETERS.replace(**more)
    encoder = make_device(stacked(3, 6, seed=5), parameters, networks=2, operations=40, weight_rows=100)
    return [encoder, build_for(stacked(*decoder, dense=dense, seed=2), encoder)]


@pytest.mark.parametrize("backend", quick(["golden", "icarus", "verilator"], "golden", "icarus"))
@pytest.mark.parametrize("decide", quick([None, "argmax"], "argmax"))
def test_a_decoder_goes_on_from_an_encoder(
    backend: str, decide: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state stays where it is: bits and cycles of each step, in whichever half the encoder's h is."""
    encoder, decoder = builds = pair(4, 6, decide=decide)
    verilog = core_to_verilog(encoder.manifest)
    folders = [build.save(tmp_path / str(number), verilog) for number, build in enumerate(builds)]
    with Accelerator.open(folders[0], backend, verify=False) as accelerator:
        second = accelerator.load(folders[1], verify=False, network=1)
        for device in (accelerator.device, second.device):
            monkeypatch.setattr(device, "write_state", None)
            monkeypatch.setattr(device, "read_state", None)
        for steps in (4, 3, 0):
            x, z = encoder.inputs(4, steps)[:steps, :1], decoder.inputs(5, steps)[:, :1]
            first = accelerator.stream()
            state = None
            if steps:
                first.steps(x[:, 0])
                result = Golden(encoder.network).run(x)
                state = result.h, result.c
            with accelerator.stream(network=1, after=first) as stream:
                assert first.closed and stream.number == first.number
                wanted = decoder.manifest.emitted(Golden(decoder.network).run(z, state).y)
                for step in range(5):
                    assert np.array_equal(np.atleast_1d(stream.step(z[step, 0])), wanted[step, 0])
                    check_latency(second, first=step == 0, changed=step == 0 and steps > 0)


def test_a_state_that_stands_elsewhere_is_moved(tmp_path: Path) -> None:
    """The encoder's dense layer has h in other rows. States of other sizes or devices are refused."""
    layers = stacked(3, dense=((4, "relu"),)).layers + stacked(4, 6, seed=2).layers
    encoder = make_device(Network(layers=layers), PARAMETERS, networks=2, operations=40, weight_rows=100)
    decoder, other = (build_for(stacked(4, *units, seed=3), encoder) for units in ([6], [6, 6]))
    folders = [each.save(tmp_path / str(number)) for number, each in enumerate((encoder, decoder, other))]
    x, z = encoder.inputs(4)[:, :1], decoder.inputs(5)[:, :1]
    result = Golden(encoder.network).run(x)
    with Accelerator.open(folders[0]) as accelerator:
        accelerator.load(folders[1], network=1)
        first = accelerator.stream()
        first.steps(x[:, 0])
        with accelerator.stream(network=1, after=first) as stream:
            wanted = Golden(decoder.network).run(z, (result.h, result.c)).y[:, 0]
            np.testing.assert_array_equal(stream.steps(z[:, 0]), wanted)
        accelerator.load(folders[2], network=1)
        with (
            accelerator.stream() as first,
            pytest.raises(InputError, match=r"\(6, 6\) units .* \(6,\) units"),
        ):
            accelerator.stream(network=1, after=first)
        with Accelerator.open(folders[0]) as apart, apart.stream() as first, accelerator.stream() as stream:
            first.steps(x[:, 0])
            with pytest.raises(InputError, match="is another's; .* `stream.state = other.state`"):
                accelerator.stream(after=first)
            with pytest.raises(InputError, match="must be a stream of this device, not 3"):
                accelerator.stream(after=3)  # type: ignore[arg-type]
            stream.state = first.state
            np.testing.assert_array_equal(stream.state_integers[0], first.state_integers[0])
