"""Rewrites the manifest of a build that an older rtlstm made, where its hardware is today's to the bit."""

import json
from pathlib import Path
from typing import Any

from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.ip.paths import IpPaths
from rtlstm.gen.ip.sbom import bill_of_materials
from rtlstm.spec.build_files import read_listed
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.files import read_file, write_file
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import Manifest, read_fields
from rtlstm.spec.manifest_versions import MANIFEST_SCHEMA, rebuild_command, upgrade
from rtlstm.spec.packing import unpack
from rtlstm.spec.record import Record

__all__ = ["Migration", "migrate_build"]


_AGAIN = "; generate the build again"


class Migration(Record):
    """What was done with a build's manifest."""

    folder: str
    name: str
    found: int
    """The schema version that it had."""
    now: int
    generated_by: str
    """The rtlstm whose Verilog it has, which stays."""
    build_hash: str


def migrate_build(folder: Path) -> Migration:
    """Rewrite a build's manifest in the form of this rtlstm; hardware, weights and bits stay as they are.

    All that follows from shapes, formats and options is computed again and must be what the manifest has: so
    program, cycles and results are today's. Verilog, header and weights are checked, and not changed.

    Raises
    ------
    BuildError
        If it is no build, is damaged, or cannot stay what it is; the message says what changed, and the
        command that makes it again.
    """
    path = folder / "manifest.json"
    fields = read_fields(path)
    try:
        manifest = Manifest.parse(upgrade(fields), folder)
        for file in manifest.files:
            read_listed(folder, manifest, file.path)
        unpack(WeightImage.load(folder / "weights.bin", manifest), manifest)
        BuildReport.load(folder)
    except (ConfigurationError, BuildError) as refused:
        command = rebuild_command(fields, folder, _model_of(folder) or "MODEL")
        raise BuildError(
            f"{path} has schema version {fields.get('schema_version')!r} and cannot become one of version "
            f"{MANIFEST_SCHEMA}: {str(refused).removesuffix(_AGAIN)}{_AGAIN}, with the data that it was "
            f"calibrated with: {command}"
        ) from None
    found = fields["schema_version"]
    if found != MANIFEST_SCHEMA:
        write_file(path, manifest.to_json())
        _write_bill(folder, manifest)
    return Migration(
        folder=str(folder),
        name=manifest.name,
        found=found,
        now=MANIFEST_SCHEMA,
        generated_by=manifest.rtlstm_version,
        build_hash=manifest.build_hash,
    )


def _write_bill(folder: Path, manifest: Manifest) -> None:
    """Write the bill of materials again, if there is one: it has the manifest's hash."""
    path = folder / IpPaths(manifest.name).bill
    if not path.exists():
        return
    listed: list[dict[str, Any]] = json.loads(read_file(path))["components"]
    contents = {each["name"]: read_file(folder / each["name"]) for each in listed}
    owned = [each["name"] for each in listed if "licenses" not in each]
    write_file(path, bill_of_materials(manifest, contents, owned))


def _model_of(folder: Path) -> str:
    """The model's file, as the report names it; empty if that cannot be read."""
    try:
        found = json.loads(read_file(folder / "report.json"))
    except (OSError, ValueError):
        return ""
    source = found.get("source") if isinstance(found, dict) else ""
    return source if isinstance(source, str) else ""
