"""A board's Ethernet: addresses, and the link over LiteEth and an RGMII, in simulation."""

import ctypes
import socket
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest
from support.c_client import compile_client, load_client, read_outputs, run_client
from support.ethernet_attack import attack
from support.paths import ROOT
from support.raw_transfers import input_bytes, raw_step, result_bytes
from support.served_board import check_golden, running, said
from support.wire_time import check_steps_per_second, check_wire_time

from rtlstm import Accelerator, ConfigurationError, Manifest, Parameters, QuantizationSettings
from rtlstm.bench.shapes import SHAPES
from rtlstm.boards.ethernet import Ethernet
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host.link.byte_ports import split_datagrams
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.framing import Deframer, Frame
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.host.link.raw import RawLink, UdpExchange
from rtlstm.host.transport import open_transport
from rtlstm.sim.cocotb_run import Design, run_tests
from rtlstm.sim.faults import Fault, FaultyPort
from rtlstm.sim.link_port import BROADCAST, EthernetPort, ethernet_frame, ip_packet
from rtlstm.sim.simulated_board import NativeBoard
from rtlstm.sim.simulated_ports import SIMULATION, board_models, simulation_sources
from rtlstm.spec.link import DATAGRAM_LIMIT, FrameType, LinkReport
from rtlstm.spec.registers import IDENTITY, Register

IP, MAC = "192.168.1.50", bytes.fromhex("0200c0a80132")
ABSENT = 0xC0A80163
QUICK = LinkTimeouts(retry=0.0005, least_retry=0.0001, most_retry=0.001)
"""In the board's own seconds, of which a simulator takes minutes for each."""
BENCHES = ROOT / "tests" / "support" / "testbenches"


def test_addresses():
    assert Ethernet.create(IP).mac == "02:00:c0:a8:01:32"
    given = Ethernet.create("10.0.0.9", "02-AB-00-00-00-01", "10.0.0.1")
    assert given.mac == "02:ab:00:00:00:01" and given.only_peer == 0x0A000001
    with pytest.raises(ConfigurationError, match=f"`peer` must be the host's IP address, not {IP}"):
        Ethernet.create(IP, peer=IP)
    assert Ethernet.create(IP).only_peer is None and Ethernet.create(IP, peer="any").host is None


@pytest.mark.parametrize("ip", ["192.168.1", "224.0.0.1", "127.0.0.1", "0.0.0.0", "10.0.0.255", ""])
def test_an_address_of_no_single_device(ip: str):
    with pytest.raises(ConfigurationError, match="IP address must be that of one device"):
        Ethernet.create(ip)
    with pytest.raises(ConfigurationError, match="`peer`, the host's IP address"):
        Ethernet.create(IP, peer=ip)


@pytest.mark.parametrize("mac", ["01:00:00:00:00:01", "00:00:00:00:00:00", "02:00:00:00:00", "hello"])
def test_a_mac_address_of_no_single_device(mac: str):
    with pytest.raises(ConfigurationError, match="MAC address must be that of one device"):
        Ethernet.create(IP, mac)


def test_datagrams_hold_whole_frames():
    frames = [Frame(FrameType.WRITE, 7, seq, 0, bytes([1, seq]) * 200).to_wire() for seq in range(20)]
    datagrams = list(split_datagrams(b"\0" + b"".join(frames)))
    assert b"".join(datagrams) == b"\0" + b"".join(frames)
    assert all(len(each) <= DATAGRAM_LIMIT and each.endswith(b"\0") for each in datagrams)
    assert len(datagrams) < len(frames)


@pytest.mark.parametrize("backend", ["udp:localhost:99999", "udp:localhost:0", "udp:localhost:x", "udp:"])
def test_no_such_port(backend: str, board_build: Path):
    with pytest.raises(ConfigurationError, match="must be HOST or HOST:PORT"):
        open_transport(backend, board_build, Manifest.load(board_build))


