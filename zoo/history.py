"""What was measured of the zoo's models, release by release: a CSV file, and the table of the docs.

``python -m rtlstm.zoo.history docs/zoo-history.csv docs/zoo.md`` writes the table of the newest release into
the page. A test compares it.
"""

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rtlstm.fpga.resources import count_text
from rtlstm.spec.errors import InputError
from rtlstm.spec.files import write_file
from rtlstm.zoo.check import ENTRIES, ZooResult

COLUMNS = tuple(name for name in ZooResult.model_fields if name not in ("metric_holds", "comparison"))
_HEAD = (
    "model",
    "bits",
    "device, array",
    "metric",
    "float",
    "built",
    "cycles",
    "clock, estimated",
    "time",
    "LUTs, multipliers, block RAMs",
)
_TABLE = re.compile(rf"^\| {re.escape(' | '.join(_HEAD))} \|\n(?:\|.*\n)+", re.MULTILINE)

Row = dict[str, str]


def read_history(path: Path) -> list[Row]:
    """Return the rows of a history; none if there is no file.

    Raises InputError if the file is not a history.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise InputError(
                f"{path} must be a history of the zoo, whose columns begin with {', '.join(COLUMNS[:3])}; "
                "name another file, or remove it"
            )
        return list(reader)


def record(path: Path, results: Iterable[ZooResult]) -> None:
    """Write results into a history: a row for each version and model, in the place of an earlier one.

    Raises InputError if the file is there and is not a history.
    """
    rows = {(row["version"], row["model"]): row for row in read_history(path)}
    rows |= {(each.version, each.model): _row(each) for each in results}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.getvalue())


def _row(result: ZooResult) -> Row:
    values = ((name, getattr(result, name)) for name in COLUMNS)
    return {name: "" if value is None else _text(value) for name, value in values}


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def table(rows: Sequence[Row]) -> str:
    """Return the newest version's rows as a table of Markdown."""
    newest = [row for row in rows if row["version"] == rows[-1]["version"]]
    names = list(ENTRIES)
    ordered = sorted(newest, key=lambda row: names.index(row["model"]))
    lines = [_HEAD, ("---",) * len(_HEAD), *map(_cells, ordered)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    device = f"`{row['device']}`, " if row["device"] else ""
    sizes = [count_text(float(row[name])) for name in ("luts", "multipliers", "block_rams") if row[name]]
    return (
        f"`{row['model']}`",
        f"{row['weight_bits']}, {row['data_bits']}",
        f"{device}{row['lanes']} x {row['macs']}",
        row["metric"],
        f"{float(row['in_float']):.4g}",
        f"{float(row['built']):.4g}",
        f"{int(row['latency_cycles']):,}",
        f"{float(row['clock_mhz']):.0f} MHz" if row["clock_mhz"] else "",
        f"{float(row['latency_us']):.3g} us" if row["latency_us"] else "",
        ", ".join(sizes),
    )


def with_table(page: str, rows: Sequence[Row]) -> str:
    """Return a page with the table of these rows in the place of the one that it has."""
    found, count = _TABLE.subn(lambda _: table(rows), page)
    if count != 1:
        raise InputError(
            f"the page must have one table that begins with '| {_HEAD[0]} | {_HEAD[1]} |', not {count}"
        )
    return found


if __name__ == "__main__":
    history, page = map(Path, sys.argv[1:])
    write_file(page, with_table(page.read_text(), read_history(history)))
