"""The natively compiled simulator, on a dummy core."""

import numpy as np
import pytest

from rtlstm.sim import compile_model
from rtlstm.sim.compile_model import NativeModel, build_native
from rtlstm.sim.simulated_ports import PortSpec
from rtlstm.spec.errors import ConfigurationError, DeviceError, ToolError

pytestmark = pytest.mark.rtl


@pytest.fixture
def model(dummy):
    model = NativeModel(build_native(dummy.verilog, dummy.ports), dummy.ports)
    dummy.clear(model)
    yield model
    model.close()


def test_exchange_and_cycles(dummy, model) -> None:
    streams, x = dummy.stimulus(500)
    start = model.cycle
    y, cycles = model.exchange(streams, x)
    assert (y == dummy.expected(streams, x)).all()
    interval = dummy.latency + dummy.ports.beats_in
    assert cycles.begun.tolist() == [start + interval * step for step in range(500)]
    assert (cycles.accepted - cycles.begun == dummy.ports.beats_in - 1).all()
    assert (cycles.latency == dummy.latency).all()
    assert model.cycle == cycles.offered[-1] + 1


def test_a_closed_simulation_says_so(dummy) -> None:
    """Its library would read memory that is no longer there."""
    model = NativeModel(build_native(dummy.verilog, dummy.ports), dummy.ports)
    model.close()
    model.close()
    for use in (lambda: model.cycle, lambda: model.read(8, 1), lambda: model.exchange(*dummy.stimulus(2))):
        with pytest.raises(DeviceError, match="the simulation is closed; open it again"):
            use()


def test_exchanges_follow_on(dummy, model) -> None:
    streams, x = dummy.stimulus(40)
    parts = [model.exchange(streams[a:b], x[a:b])[0] for a, b in ((0, 1), (1, 20), (20, 40))]
    assert (np.concatenate(parts) == dummy.expected(streams, x)).all()


def test_initial_contents_follow_the_seed(wide_dummy) -> None:
    library = build_native(wide_dummy.verilog, wide_dummy.ports)
    contents = []
    for seed in (1, 1, 2):
        model = NativeModel(library, wide_dummy.ports, seed)
        contents.append(model.read(8, 64).tolist())
        model.close()
    assert contents[0] == contents[1] and contents[0] != contents[2]
    assert contents[0][0] not in (0, 0xFFFFFFFF)


def test_two_builds_at_once(dummy_of, wide_dummy) -> None:
    narrow = dummy_of(PortSpec(name="narrow", inputs=3, outputs=2, data_bits=8, timeout_cycles=500))
    cores = [wide_dummy, narrow]
    models = [NativeModel(build_native(core.verilog, core.ports), core.ports) for core in cores]
    for core, model in zip(cores, models, strict=True):
        core.clear(model)
    for core, model in zip(cores, models, strict=True):
        streams, x = core.stimulus(20)
        assert (model.exchange(streams, x)[0] == core.expected(streams, x)).all()
        model.close()


def test_broken_verilog_shows_verilators_words(dummy) -> None:
    dummy.verilog.write_text("module narrow(input clk) endmodule")
    with pytest.raises(ToolError, match=r"(?s)compiling \w+ for simulation failed.*%Error"):
        build_native(dummy.verilog, dummy.ports)


def test_verilog_that_ends_the_simulation(wide_dummy) -> None:
    """So do the models of hard cells when they are asked for what they do not know."""
    text = wide_dummy.verilog.read_text()
    end = text.rindex("endmodule")
    wide_dummy.verilog.write_text(
        f"{text[:end]}always @(posedge clk) if (!rst && flags[6]) $finish;\n{text[end:]}"
    )
    model = NativeModel(build_native(wide_dummy.verilog, wide_dummy.ports), wide_dummy.ports)
    model.write(5, np.array([1 << 6]))
    with pytest.raises(DeviceError, match="ended the simulation"):
        model.exchange(*wide_dummy.stimulus(1))
    with pytest.raises(DeviceError, match="ended the simulation"):
        model.read(0, 1)
    model.close()


@pytest.mark.parametrize(
    ("jobs", "level", "wanted"),
    [
        (1, "-O1", [("unit1", "-O1")]),
        (1, "-O3", [("unit0", "-O1"), ("unit1", "-O3")]),
        (2, "-O1", [("unit0", "-O1"), ("unit1", "-O1"), ("unit2", "-O1")]),
    ],
)
def test_every_file_is_in_one_unit(tmp_path, monkeypatch, jobs: int, level: str, wanted) -> None:
    monkeypatch.setenv("RTLSTM_OPTIMISATION", level)
    names = ["Vcore.cpp", "Vcore__1.cpp", "Vcore__Slow.cpp", "Vcore__Syms.cpp"]
    for name in names:
        (tmp_path / name).write_text("//")
    units = compile_model._write_units(tmp_path, jobs)
    assert units == wanted
    texts = "".join((tmp_path / f"{name}.cpp").read_text() for name, _ in units)
    assert sorted(texts.split()[1::2]) == sorted(f'"{name}"' for name in [*names, "harness.cpp"])


@pytest.mark.parametrize("jobs", ["0", "many", ""])
def test_no_number_of_compilers_is_refused(dummy, tmp_path, monkeypatch, jobs: str) -> None:
    monkeypatch.setenv("RTLSTM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RTLSTM_JOBS", jobs)
    with pytest.raises(ConfigurationError, match=f"RTLSTM_JOBS must be .* not '{jobs}'"):
        build_native(dummy.verilog, dummy.ports)
