"""Devices that decide: the number of the largest output, the first of equal ones, in place of the outputs."""

import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Fragment
from amaranth.sim import Simulator
from support.lazy import nets, onnx_files, torch
from support.netlist import netlist_build
from support.no_logic import no_logic
from support.quick import quick
from support.random_builds import random_case
from support.small_builds import NARROW, normal_lstm
from support.step_checks import check_device

import rtlstm
from rtlstm import Bidirectional, ConfigurationError, Dense, InputError, Manifest, Network, Parameters
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.core.decision import Decision, Ranking
from rtlstm.hdl.core.probabilities import Probabilities
from rtlstm.host import Accelerator, SharedAccelerator, softmax, top_k
from rtlstm.sim.amaranth_platform import AMARANTH
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.port_server import PortServer
from rtlstm.spec.layout import OutputPart
from rtlstm.spec.softmax import Softmax


def dense(inputs: int, outputs: int, name: str = "fc", **more: Any) -> Dense:
    weight = np.random.default_rng(outputs).normal(size=(outputs, inputs))
    return Dense(name=name, weight=weight, bias=np.linspace(-0.1, 0.1, outputs), **more)


def lstm(inputs: int, units: int, name: str = "lstm", **more: Any) -> Any:
    return normal_lstm(np.random.default_rng(units), inputs, units, name=name, **more)


def both(inputs: int, units: int) -> Bidirectional:
    backward = lstm(inputs, units, "backward", reverse=True)
    return Bidirectional(forward=lstm(inputs, units, "forward"), backward=backward)


def network(*layers: Any) -> Network:
    return Network(name="n", layers=layers)


CASES: dict[str, tuple[Network, dict[str, Any]]] = {
    "dense behind an LSTM": (network(lstm(3, 5), dense(5, 11)), {"lanes": 4, "macs": 2, "streams": 2}),
    "an LSTM's units": (network(lstm(3, 7)), {"lanes": 8, "macs": 4, "streams": 2}),
    "dense alone": (network(dense(3, 7)), {"lanes": 4, "macs": 4, "streams": 2}),
    "dense alone, a word": (network(dense(3, 3)), {"lanes": 4, "macs": 4, "streams": 2}),
    "dense alone, two": (
        network(dense(3, 7, "a", activation="tanh"), dense(7, 9)),
        {"lanes": 16, "macs": 4, "gate_units": 4, "beat_out": 8, "streams": 2},
    ),
    "three units": (
        network(lstm(3, 5), dense(5, 14)),
        {"lanes": 12, "macs": 3, "gate_units": 3, "beat_out": 3, "streams": 4},
    ),
    "units over words": (
        network(lstm(3, 5), dense(5, 13)),
        {"lanes": 32, "macs": 4, "gate_units": 8, "beat_out": 8, "streams": 2},
    ),
    "both directions": (
        network(both(3, 4), dense(8, 5)),
        {"lanes": 8, "macs": 4, "gate_units": 2, "beat_out": 2, "max_steps": 15},
    ),
    "a direction in reverse": (
        network(lstm(3, 5, reverse=True)),
        {"lanes": 8, "macs": 4, "gate_units": 2, "beat_out": 2, "max_steps": 15},
    ),
    "ecp5": (network(lstm(3, 5), dense(5, 6)), {"family": "ecp5", "lanes": 8, "macs": 4}),
}


DECIDED = {
    **{case: (case, "argmax") for case in CASES},
    **{
        f"{decide} of {case}": (case, decide)
        for case, decide in {
            "dense behind an LSTM": "top5",
            "dense alone": "top3",
            "dense alone, a word": "top1",
            "dense alone, two": "top4",
            "three units": "top7",
            "units over words": "top6",
            "both directions": "top2",
            "a direction in reverse": "top2",
            "ecp5": "top3",
        }.items()
    },
    **{f"softmax of {case}": (case, "softmax") for case in CASES},
}
"""Cases, and what is decided of them."""


