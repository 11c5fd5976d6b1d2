"""A bill of materials of a build folder in CycloneDX 1.6: the generator, and files with their licences."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from rtlstm.hdl.emit.header import SPDX
from rtlstm.spec.manifest import Manifest

__all__ = ["OUTPUT_LICENCE", "bill_of_materials"]

OUTPUT_LICENCE: Final = SPDX.removeprefix("SPDX-License-Identifier: ")
_GENERATOR_LICENCE: Final = "Apache-2.0"
_OWNED: Final = "The model's numbers: their rights are their owner's."


def bill_of_materials(manifest: Manifest, files: Mapping[str, bytes], owned: Collection[str]) -> str:
    """Return the text of the bill, in JSON. It has no date and no number of its own: same files, same text.

    Parameters
    ----------
    files
        Contents of the files that are listed, by path. No later command may change them.
    owned
        Paths of those that are under no licence of rtlstm's: the model's numbers.
    """
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [
                    {
                        "type": "application",
                        "name": "rtlstm",
                        "version": manifest.rtlstm_version,
                        "licenses": _licences(_GENERATOR_LICENCE),
                    }
                ]
            },
            "component": {
                "type": "firmware",
                "bom-ref": manifest.name,
                "name": manifest.name,
                "version": manifest.build_hash,
            },
        },
        "components": [_file(path, files[path], path in owned) for path in sorted(files)],
    }
    return json.dumps(bill, indent=1) + "\n"


def _file(path: str, content: bytes, owned: bool) -> dict[str, Any]:
    terms = {"description": _OWNED} if owned else {"licenses": _licences(OUTPUT_LICENCE)}
    hashed = {"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}
    return {"type": "file", "bom-ref": path, "name": path, "hashes": [hashed], **terms}


def _licences(identifier: str) -> list[dict[str, dict[str, str]]]:
    return [{"license": {"id": identifier}}]
