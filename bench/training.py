"""Time and memory of a training step against ``torch.nn.LSTM``: ``python -m rtlstm.bench.training``.

Both run the same shape on the same data, turn by turn, in a process each: forward, backward, no optimizer.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

INPUTS, UNITS, BATCH, STEPS = 128, 128, 32, 100
"""vad128: the LSTM of silero VAD."""
_REPEATS, _WARM_UP = 15, 3


def measure(which: str, repeats: int = _REPEATS) -> dict[str, float]:
    """Train one of the two for some steps; return the median time of a step in ms, and the memory in MiB.

    The memory is what the process grew by since the module and its data were made.
    """
    import torch

    from rtlstm.train import prepare

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = torch.nn.LSTM(INPUTS, UNITS)
    if which == "trained":
        module = prepare(module, weight_bits=4, data_bits=8)
    x = torch.randn(STEPS, BATCH, INPUTS)
    module(x[:2])[0].square().mean().backward()
    before, times = _memory(), []
    for _ in range(repeats + _WARM_UP):
        begin = time.perf_counter()
        module(x)[0].square().mean().backward()
        times.append(1e3 * (time.perf_counter() - begin))
    return {"ms": statistics.median(times[_WARM_UP:]), "MiB": _memory() - before}


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def main(arguments: list[str] | None = None) -> None:
    """Print both, and their ratios."""
    parser = argparse.ArgumentParser(description="Compare a training step with torch.nn.LSTM's.")
    parser.add_argument("which", nargs="?", choices=("float", "trained"), help="measure one of them alone")
    given = parser.parse_args(arguments)
    if given.which:
        print(json.dumps(measure(given.which)))
        return
    found: dict[str, list[dict[str, float]]] = {"float": [], "trained": []}
    for _ in range(3):
        for which, runs in found.items():
            command = [sys.executable, "-m", "rtlstm.bench.training", which]
            runs.append(
                json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
            )
    best = {which: {key: min(run[key] for run in runs) for key in runs[0]} for which, runs in found.items()}
    print(f"LSTM {INPUTS} -> {UNITS}, batch {BATCH}, {STEPS} steps, one thread, 4-bit weights, 8-bit data")
    for which, figures in best.items():
        print(f"{which:>8}: {figures['ms']:7.1f} ms {figures['MiB']:7.1f} MiB")
    for key in ("ms", "MiB"):
        print(f"   ratio: {best['trained'][key] / best['float'][key]:.2f} ({key})")


if __name__ == "__main__":
    main()