def build(folder: Path, case: str, decide: str | None = "argmax", **more: Any) -> Manifest:
    """Make one of the builds, that decides or not."""
    net, sizes = CASES[case]
    family = sizes.get("family", "generic")
    its = {key: size for key, size in sizes.items() if key != "family"}
    parameters = Parameters.for_family(family, **its, **more, decide=decide)
    return generate_build(net, folder, parameters=parameters, settings=NARROW)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build that decides."""
    folder = tmp_path_factory.mktemp("decide") / "build"
    build(folder, "dense behind an LSTM")
    return folder


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same build without a decision."""
    folder = tmp_path_factory.mktemp("scores") / "build"
    with no_logic():
        build(folder, "dense behind an LSTM", None)
    return folder


DRAWN = (2, 3, 4, 5, 7, 8)
"""Sizes of drawn layers: the numbers of their outputs fit in 4 bits."""
X = np.random.default_rng(0).normal(size=(15, 4, 3)).astype(np.float32)
LENGTHS = np.array([15, 9, 1, 4])


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("decided", "simulator"),
    quick(
        product(DECIDED, ("icarus", "verilator")),
        ("three units", "verilator"),
        ("top5 of dense behind an LSTM", "icarus"),
        ("softmax of ecp5", "icarus"),
    ),
)
def test_the_rtl_decides_as_the_golden_model(decided: str, simulator: Any, tmp_path: Path) -> None:
    """Every decision and every cycle; the decision is that of the outputs of the build without."""
    case, decide = DECIDED[decided]
    manifest = build(tmp_path / "build", case, decide)
    with no_logic():
        plain = build(tmp_path / "plain", case, None)
    late = manifest.decision_cycles
    assert manifest.cycles.step_latency_cycles == plain.cycles.step_latency_cycles + late
    assert manifest.cycles.step_interval_cycles == plain.cycles.step_interval_cycles
    found, y = compare(tmp_path / "build", X, LENGTHS, simulator, verify=False)
    assert found.passed, found.first_difference
    wanted, _ = rtlstm.Build(tmp_path / "plain").run(X, LENGTHS)
    valid = np.arange(15)[:, None] < LENGTHS
    if decide == "softmax":
        assert np.abs(y - softmax(wanted))[valid].max() <= manifest.output.step and not y[~valid].any()
        assert manifest.output.fraction == manifest.output.bits - 1
        return
    if best := manifest.parameters.best:
        numbers, its_scores = top_k(wanted, best)
        assert np.array_equal(y["score"], its_scores) and y["score"].dtype == np.float32
        assert not y["number"][~valid].any()
        y, its_first = y["number"], numbers
    else:
        its_first = wanted.argmax(axis=-1)
    assert np.array_equal(y[valid], its_first[valid]) and not y[~valid].any()
    assert len(np.unique(y[valid])) > 1


