"""A step's program in words, for people."""

from typing import Annotated, Literal

from pydantic import Field

from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.step import Op
from rtlstm.spec.record import Record

__all__ = ["OpWords", "describe_program", "program_notes"]

When = Literal["before the input", "with the input", "next input is there", "every step"]


class OpWords(Record):
    """What one operation is, in words."""

    when: When
    """``next input is there`` stands for what is done instead if a step ends with its stream's next input."""
    layer: str
    """Its number, from 1, and its name."""
    multiplies: str
    """The vector that the layer's weights are multiplied by."""
    then: str
    """What becomes of the sums."""
    cycles: Annotated[int, Field(ge=1)]
    """Cycles of the array: row groups x words, less the words that are skipped."""
    waits: bool
    """Its words wait until the results that they read have been written."""


def describe_program(manifest: Manifest) -> tuple[OpWords, ...]:
    """Describe every operation of a build's program, in their order."""
    return tuple(
        OpWords(
            when=_when(manifest, index),
            layer=f"{op.layer + 1} {manifest.layers[op.layer].name}",
            multiplies=_vector(manifest, op),
            then=_then(manifest, op),
            cycles=op.words,
            waits=op.waits_for_results,
        )
        for index, op in enumerate(manifest.program.ops)
    )


def program_notes(manifest: Manifest) -> tuple[str, ...]:
    """Say what the words mean: sizes of the array, and which operations take the place of which."""
    parameters, program = manifest.parameters, manifest.program
    notes = [
        f"cycles: groups of {parameters.lanes} rows x words of {parameters.macs} columns, a word a cycle; "
        "what waits, begins when the results that it reads have been written"
    ]
    if program.kept:
        notes[0] += "; words that are zero in a whole group are skipped"
    if program.prefetch is not None:
        last = len(program.ops) - 1
        notes.append(
            f"a step that ends when its stream's next input is there goes on with "
            f"{program.prefetch} to {last}, which take the place of 0 to {program.body}"
        )
    return tuple(notes)


def _when(manifest: Manifest, index: int) -> When:
    program = manifest.program
    if manifest.sequence is not None:
        return "every step"
    if index < program.body:
        return "before the input"
    return "with the input" if program.prefetch is None or index < program.prefetch else "next input is there"


def _vector(manifest: Manifest, op: Op) -> str:
    if op.kind == "recurrent":
        return "own h"
    read = op.layer + 1 - manifest.layers[op.layer].before
    given = "the input" if manifest.sequence is None else "its pass's input"
    text = given if op.from_input else f"results of layer {read}"
    return f"ReLU of {text}" if op.relu else text


def _then(manifest: Manifest, op: Op) -> str:
    added = "adds the kept sums" if op.adds_partials else "adds biases"
    if op.writes_partials:
        return f"{added}, keeps the sums"
    layer = manifest.layers[op.layer]
    gives = "outputs" if layer.dense else "new h and c" if layer.kind == "lstm" else "new h"
    # In whole sequences, results leave the array for the sequence memory.
    leaves = "sent" if manifest.sequence is None else "stored"
    return f"{added}: {gives}, {leaves}" if op.emit else f"{added}: {gives}"