def test_refused(cli, board_build: Path):
    cli("board", board_build, "--board", "ulx3s-85f", "--ip", IP).refused("has no Ethernet")
    cli("board", board_build, "--board", "ulx3s-85f", "--udp", 0).refused("leave it out for other links")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        done = cli("board", board_build, "--board", "colorlight-i5", "--ip", IP, "--udp", port)
        done.refused(f"UDP port {port} must be free")
    cli("board", board_build, "--board", "colorlight-i5", "--ip", IP).refused("--udp PORT")
    cli("board", board_build, "--board", "colorlight-i5", "--mac", IP, "--udp", 0).refused("give its --ip")
    cli("bitstream", board_build, "--board", "colorlight-i5", "--peer", "any").refused("--ip")
    done = cli(
        "board", board_build, "--board", "colorlight-i5", "--ip", IP, "--raw", "--udp", 0, "--faults", 0.1
    )
    done.refused("without --faults")
    done = cli("bitstream", board_build, "--board", "colorlight-i5", "--ip", IP, "--baud", 115_200)
    done.refused("has no serial port")


@pytest.fixture(scope="module")
def on_board(board_build: Path) -> OnBoard:
    return OnBoard.create(board_build, "colorlight-i5", 100, ethernet=Ethernet.create(IP, raw=True))


@pytest.mark.rtl
def test_results_are_the_golden_models(on_board: OnBoard, native: NativeBoard):
    """Over RGMII, ARP, IP and UDP; then another host asks, who gets no answer."""
    manifest, x = on_board.manifest, np.random.default_rng(2).uniform(-1, 1, (20, 3))
    port = EthernetPort(native, IP)
    with Accelerator(LinkTransport(port, manifest, QUICK, seed=1), manifest) as board:
        transport = board.device.transport
        assert transport.read(Register.ID).tolist() == [IDENTITY]
        board.load_weights(on_board.folder / "weights.bin", verify=True)
        y, _ = board.run(x)
        transport.exchange([0], [[0, 0, 0]])
        assert 2e-6 < native.answer_seconds < 5.2e-6
        # A ping in the name of a device that is not there holds nothing up.
        echo = ip_packet(ABSENT, int(IPv4Address(IP)), 1, b"\x08\0\0\0\0\1\0\2 hello")
        native.send(ethernet_frame(BROADCAST, b"\2" * 6, 0x0800, echo))
        native.send(ethernet_frame(MAC, b"\2" * 6, 0x0800, echo))
        transport.exchange([0], [[0, 0, 0]])
        assert transport.statistics.repeated == port.damaged == 0
        other = EthernetPort(native, IP, host="192.168.1.77")
        other.write(Frame(FrameType.RESUME, 0, 5, 0).to_wire())
        assert other.read(20e-6) == b""
        assert transport.read(Register.ID).tolist() == [IDENTITY]
    check_golden(on_board.folder, x, y)


