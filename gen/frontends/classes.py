"""What a classifier ends in, after its scores: the host computes it."""

__all__ = ["host_classes"]

_HOST = {
    "softmax": "rtlstm.host.softmax(y)",
    "logsoftmax": "numpy.log(rtlstm.host.softmax(y))",
    "argmax": "rtlstm.host.argmax(y)",
}
"""The host's function for an operator, by its name in small letters without underscores."""


def host_classes(kind: str) -> str | None:
    """Return how the host computes an operator that makes probabilities or classes of scores, or None."""
    return _HOST.get(kind.lower().replace("_", ""))
