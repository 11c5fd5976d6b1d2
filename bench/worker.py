"""Measurements that need a process of their own: one core, one thread, no other library's threads.

``python -m rtlstm.bench.worker TASK JSON`` prints one JSON object per line, the last one of which is
the result. Other modules call it by :func:`start`.
"""

import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.bench.peers import ENGINES, ONE_THREAD, CppLoop, lstm_session, pin, sample
from rtlstm.bench.records import CpuTime, GoldenSpeed, Machine
from rtlstm.bench.shapes import SHAPES, Shape
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.host import Accelerator
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import RtlstmError, ToolError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import pack

Row = dict[str, Any]

_CHECKED_STEPS = 32
_TOLERANCE, _INT8_TOLERANCE = 1e-3, 0.05
"""Largest error of an engine's outputs against the float reference: rational tanh is within 2e-4, and an
integer of 8 bits within 4e-3, of which a recurrence sums some."""
_ROUNDS = 5


def describe_machine() -> Machine:
    """Describe the processor and the Python that run this."""
    core = None
    if hasattr(os, "sched_getaffinity"):
        core = max(os.sched_getaffinity(0))
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        pinned_core=core,
        load_average=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0,
        python=platform.python_version(),
        numpy=np.__version__,
    )


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def measure_engine(engine: str, names: list[str], seconds: float) -> Iterator[Row]:
    """Yield the time of a step of each network on one of :data:`~rtlstm.bench.peers.ENGINES`."""
    pin()
    for name in names:
        try:
            found = _time_engine(engine, SHAPES[name], seconds)
        except ToolError as missing:
            found = CpuTime(engine=engine, missing=str(missing))
        yield {"shape": name, "time": found.model_dump()}


def _time_engine(engine: str, shape: Shape, seconds: float) -> CpuTime:
    runner = ENGINES[engine](shape)
    x = shape.input_values(max(_CHECKED_STEPS, 64))
    first = x[:_CHECKED_STEPS]
    expected = run_float(shape.network(), first[:, None].astype(np.float64)).y[:, 0]
    errors = runner.run(first) - expected
    error = float(np.abs(errors).max())
    tolerance = _INT8_TOLERANCE if engine == "c++ int8" else _TOLERANCE
    if not error <= tolerance:
        raise RtlstmError(
            f"{engine} must agree with the float reference within {tolerance}, but is off by {error:.3g} "
            f"on {shape.name}; it is not timed"
        )
    taken, mean = runner.time(x, seconds)
    loop: Row = {}
    if isinstance(runner, CppLoop):
        ready = float(np.median(runner.time_ready(x, len(taken))))
        loop = {"kernel": runner.kernel, "ready_us": round(ready * 1e6, 4)}
    p50, p99 = (float(np.percentile(taken, part)) * 1e6 for part in (50, 99))
    return CpuTime(
        engine=engine,
        p50_us=round(p50, 4),
        p99_us=round(p99, 4),
        mean_us=round(mean * 1e6, 4),
        steps=len(taken),
        rms_error=float(np.sqrt(np.mean(errors**2))),
        max_error=error,
        **loop,
    )


def measure_golden(name: str, batch: int, steps: int, seconds: float) -> Iterator[Row]:
    """Yield the golden model's speed with 16 and with 8 bits; network ``name`` has one LSTM layer."""
    pin()
    shape = SHAPES[name]
    x = shape.input_values(steps * batch).reshape(steps, batch, shape.inputs)
    peer: Callable[[Any], object] | None = None
    with contextlib.suppress(ModuleNotFoundError):
        peer = lstm_session(shape)
    for bits in (16, 8):
        yield {"golden": _time_golden(shape, x, bits, peer, seconds).model_dump()}


def _time_golden(
    shape: Shape, x: Any, bits: int, peer: Callable[[Any], object] | None, seconds: float
) -> GoldenSpeed:
    settings = QuantizationSettings(weight_bits=bits, data_bits=bits)
    network = quantise(shape.network(), settings, x[:64])
    golden, integers = Golden(network), network.numerics.quantise_input(x)
    ours, theirs = [], []
    # In turns, so that other load of the machine affects both.
    for _ in range(_ROUNDS):
        ours.append(_seconds(lambda: golden.run(integers)))
        if peer is not None:
            theirs.append(_seconds(lambda: peer(x)))
    stream, rows = golden.stream(), list(integers[:, :1])
    single = sample(lambda index: stream.step(rows[index % len(rows)]), seconds)
    return GoldenSpeed(
        weight_bits=bits,
        data_bits=bits,
        batch=x.shape[1],
        steps=len(x),
        golden_ms=round(min(ours) * 1e3, 3),
        onnxruntime_ms=round(min(theirs) * 1e3, 3) if theirs else None,
        step_us=round(float(np.median(single)) * 1e6, 2),
        backend_step_us=round(_time_backend(shape, network, x[:, 0], seconds) * 1e6, 2),
    )


def _seconds(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def _time_backend(shape: Shape, network: QuantizedNetwork, x: Any, seconds: float) -> float:
    """Return a step's time through the driver and the golden backend: floats in, floats out."""
    manifest = Manifest.of(shape.name, network, shape.parameters)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "manifest.json").write_text(manifest.to_json())
        (folder / "weights.bin").write_bytes(pack(network, manifest).to_bytes())
        with Accelerator.open(folder, "golden") as accelerator, accelerator.stream() as stream:
            rows = list(x)
            return float(np.median(sample(lambda index: stream.step(rows[index % len(rows)]), seconds)))


def measure_generate(name: str) -> Iterator[Row]:
    """Yield how long a network's build takes, and the peak memory of this process or of a tool."""
    shape = SHAPES[name]
    network = shape.network()
    with tempfile.TemporaryDirectory() as folder:
        taken = _seconds(lambda: generate_build(network, Path(folder) / "build", parameters=shape.parameters))
    yield {"seconds": round(taken, 3), "peak_mb": round(_peak_kb() / 1024)}


def _peak_kb() -> int:
    tools = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with contextlib.suppress(OSError):
        # ru_maxrss of this process would include that of the process that started it.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return max(tools, int(line.split()[1]))
    this_process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max(tools, this_process) // (1024 if sys.platform == "darwin" else 1)


_TASKS: dict[str, Callable[..., Iterator[Row]]] = {
    "engine": measure_engine,
    "golden": measure_golden,
    "generate": measure_generate,
}


def start(task: str, threads: bool = False, **arguments: Any) -> Iterator[Row]:
    """Run a task in a process of its own and yield what it prints.

    ``task`` is ``engine``, ``golden`` or ``generate``; ``arguments`` are those of its ``measure_`` function.
    ``threads`` says whether libraries may use several threads. Raises RtlstmError if the task fails, with the
    task's message.
    """
    command = [sys.executable, "-P", "-m", "rtlstm.bench.worker", task, json.dumps(arguments)]
    environment = os.environ | ({} if threads else ONE_THREAD)
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                for line in process.stdout:
                    found: Row = json.loads(line)
                    if "error" in found:
                        raise RtlstmError(found["error"])
                    yield found
            code = process.wait()
        finally:
            process.kill()
            process.wait()
        if code:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1]
            raise RtlstmError(f"the benchmark {task} ended with {code}: {last}")


def main(arguments: list[str]) -> int:
    """Run a task; print its lines."""
    task, text = arguments
    try:
        for line in _TASKS[task](**json.loads(text)):
            print(json.dumps(line), flush=True)
    except RtlstmError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
