"""Recognises an LSTM with norms in a step that a model writes: of its gates' products, and of c for h."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from rtlstm.gen.frontends.arrays import Floats
from rtlstm.gen.frontends.forms import Form, Forms, as_matrix
from rtlstm.gen.frontends.formulas import operator_of
from rtlstm.gen.frontends.graph import Node
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Lstm, LstmNorms, Norm

_IS = (
    "a step with norms is an LSTM, `c = f * c + i * g` and `h = o * tanh(c)` or `o * tanh(norm(c))`, whose "
    "norms are each of all four gates' products with the input, with h, or of the sum of both; write it so, "
    "with a c that is kept before its norm, or put norms between layers"
)


@dataclass(frozen=True)
class NormedLstm:
    """An LSTM with norms, the tensors that it reads side by side, and the states that are its h and c."""

    layer: Lstm
    sources: tuple[str, ...]
    h: str
    c: str


def find_normed(
    forms: Forms, states: Mapping[str, str], moving: frozenset[str], name: str
) -> NormedLstm | None:
    """Read states, whose new values have these names, as one LSTM with norms; None without norms.

    Raises ModelError if there are norms in their steps that are none of an LSTM.
    """
    within = (node for node in forms.graph.nodes if node.operator == "layer_norm")
    if not any(output in moving for node in within for output in node.outputs):
        return None
    if len(states) == 2:
        for h, c in (tuple(states), tuple(states)[::-1]):
            if (found := _Match(forms, moving, h, c).read(states, name)) is not None:
                return found
    raise ModelError(_IS)


@dataclass
class _Match:
    """A step as that of an LSTM whose old states have these names."""

    forms: Forms
    moving: frozenset[str]
    h: str
    c: str
    products: dict[str, Floats] = field(default_factory=dict)
    """The matrices of what is multiplied, with rows gate by gate."""

    def read(self, states: Mapping[str, str], name: str) -> NormedLstm | None:
        """Return the layer, or None if the step is of another form."""
        new_h, new_c = (self.forms.behind(states[each]) for each in (self.h, self.c))
        for o, read in self._pairs(new_h):
            of_o, of_c = self._function(o), self._function(read)
            cell = None if of_c is None else self._normed_state(of_c[1], new_c)
            if of_o is None or of_c is None or cell is None:
                continue
            for i, f, g in self._gates(new_c, of_o[0]):
                candidate = self._function(g)
                assert candidate is not None
                args = [self._argument(each) for each in (i, f, g, o)]
                layer = self._layer(name, args, cell[0])
                functions = {"gate": of_o[0], "candidate": candidate[0], "output_activation": of_c[0]}
                return NormedLstm(layer.replace(**functions), tuple(self.products), self.h, self.c)
        return None

    def _made(self, tensor: str, operator: str) -> Node | None:
        node = self.forms.graph.producer(self.forms.behind(tensor))
        return node if node is not None and operator_of(self.forms.graph, node) == operator else None

    def _pairs(self, tensor: str, operator: str = "mul") -> Iterator[tuple[str, str]]:
        """The two values that a tensor is the product or sum of, in both orders."""
        node = self._made(tensor, operator)
        if node is not None and len(node.inputs) == 2:
            one, other = map(self.forms.behind, node.inputs)
            yield from ((one, other), (other, one))

    def _function(self, tensor: str) -> tuple[ActivationFunction, str] | None:
        node = self._made(tensor, "activation")
        return None if node is None else (node.function(), self.forms.behind(node.inputs[0]))

    def _argument(self, tensor: str) -> str:
        found = self._function(tensor)
        assert found is not None
        return found[1]

    def _normed_state(self, tensor: str, new_c: str) -> tuple[Norm | None] | None:
        """The norm of c that is read for h, if there is one; None of another value."""
        if tensor == new_c:
            return (None,)
        node = self._made(tensor, "layer_norm")
        if node is None or self.forms.behind(node.inputs[0]) != new_c:
            return None
        return (self._norm(node, self.forms.width(self.c)),)

    def _gates(self, new_c: str, gate: ActivationFunction) -> Iterator[tuple[str, str, str]]:
        """The activations i, f and g of a sum that is the new c."""
        for kept, added in self._pairs(new_c, "add"):
            for f, old in self._pairs(kept):
                for i, g in self._pairs(added):
                    found = [self._function(each) for each in (f, i, g)]
                    if old == self.c and all(found) and [one[0] for one in found[:2] if one] == [gate] * 2:
                        yield i, f, g

    def _norm(self, node: Node, size: int) -> Norm:
        rank = len(self.forms.graph.shape(node.inputs[0])) or 2
        axes = node.attributes.get("axes") or range(int(node.attributes.get("axis", -1)) % rank, rank)
        if [axis % rank for axis in axes] != [rank - 1]:
            self._refuse(f"{node.where} normalises over axes {list(axes)}")
        given = dict(zip(("gain", "bias"), node.inputs[1:], strict=False))
        arrays = {name: self.forms.constant(tensor) for name, tensor in given.items() if tensor}
        if any(array is None or array.size not in (1, size) for array in arrays.values()):
            self._refuse(f"gain and bias of {node.where} must have {size} values")
        return Norm(
            name=node.label,
            values=size,
            **{name: np.broadcast_to(array, (size,)) for name, array in arrays.items() if array is not None},
            epsilon=float(node.attributes.get("epsilon", 1e-5)),
            centre=bool(node.attributes.get("centre", True)),
        )

    def _refuse(self, why: str) -> NoReturn:
        raise ModelError(f"{why}; {_IS}")

    # Rows

    def _layer(self, name: str, gates: list[str], cell: Norm | None) -> Lstm:
        units = self.forms.width(self.c)
        rows = [self.forms.read(gate) for gate in gates]
        plain, normed = self._split(rows, units)
        found: dict[str, tuple[Norm, Floats]] = {}
        w_hh: Floats | None = plain.pop(self.h, None)
        mine = bool(plain)
        for node, order in normed:
            form = self.forms.read(node.inputs[0])
            norm = self._norm(node, 4 * units)
            moved = {key: getattr(norm, key) for key in ("gain", "bias")}
            norm = norm.replace(**{key: each[order] for key, each in moved.items() if each is not None})
            terms = {key: as_matrix(weight, 4 * units)[order] for key, weight in form.terms.items()}
            bias = np.broadcast_to(form.bias, (4 * units,))[order]
            of_h = terms.pop(self.h, None)
            kind = "both" if of_h is not None and terms else "input" if terms else "hidden"
            clash = of_h is not None and w_hh is not None
            if kind in found or clash or (terms and mine):
                self._refuse("its gates have several norms, or products beside a norm of such products")
            found[kind] = norm, bias
            w_hh, mine = w_hh if of_h is None else of_h, mine or bool(terms)
            plain |= terms
        if "both" in found and len(found) > 1:
            self._refuse("its gates have several norms")
        for key in plain:
            if key in self.moving or key == self.c:
                self._refuse(f"its gates read {key!r}")
        if w_hh is None or not plain:
            self._refuse("its gates must read the input and h")
        self.products = plain
        arrays = {"input": "input", "hidden": "hidden", "both": "hidden"}
        fields: dict[str, Norm | Floats] = {arrays[kind]: norm for kind, (norm, _) in found.items()}
        fields |= {f"{arrays[kind]}_bias": bias for kind, (_, bias) in found.items() if bias.any()}
        return Lstm(
            name=name,
            w_ih=np.concatenate([*plain.values()], axis=1),
            w_hh=w_hh,
            bias=np.concatenate([np.broadcast_to(form.bias, (units,)) for form in rows]),
            norms=LstmNorms(**fields, cell=cell, together="both" in found),
        )

    def _split(self, rows: list[Form], units: int) -> tuple[dict[str, Floats], list[tuple[Node, Floats]]]:
        """What the gates' rows multiply without a norm, and norms with the order of their values."""
        plain: dict[str, Floats] = {}
        normed: list[tuple[Node, Floats]] = []
        norms = {
            name for node in self.forms.graph.nodes if node.operator == "layer_norm" for name in node.outputs
        }
        for tensor in dict.fromkeys(key for form in rows for key in form.terms):
            node = self._made(tensor, "layer_norm") if tensor in norms else None
            width = 4 * units if node is not None else units
            parts = [form.terms.get(tensor) for form in rows]
            sizes = {part.shape[1] for part in parts if part is not None and part.ndim > 1} or {width}
            (columns,) = sizes if len(sizes) == 1 else (0,)
            if not columns:
                self._refuse(f"its gates read {tensor!r} in different sizes")
            whole = np.concatenate(
                [np.zeros((units, columns)) if part is None else as_matrix(part, columns) for part in parts]
            )
            if node is None:
                plain[tensor] = whole
                continue
            order = whole.argmax(axis=1)
            chosen = np.array_equal(whole, np.eye(columns)[order])
            if columns != len(whole) or not chosen or sorted(order) != [*range(columns)]:
                self._refuse(f"{node.where} must be of all four gates, each with values of its own")
            normed.append((node, order))
        return plain, normed