@pytest.mark.rtl
def test_raw_steps(on_board: OnBoard, native: NativeBoard):
    """One datagram each way; those of a wrong length, damaged ones and other hosts' are counted alone."""
    manifest, port = on_board.manifest, EthernetPort(native, IP)
    x = np.random.default_rng(3).integers(-1000, 1000, (40, 3))
    golden = open_transport("golden", on_board.folder, manifest)

    def exchange(datagram: bytes, by: EthernetPort = port) -> bytes:
        by.send(datagram)
        return b"".join(by.receive(20e-6))

    link, step = RawLink(manifest, exchange), raw_step(bytes(input_bytes(manifest)))
    wrong = [step[:-1], step + b"\0", step[:5], step[:1], step * 2, step[:-1] + bytes([step[-1] ^ 1])]
    with Accelerator(LinkTransport(port, manifest, QUICK, seed=1), manifest) as board:
        board.load_weights(on_board.folder / "weights.bin")
        board.device.transport.flush()
        Accelerator(golden, manifest).load_weights(on_board.folder / "weights.bin")
        other = EthernetPort(native, IP, host="192.168.1.77")
        assert all(exchange(datagram) == b"" for datagram in wrong) and exchange(step, other) == b""
        found = [link.step(row).tolist() for row in x]
        assert 2e-6 < native.answer_seconds < 5.2e-6
        assert found == golden.exchange(np.zeros(40, dtype=np.int32), x).tolist()
        # Two at once: the second one comes while the first one is in work.
        port.send(step)
        assert len(exchange(step)) == result_bytes(manifest) and port.receive(20e-6) == []
        port.write(Frame(FrameType.RESUME, 0, 5, 0).to_wire())
        (report,) = Deframer().feed(port.read(20e-6))
        assert LinkReport.from_bytes(report.payload).dropped == len(wrong) + 2
        assert board.device.transport.read(Register.ID).tolist() == [IDENTITY]


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("name", ["colorlight-i9", "ecpix5-85f", "versa-ecp5"])
def test_other_boards(board_build: Path, name: str):
    """Each has clock, PLLs and pins of its own."""
    board = OnBoard.create(board_build, name, 80, ethernet=Ethernet.create(IP))
    manifest, x = board.manifest, np.random.default_rng(3).uniform(-1, 1, (5, 3))
    port = EthernetPort(board.simulate(), IP)
    with Accelerator(LinkTransport(port, manifest, QUICK, seed=1), manifest) as accelerator:
        accelerator.load_weights(board.folder / "weights.bin", verify=True)
        y, _ = accelerator.run(x)
    check_golden(board.folder, x, y)


@pytest.mark.rtl
def test_a_step_takes_as_long_as_predicted(on_board: OnBoard, native: NativeBoard):
    check_wire_time(on_board, native, EthernetPort(native, IP), QUICK)


@pytest.mark.slow
@pytest.mark.rtl
def test_faults_lose_nothing(on_board: OnBoard, native: NativeBoard):
    """A million steps, of which one datagram of a hundred is lost, doubled, damaged, delayed or overtaken."""
    manifest, rng = on_board.manifest, np.random.default_rng(2)
    bad = FaultyPort(EthernetPort(native, IP), 0.01, seed=3, longest=0.0002)
    golden = open_transport("golden", on_board.folder, manifest)
    Accelerator(golden, manifest).load_weights(on_board.folder / "weights.bin")
    with Accelerator(LinkTransport(bad, manifest, QUICK, seed=1), manifest) as board:
        board.load_weights(on_board.folder / "weights.bin")
        for _ in range(20):
            x, streams = rng.integers(-2000, 2000, (50_000, 3)), np.zeros(50_000, dtype=np.int32)
            y = board.device.transport.exchange(streams, x)
            assert np.array_equal(y, golden.exchange(streams, x))
    assert min(bad.counts[fault] for fault in Fault) > 10


@pytest.mark.rtl
def test_steps_per_second(on_board: OnBoard, native: NativeBoard):
    """Batches of steps in a datagram, by the board's clock."""
    check_steps_per_second(on_board, native, EthernetPort(native, IP), QUICK, least=200_000)


@pytest.mark.slow
@pytest.mark.rtl
def test_steps_per_second_of_toptag(tmp_path: Path):
    settings = QuantizationSettings(weight_bits=8, data_bits=8)
    parameters = Parameters.for_family("ecp5", lanes=16, macs=4)
    generate_build(SHAPES["toptag"].network(), tmp_path, settings=settings, parameters=parameters)
    on_board = OnBoard.create(tmp_path, "colorlight-i5", 100, ethernet=Ethernet.create(IP))
    native = on_board.simulate()
    check_steps_per_second(on_board, native, EthernetPort(native, IP), QUICK, least=200_000)


