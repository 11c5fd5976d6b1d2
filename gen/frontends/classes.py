"""What a classifier ends in, after its scores: the host computes it."""

_HOST = {
    "softmax": "rtlstm.host.softmax(y)",
    "logsoftmax": "numpy.log(rtlstm.host.softmax(y))",
    "argmax": "rtlstm.host.argmax(y)",
}
"""The host's function for an operator, by its name in small letters without underscores."""


def host_classes(kind: str, part: str = "") -> str | None:
    """Return how the host computes an operator that makes probabilities or classes of scores, or None.

    Its scores are all of y, or the ``part`` of that name.
    """
    found = _HOST.get(kind.lower().replace("_", ""))
    return found and found.replace("(y)", f"(parts(y)[{part!r}])") if part else found
