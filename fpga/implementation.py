"""Results of a build's synthesis and place and route: the records in its report."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.families.device import Chosen, device_label
from rtlstm.fpga.place_route import Routed, seed_name
from rtlstm.fpga.resources import Counts, percent, resource_uses
from rtlstm.fpga.worst_path import PathFamily, WorstPath
from rtlstm.spec.program.schedule import Cycles
from rtlstm.spec.record import Record


def folder_name(device: str, cores: int) -> str:
    """Return the name of the folder with the logs of a build on a device, named with its speed grade."""
    return device if cores == 1 else f"{device}-{cores}-cores"


class ResourceUse(Record):
    """Utilisation of one resource of the device by the core, or by all cores."""

    name: str
    used: float
    available: int
    estimated: float | None = None
    """The estimate before synthesis; None without one."""

    @property
    def share(self) -> float:
        """Utilisation in percent."""
        return percent(self.used, self.available)

    @property
    def error(self) -> float | None:
        """How far the estimate is above the synthesised number, in percent; None without an estimate."""
        return None if self.estimated is None else error_percent(self.estimated, self.used)


def error_percent(estimated: float, measured: float) -> float:
    """Return how far an estimate is above the measured value, in percent of that."""
    if not measured:
        return 0.0 if not estimated else 100.0
    return round(100 * (estimated / measured - 1), 1)


class Implementation(Record):
    """Results of a build on a device: synthesis and, if there is a tool for it, place and route."""

    device: str
    package: str
    speed_grade: str
    architecture: str
    multiplier_blocks: bool
    tools: Mapping[str, str]
    resources: tuple[ResourceUse, ...]
    """Resources of the cores alone, without the harness that place and route needs."""
    cores: int = 1
    """Cores of the build side by side."""
    core: Counts
    """Resources of one core."""
    harness: Counts
    """Resources of the harness around the cores."""
    unpacked_ffs: int = 0
    """Flip-flops of a core that the vendor's tool packs into DSP blocks, but Yosys does not."""
    synthesis_seconds: float
    requested_mhz: float | None
    insist: bool = False
    """Whether the design was allowed to be fuller than any that is known to be routed."""
    target_mhz: float | None
    """The target clock of place and route; None without place and route."""
    block_ram_mhz: float | None
    """The block RAM's highest clock by its data sheet; None if unknown."""
    options: tuple[str, ...]
    """nextpnr's options, without files and seed."""
    seeds: tuple[Routed, ...]
    """Results of the seeds. Empty without place and route; then the following fields are None."""
    failed_seeds: Mapping[int, str] = {}
    """Errors of the seeds that did not route."""
    fmax_median_mhz: float | None
    """The usable clock of the median seed: no higher than the block RAM allows."""
    fmax_best_mhz: float | None
    """The usable clock of the best seed."""
    step_latency_us: float | None
    """A step's latency at the median seed's clock."""
    step_interval_us: float | None
    """The time between steps, back to back, at the median seed's clock."""
    best_step_latency_us: float | None
    """A step's latency at the best seed's clock."""
    worst_path: WorstPath | None
    """Result of the median seed."""
    path_families: tuple[PathFamily, ...] = ()
    """Result of the median seed."""
    met: bool | None
    """Whether the best seed reaches the requested clock; None if none was requested."""
    estimate: Estimate | None = None
    """The estimate before synthesis; None for families without estimates."""

    @classmethod
    def create(
        cls,
        *,
        chosen: Chosen,
        cycles: Cycles,
        core: Counts,
        cores: int = 1,
        seeds: Sequence[Routed],
        requested_mhz: float | None,
        estimate: Estimate | None = None,
        **fields: Any,
    ) -> Self:
        """Return the record, with the figures of the median and the best seed."""
        device = chosen.device
        ranked = sorted(seeds, key=lambda seed: seed.fmax_mhz)
        # Of an even number of seeds, the slower of the middle two.
        middle = ranked[(len(ranked) - 1) // 2] if ranked else None
        median = chosen.usable_mhz(middle.fmax_mhz, core.block_rams) if middle else None
        best = chosen.usable_mhz(ranked[-1].fmax_mhz, core.block_rams) if ranked else None

        def time(count: int, clock: float | None) -> float | None:
            return None if clock is None else round(count / clock, 4)

        expected = (
            {} if estimate is None else {name: used for name, used, _ in resource_uses(estimate, device)}
        )
        return cls(
            device=device.name,
            package=chosen.package,
            speed_grade=chosen.grade,
            architecture=device.architecture,
            resources=tuple(
                ResourceUse(name=name, used=used, available=there, estimated=expected.get(name))
                for name, used, there in resource_uses(core * cores, device)
            ),
            cores=cores,
            core=core,
            estimate=estimate,
            requested_mhz=requested_mhz,
            block_ram_mhz=chosen.block_ram_mhz,
            seeds=tuple(seeds),
            fmax_median_mhz=median,
            fmax_best_mhz=best,
            step_latency_us=time(cycles.step_latency_cycles, median),
            step_interval_us=time(cycles.step_interval_cycles, median),
            best_step_latency_us=time(cycles.step_latency_cycles, best),
            worst_path=middle.worst_path if middle else None,
            path_families=middle.path_families if middle else (),
            met=None if requested_mhz is None or best is None else best >= requested_mhz,
            **fields,
        )

    @property
    def folder(self) -> str:
        """The name of the folder with its logs, in ``impl`` of the build."""
        return folder_name(device_label(self.device, self.speed_grade), self.cores)

    @property
    def seed_names(self) -> tuple[str, ...]:
        """What people call the seeds, such as "1 of 3"."""
        return tuple(seed_name(each.seed, self.tried) for each in self.seeds)

    @property
    def tried(self) -> int:
        """The number of seeds, with those that did not route."""
        return len(self.seeds) + len(self.failed_seeds)

    @property
    def note(self) -> str:
        """A note on the counts; empty if there is none."""
        if not self.unpacked_ffs:
            return ""
        counted, unpacked = self.cores * self.core.ffs, self.cores * self.unpacked_ffs
        return (
            f"{counted:,} flip-flops are too many: Yosys packs no register into a DSP48E2 that it infers, "
            f"and {unpacked:,} of these are the multipliers' own, which Vivado packs; expect about "
            f"{counted - unpacked:,}"
        )

    @property
    def clock_error(self) -> float | None:
        """How far the estimated clock is above the median seed's, in percent; None without either."""
        if self.estimate is None or self.estimate.fmax_mhz is None or self.fmax_median_mhz is None:
            return None
        return error_percent(self.estimate.fmax_mhz, self.fmax_median_mhz)

    @property
    def label(self) -> str:
        """Device, package and speed grade, and the number of cores if there are several, as text."""
        parts = [
            self.device,
            self.package,
            f"speed grade {self.speed_grade}" if self.speed_grade else "",
            f"{self.cores} cores" if self.cores > 1 else "",
        ]
        return ", ".join(part for part in parts if part)