@pytest.mark.slow
@pytest.mark.rtl
def test_raw_steps_served_over_udp(on_board: OnBoard, board_user: Path, tmp_path: Path):
    """The driver's sockets and the C client's, behind a session that has loaded the weights."""
    build, manifest = on_board.folder, on_board.manifest
    x = np.random.default_rng(3).integers(-1000, 1000, (6, 3)).astype(np.int32)
    client = load_client(tmp_path)
    device, y = ctypes.create_string_buffer(8192), (ctypes.c_int32 * manifest.program.outputs)()
    bits = manifest.numerics.data_bits, manifest.numerics.output_bits
    golden, found = open_transport("golden", build, manifest), []
    Accelerator(golden, manifest).load_weights(build / "weights.bin")
    command = f"rtlstm board {build} --board colorlight-i5 --clock 100 --ip {IP} --raw --udp 0"
    with running(command, tmp_path) as process:
        port = said(process, r"(udp:\S+)")
        assert client.rtlstm_open(device, port.encode()) == 0, device.raw
        assert client.rtlstm_load(device, str(build / "weights.bin").encode(), 0) == 0, device.raw
        for row in x[:3]:
            given = row.ctypes.data_as(ctypes.c_void_p)
            done = client.rtlstm_raw_step(device, 0, 0, given, 3, bits[0], y, len(y), bits[1])
            assert done == 0, device.raw
            found.append(list(y))
        client.rtlstm_close(device)
        with UdpExchange("localhost", int(port.rpartition(":")[2]), 5.0) as exchange:
            found += [RawLink(manifest, exchange).step(row).tolist() for row in x[3:]]
    assert found == golden.exchange(np.zeros(6, dtype=np.int32), x).tolist()


@pytest.mark.slow
@pytest.mark.rtl
def test_served_over_udp(on_board: OnBoard, cli, board_user: Path, tmp_path: Path):
    """The driver in a process of its own, and the C client, by the host's own sockets."""
    build, x = on_board.folder, board_user / "x.npy"
    codes = np.arange(15, dtype=np.int32).reshape(5, 3) * 50
    command = f"rtlstm board {build} --board colorlight-i5 --clock 100 --ip {IP} --udp 0"
    with running(command, tmp_path) as process:
        port = said(process, r"(udp:\S+)")
        cli("run", build, "--backend", port, "--input", x, "--output", tmp_path / "y.npy").good()
        client = run_client(compile_client(tmp_path), port, build / "weights.bin", on_board.manifest, codes)
    check_golden(build, np.load(x), np.load(tmp_path / "y.npy"))
    transport = open_transport("golden", build, on_board.manifest)
    with Accelerator(transport, on_board.manifest) as golden:
        golden.load_weights(build / "weights.bin")
        expected = transport.exchange(np.zeros(5, dtype=np.int32), codes)
    assert np.array_equal(read_outputs(client), expected)


@pytest.mark.slow
@pytest.mark.rtl
def test_attacked(on_board: OnBoard, native: NativeBoard):
    sent = attack(native, on_board, seed=1)
    assert sent.total() > 100 and len(sent) == 11


@pytest.mark.slow
@pytest.mark.rtl
def test_frames_at_the_pins(on_board: OnBoard, compiled, tmp_path: Path):
    """Other people's PHY: ARP, ping, UDP, damaged frames of all kinds, and a storm at the line's rate."""
    family = on_board.manifest.parameters.family
    core = simulation_sources(on_board.folder / "rtl" / f"{on_board.manifest.name}.v", family)
    models = board_models(on_board.board.chosen.device.family)
    sources = [on_board.output_folder / "top.v", *core, *models, BENCHES / "ethernet_board.v"]
    design = Design(top="ethernet_board", sources=tuple(sources), defines={SIMULATION: 1})
    found = run_tests(BENCHES / "ethernet_testbench.py", on_board.folder, design, "verilator", tmp_path)
    assert len(found.outcomes) == 3 and found.passed, found.outcomes