@pytest.mark.parametrize(
    ("units", "decide", "classes"),
    [
        *((units, "argmax", 13) for units in (1, 2, 3, 4, 7)),
        *((1, "top5", 13), (3, "top6", 13), (4, "top1", 13), (2, "top4", 8), (3, "top1", 2), (4, "top2", 5)),
        *((units, "softmax", 13) for units in (1, 3, 4)),
        *((1, "softmax", 2), (2, "softmax", 5), (3, "softmax", 3), (4, "softmax", 3)),
    ],
)
def test_any_results_are_decided(units: int, decide: str, classes: int) -> None:
    """Steps of random results, many of them equal, with pauses and results of other layers between.

    Of few results, which fill a beat or less, steps follow each other without a pause.
    """
    lanes = 4 * units
    parameters = Parameters(
        lanes=lanes, macs=units, gate_units=units, beat_out=units, streams=4, decide=decide
    )
    net, rng = network(lstm(3, 5), dense(5, classes)), np.random.default_rng(units)
    manifest = Manifest.of("n", quantise(net, NARROW), parameters)
    part = {"argmax": Decision, "softmax": Probabilities}.get(decide, Ranking)(manifest)
    bits = manifest.numerics.output_bits
    steps = [rng.integers(-3, 4, classes) - 10 * (index % 5 == 0) for index in range(30)]
    steps[3] = np.array([-(1 << bits - 1)] * (classes - 1) + [(1 << bits - 1) - 1])
    steps[4] = np.full(classes, -(1 << bits - 1))
    steps[5:15] = rng.integers(-(1 << bits - 1), 1 << bits - 1, (10, classes))
    wanted = [(index % 4, manifest.emitted(step).tolist()) for index, step in enumerate(steps)]
    found: list[tuple[int, list[int], int]] = []
    beats: list[int] = []
    ends: list[int] = []

    async def drive(context: Any) -> None:
        for index, step in enumerate(steps):
            for first in range(0, classes, units):
                beat = step[first : first + units]
                while classes == 13 and rng.random() < 0.3:
                    # Nothing, or results that are not emitted.
                    context.set(part.values, int.from_bytes(rng.bytes(units * bits // 8)))
                    context.set(part.result.valid, int(rng.random() < 0.5))
                    context.set(part.result.emit, 0)
                    context.set(part.result.last, int(rng.random() < 0.5))
                    await context.tick()
                # Past the end of a beat stands anything.
                words = [*beat.tolist(), *[(1 << bits - 1) - 1] * (units - len(beat))]
                mask = (1 << bits) - 1
                context.set(part.values, sum((word & mask) << bits * at for at, word in enumerate(words)))
                context.set(part.result.mask, (1 << len(beat)) - 1)
                context.set(part.result.valid, 1)
                context.set(part.result.emit, 1)
                context.set(part.result.last, int(first + units >= classes))
                context.set(part.result.stream, index % 4)
                await context.tick()
            ends.append(len(cycle))
            context.set(part.result.valid, 0)
        await context.tick().repeat(manifest.decision_cycles + 2)

    cycle: list[int] = []

    async def watch(context: Any) -> None:
        async for _, _, valid, last, mask, stream, number in context.tick().sample(
            part.decided.valid, part.decided.last, part.decided.mask, part.decided.stream, part.number
        ):
            cycle.append(0)
            if valid:
                signed = (number >> bits * at & (1 << bits) - 1 for at in range(mask.bit_length()))
                beats.extend((word ^ 1 << bits - 1) - (1 << bits - 1) for word in signed)
            if valid and last:
                found.append((stream, beats[:], len(cycle) - 1))
                beats.clear()

    simulator = Simulator(Fragment.get(part, AMARANTH))
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.add_testbench(watch, background=True)
    simulator.run()
    assert [each[:2] for each in found] == wanted
    assert {at - end for (*_, at), end in zip(found, ends, strict=True)} == {manifest.decision_cycles}


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("decide", ["argmax", "softmax", "top"])
@pytest.mark.parametrize("seed", range(4))
def test_drawn_builds_decide(seed: int, decide: str, backend: str, tmp_path: Path) -> None:
    """Networks, arrays and pipelines as drawn elsewhere, with stalls and steps without output."""
    case = random_case(1000 + seed, sizes=DRAWN, steps=8)
    if decide == "top":
        decide = f"top{case.network.shapes[-1].outputs // 2}"
    manifest = Manifest.of("n", case.network, case.manifest.parameters.replace(decide=decide))
    check_device(replace(case, manifest=manifest), tmp_path, backend)


def test_the_driver_gives_numbers(folder: Path, scores: Path) -> None:
    from rtlstm.host.torch import LSTM

    wanted, (h, c) = rtlstm.Build(scores).run(X)
    wanted = wanted.argmax(axis=-1)
    assert rtlstm.Build(folder).outputs == 1
    with Accelerator.open(folder) as accelerator:
        y, (found_h, found_c) = accelerator.run(X)
        assert y.dtype == np.int64 and np.array_equal(y, wanted)
        assert np.array_equal(h, found_h) and np.array_equal(c, found_c)
        assert np.array_equal(accelerator.run(X[:, 0])[0], wanted[:, 0])
        assert np.array_equal(accelerator.run(X, outputs="last")[0], wanted[-1])
        assert accelerator.run(X, outputs="none")[0].shape == (0, 4)
        assert np.array_equal(accelerator.run(X.swapaxes(0, 1), batch_first=True)[0], wanted.T)
        lengths = accelerator.run(X[::-1], LENGTHS, pad="front")[0]
        assert lengths.shape == (15, 4) and not lengths[0, 1:].any()
        assert accelerator.saturated_outputs == 0
        with accelerator.stream() as one, accelerator.stream() as other:
            assert int(one.step(X[0, 0])) == wanted[0, 0] and one.step(X[1, 0]).shape == ()
            assert np.array_equal(other.steps(X[:5, 1]), wanted[:5, 1])
            assert np.array_equal(
                accelerator.step_many([one, other], [X[2, 0], X[5, 1]]), [wanted[2, 0], wanted[5, 1]]
            )
        with pytest.raises(
            InputError, match="y holds numbers of outputs, which have no parts; take y itself"
        ):
            accelerator.parts(y)
        with pytest.raises(ConfigurationError, match="which is the largest; .*without `decide`"):
            LSTM(accelerator)
    with SharedAccelerator.open(folder) as shared, shared.stream() as stream:
        assert int(stream.step(X[0, 0])) == wanted[0, 0]
        assert np.array_equal(stream.steps(X[1:, 0]), wanted[1:, 0])


@pytest.mark.parametrize(("bits", "classes"), [(10, 2), (6, 3), (4, 4)])
@pytest.mark.parametrize("whole", [1, 3, 5])
def test_all_probabilities_are_within_a_unit(bits: int, classes: int, whole: int) -> None:
    """Every vector of narrow outputs, with so many bits before the point."""
    codes = np.arange(-(1 << bits - 1), 1 << bits - 1)
    y = np.stack(np.meshgrid(*[codes] * classes), axis=-1).reshape(-1, classes)
    assert _error(Softmax(classes=classes, bits=bits, fraction=bits - whole), y) < 0.6


@pytest.mark.parametrize("bits", [8, 12, 16, 18])
@pytest.mark.parametrize("classes", [2, 3, 50, 1000])
def test_drawn_probabilities_are_within_a_unit(bits: int, classes: int) -> None:
    rng, most = np.random.default_rng(classes), 1 << bits - 1
    for fraction in (bits - 9, bits - 4, bits - 1, bits + 2):
        found = Softmax(classes=classes, bits=bits, fraction=fraction)
        found.check()
        y = np.concatenate([rng.normal(size=(100, classes)) * scale * most for scale in (0.3, 0.03, 0.001)])
        y = np.clip(np.round(y), -most, most - 1).astype(np.int64)
        y[0], y[1] = -most, most - 1
        y[2] = np.where(np.arange(classes) % 2, most - 1, -most)
        assert _error(found, y) < 0.6


def _error(softmax_: Softmax, y: np.ndarray) -> float:
    """The largest error of probabilities, in units of the last place, up to the largest there is."""
    exact = np.ldexp(softmax(np.ldexp(y.astype(np.float64), -softmax_.fraction)), softmax_.bits - 1)
    return float(np.abs(softmax_.probabilities(y) - np.minimum(exact, softmax_.output.maximum)).max())


def test_the_driver_gives_probabilities(tmp_path: Path, scores: Path) -> None:
    """As outputs; decode needs scores, and says so."""
    folder = tmp_path / "build"
    with no_logic():
        build(folder, "dense behind an LSTM", "softmax")
    wanted = softmax(rtlstm.Build(scores).run(X)[0])
    with Accelerator.open(folder) as accelerator:
        y, _ = accelerator.run(X)
        assert y.dtype == np.float32 and np.abs(y - wanted).max() <= accelerator.manifest.output.step
        assert accelerator.parts(y)["output"].shape == (15, 4, 11) and not accelerator.saturated_outputs
        with accelerator.stream() as stream:
            assert np.array_equal(stream.steps(X[:, 0]), y[:, 0])
        with pytest.raises(ConfigurationError, match="rounded to the same; generate with `decide='argmax'`"):
            accelerator.decode(1, 4)
    header = (folder / "rtlstm_registers.h").read_text()
    assert "#define RTLSTM_CLASSES 11 /* outputs are their probabilities */" in header
    assert any(
        "gives the probabilities of 11 outputs;" in each for each in rtlstm.Build(folder).report().notes
    )


def test_the_driver_gives_the_largest(tmp_path: Path, scores: Path) -> None:
    """Numbers and scores in every call, over a link, and fed back."""
    folder = tmp_path / "build"
    with no_logic():
        build(folder, "dense behind an LSTM", "top5")
    manifest, plain = Manifest.load(folder), rtlstm.Build(scores)
    assert (manifest.program.outputs, manifest.classes, rtlstm.Build(folder).outputs) == (10, 11, 10)
    y, (h, c) = plain.run(X)
    numbers, best = top_k(y, 5)
    device = DeviceEngine(GoldenDevice(folder, manifest), manifest)
    with (
        PortServer(SimulatedPort(device), tcp=0) as server,
        Accelerator.open(folder, f"tcp:127.0.0.1:{server.port}") as accelerator,
    ):
        found, (found_h, found_c) = accelerator.run(X)
        assert found.shape == (15, 4, 5) and found["number"].dtype == np.int64
        assert np.array_equal(found["number"], numbers) and np.array_equal(found["score"], best)
        assert np.array_equal(h, found_h) and np.array_equal(c, found_c)
        assert found["score"].dtype == y.dtype == np.float32
        last = accelerator.run(X.swapaxes(0, 1), batch_first=True, outputs="last")[0]
        assert np.array_equal(last, found[-1])
        with pytest.warns(rtlstm.CodesWarning):
            codes, _ = accelerator.run(manifest.numerics.input.to_integers(X))
        assert np.array_equal(codes["number"], numbers) and codes["score"].dtype == np.int64
        assert np.array_equal(manifest.output.to_floats(codes["score"]), best)
        with accelerator.stream() as one, accelerator.stream() as other:
            assert np.array_equal(one.step(X[0, 0]), found[0, 0])
            assert np.array_equal(other.steps(X[:5, 1]), found[:5, 1])
            both = accelerator.step_many([one, other], [X[1, 0], X[5, 1]])
            assert np.array_equal(both, [found[1, 0], found[5, 1]])
        with pytest.raises(InputError, match="numbers of outputs, which have no parts"):
            accelerator.parts(found)
    header = (folder / "rtlstm_registers.h").read_text()
    assert "#define RTLSTM_OUTPUTS 10\n" in header and "numbers of the 5 largest of so many, then" in header
    assert any(
        "numbers and scores of the 5 largest of 11 outputs" in each
        for each in rtlstm.Build(folder).report().notes
    )


def test_the_link_sends_one_value(folder: Path, scores: Path) -> None:
    manifest = Manifest.load(folder)
    device = DeviceEngine(GoldenDevice(folder, manifest), manifest)
    with (
        PortServer(SimulatedPort(device), tcp=0) as server,
        Accelerator.open(folder, f"tcp:127.0.0.1:{server.port}") as accelerator,
    ):
        y, _ = accelerator.run(X)
        assert np.array_equal(y, rtlstm.Build(scores).run(X)[0].argmax(axis=-1))
        assert accelerator.measured_latency_cycles >= manifest.cycles.step_latency_cycles


def test_what_cannot_be_decided_is_refused_with_a_way_out(tmp_path: Path) -> None:
    def make(net: Network, **options: Any) -> rtlstm.Build:
        sizes = {"lanes": 4, "macs": 2, "folder": tmp_path / "build", "decide": "argmax"}
        with no_logic(), warnings.catch_warnings():
            warnings.simplefilter("ignore", rtlstm.NoteWarning)
            return rtlstm.compile(net, **sizes | options)

    with pytest.raises(
        ConfigurationError, match="two outputs or more, but this one has 1; leave `decide` out"
    ):
        make(network(lstm(3, 5), dense(5, 1)))
    assert not make(network(lstm(3, 5), dense(5, 1)), decide=None).manifest.decides
    many = network(lstm(3, 5), dense(5, 129))
    with pytest.raises(
        ConfigurationError, match=r"8 bits of one, 0 to 127, but .* has 129; .*`output_bits=9`"
    ):
        make(many, output_bits=8, data_bits=8)
    assert make(many, output_bits=9, data_bits=8).manifest.decides
    with pytest.raises(ConfigurationError, match="`data_bits=5`"):
        make(network(lstm(3, 9)), data_bits=4)
    assert make(network(lstm(3, 9)), data_bits=5).manifest.decides
    with pytest.raises(ConfigurationError, match="bidirectional layer; put a dense layer behind it"):
        make(network(both(3, 4)), max_steps=9)
    assert make(network(both(3, 4), dense(8, 3)), max_steps=9).manifest.decides
    parts = (OutputPart(name="a", width=2), OutputPart(name="b", width=3))
    split = Network(name="n", layers=(lstm(3, 5), dense(5, 5)), parts=parts)
    with pytest.raises(ConfigurationError, match=r"has 2 \(a, b\); choose one with `output`"):
        make(split)
    calls = {
        "scores": lambda net, x: net.a(net.lstm(x)[0]).softmax(-1),
        "b": lambda net, x: net.b(net.lstm(x)[0]),
    }
    layers = {"lstm": torch.nn.LSTM(3, 5), "a": torch.nn.Linear(5, 2), "b": torch.nn.Linear(5, 3)}
    model = nets.Net(lambda net, x: {key: call(net, x) for key, call in calls.items()}, **layers).eval()
    with pytest.raises(ConfigurationError, match=r"has 2 \(scores, b\); choose one with `output`"):
        make(model)
    for name, outputs in (("scores", 2), ("b", 3)):
        build = make(model, output=name)
        assert build.manifest.decides and build.manifest.layers[-1].outputs == outputs
    for wrong in ("soft", "top", "top0", "top17"):
        with pytest.raises(
            ConfigurationError, match=f"`decide` must be argmax, softmax, or top1 to top16, not '{wrong}'"
        ):
            make(many, decide=wrong)
    seven = network(lstm(3, 5), dense(5, 7))
    with pytest.raises(
        ConfigurationError, match=r"`decide='top4'` .* 7 outputs .*`decide='top3'`.*top_k\(y, 4\)"
    ):
        make(seven, decide="top4")
    assert make(seven, decide="top3").outputs == 6
    room = {"inputs": 8, "outputs": 8}
    device = make(network(lstm(3, 5), dense(5, 8)), decide="top4", capacities=room).manifest
    with pytest.raises(ConfigurationError, match=r"`decide='top3'` \(of the device, if it is for one\)"):
        Manifest.of("seven", quantise(seven), device.parameters)
    with pytest.raises(
        ConfigurationError, match=r"loadable core takes other networks; .*leave `capacities` out"
    ):
        make(seven, decide="softmax", capacities=room)
    assert make(seven, decide="softmax").outputs == 7
    with pytest.raises(
        ConfigurationError, match="at most 1,024 outputs of 18 bits, not 1,025; .*fewer with `output_bits`"
    ):
        make(network(lstm(3, 5), dense(5, 1025)), decide="softmax", output_bits=18)
    assert make(network(lstm(3, 5), dense(5, 1025)), decide="softmax").outputs == 1025
    for decide in ("argmax", "top2", "softmax"):
        with pytest.raises(ConfigurationError, match=f"`array='spatial'` .* or `decide='{decide}'` out"):
            rtlstm.compile(seven, folder=tmp_path / "build", array="spatial", decide=decide)


def test_an_output_of_several_is_chosen(tmp_path: Path) -> None:
    """What the refusal of several outputs says."""
    net = nets.Net(
        lambda m, x: (lambda y: (m.a(y), m.b(y)))(m.lstm(x)[0]),
        lstm=torch.nn.LSTM(3, 4), a=torch.nn.Linear(4, 3), b=torch.nn.Linear(4, 5),
    )  # fmt: skip
    options: dict[str, Any] = {"folder": tmp_path / "build", "lanes": 4, "macs": 2, "decide": "argmax"}
    with no_logic(), warnings.catch_warnings():
        warnings.simplefilter("ignore", rtlstm.NoteWarning)
        with pytest.raises(ConfigurationError, match="choose one with `output`"):
            rtlstm.compile(net, **options)
        assert rtlstm.compile(net, output="b", **options).manifest.classes == 5


@pytest.mark.parametrize(
    ("ends", "decide", "left"),
    [
        (["Softmax"], "softmax", []),
        (["LogSoftmax"], "softmax", ["numpy.log(y)"]),
        (["Softmax", "ArgMax"], "softmax", ["rtlstm.host.argmax(y)"]),
        (["Softmax", "ArgMax"], "argmax", []),
        (["Softmax"], "top2", []),
    ],
)
def test_what_a_model_makes_of_scores(ends: list[str], decide: str, left: list[str], tmp_path: Path) -> None:
    """The device's probabilities are the model's; what it does not compute stays with the host."""
    nodes, weights = onnx_files.squeezed()
    for number, kind in enumerate(ends):
        nodes.append(onnx_files.node(kind, f"p{number - 1}" if number else "s", f"p{number}", axis=2))
    path = onnx_files.save(tmp_path / "m.onnx", nodes, weights, [f"p{len(ends) - 1}"])
    with no_logic(), warnings.catch_warnings():
        warnings.simplefilter("ignore", rtlstm.NoteWarning)
        made = rtlstm.compile(path, folder=tmp_path / "build", lanes=4, macs=2, data_bits=16, decide=decide)
    report = made.report()
    assert [node.why for node in report.host] == left
    said = [note for note in report.notes if "stays on the host" in note]
    assert [note.rpartition(": ")[2] for note in said] == left
    given = "probabilities" if decide == "softmax" else "scores"
    assert report.accuracy.outputs == given and f"of the {given}' spread, on random" in report.verdict
    assert f"largest error of the {given}" in (made.folder / "report.html").read_text()
    if decide == "softmax":
        assert report.accuracy.max_abs_output < 1 and report.accuracy.traces[0].exact[0] > 0
    if ends == ["Softmax"] and decide == "softmax":
        x = np.random.default_rng(1).normal(size=(9, 1, onnx_files.I)).astype(np.float32)
        assert np.abs(made.run(x)[0] - onnx_files.run(path, x, "p0")).max() < 0.01


def test_a_build_that_decides_is_another_one(folder: Path, scores: Path) -> None:
    mine, plain = Manifest.load(folder), Manifest.load(scores)
    assert mine.build_hash != plain.build_hash
    assert (mine.program.outputs, mine.classes, plain.classes) == (1, 11, 11)
    assert "decide" not in plain.parameters.model_dump()
    header = (folder / "rtlstm_registers.h").read_text()
    assert "#define RTLSTM_OUTPUTS 1\n" in header and "#define RTLSTM_OUTPUT_FRACTION_BITS 0\n" in header
    assert "#define RTLSTM_CLASSES 11 /*" in header
    assert "RTLSTM_CLASSES" not in (scores / "rtlstm_registers.h").read_text()
    assert "--decide argmax" in (folder / mine.rtl).read_text()
    notes = rtlstm.Build(folder).report().notes
    assert any("the device gives the number of the largest of 11 outputs" in note for note in notes)


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("bus", ["axi", "axilite"])
def test_decisions_behind_a_bus(bus: str, tmp_path: Path) -> None:
    build(tmp_path, "three units", bus=bus)
    found, _ = compare(tmp_path, X[:5], simulator="verilator", verify=False)
    assert found.passed


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.tools
@pytest.mark.parametrize("decide", ["argmax", "softmax", "top3"])
def test_the_netlist_decides(decide: str, tmp_path: Path) -> None:
    netlist = netlist_build(tmp_path / "rtl", build(tmp_path / "rtl", "ecp5", decide), tmp_path / "netlist")
    found, _ = compare(netlist, X[:5], simulator="verilator", verify=False)
    assert found.passed, found.first_difference


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize("decide", ["argmax", "top3"])
def test_a_loadable_core_decides_for_all_its_networks(simulator: str, decide: str, tmp_path: Path) -> None:
    folders = tmp_path / "one", tmp_path / "other"
    one, other = network(lstm(3, 5), dense(5, 11)), network(lstm(2, 4), lstm(4, 6, "second"), dense(6, 20))
    parameters = Parameters(lanes=8, macs=2, gate_units=2, beat_out=2, streams=2, decide=decide)
    room = {"weight_rows": 512, "shift_rows": 64, "bias_rows": 64, "partial_rows": 64, "vector_words": 64}
    generate_build(
        one,
        folders[0],
        parameters=parameters,
        settings=NARROW,
        capacities=room | {"cell_rows": 32, "inputs": 4},
    )
    generate_build(other, folders[1], device=folders[0])
    x = {folder: X[:6, :, :size] for folder, size in zip(folders, (3, 2), strict=True)}
    with Accelerator.open(folders[0], simulator) as accelerator:
        for folder in (*folders, folders[0]):
            accelerator.load(folder)
            y, _ = accelerator.run(x[folder])
            assert np.array_equal(y, rtlstm.Build(folder).run(x[folder])[0])
            assert (y["number"] if parameters.best else y).max() > 1


def test_commands(cli: Any, tmp_path: Path, without_verilog: None, model: Path) -> None:
    """Generate, run, measure and inspect a build that decides, and see what its page and report say."""
    np.save(tmp_path / "x.npy", X)
    made = ("generate", model, "-o", tmp_path / "build", "--dense", "fc", "--decide", "argmax")
    found = cli(
        *made, "--lanes", 4, "--macs", 2, "--calibrate", tmp_path / "x.npy", "--no-batch-first", "--json"
    ).json
    assert found["report"]["accuracy"]["decisions"] == 60
    given = ("--input", tmp_path / "x.npy", "--no-batch-first", "--json")
    ran = cli("run", tmp_path / "build", *given, "--output", tmp_path / "y.npy").json
    y = np.load(tmp_path / "y.npy")
    assert ran["output_shape"] == [15, 4] == list(y.shape) and y.dtype.kind == "i"
    assert {ran["output_minimum"], ran["output_maximum"]} == {0, 1} and ran["numbers"] == [y[-1, 0]]
    measured = cli("accuracy", tmp_path / "build", *given).json
    assert measured["total_steps"] == 60 and "errors are those of the scores" in measured["remarks"][-1]
    assert "outputs" in cli("inspect", tmp_path / "build").out
    cli(*made[:4], "--dense", "none", "--decide", "top").refused("--decide", "argmax", "top")
    cli(*made[:-1], "top1", "--lanes", 4, "--macs", 2)
    ran = cli("run", tmp_path / "build", *given, "--output", tmp_path / "y.npy").json
    y = np.load(tmp_path / "y.npy")
    assert ran["output_shape"] == [15, 4, 1] == list(y.shape) and ran["output_maximum"] == y["score"].max()
    assert ran["numbers"] == y["number"][-1, 0].tolist()
    np.save(tmp_path / "lengths.npy", np.array([7, 15, 15, 15]))
    short = cli("run", tmp_path / "build", *given[:-1], "--lengths", tmp_path / "lengths.npy")
    (shown,) = (
        line for line in short.out.splitlines() if "largest in the first sequence's last step" in line
    )
    assert shown.split()[-1] == str(y["number"][6, 0, 0])
    assert "(15, 4, 1), scores " in short.out
    # Of valid steps alone: the zeros of padding are no outputs.
    np.save(tmp_path / "lengths.npy", np.array([1, 1, 1, 1]))
    ran = cli("run", tmp_path / "build", *given, "--lengths", tmp_path / "lengths.npy").json
    assert (ran["output_minimum"], ran["output_maximum"]) == (y["score"][0].min(), y["score"][0].max())
