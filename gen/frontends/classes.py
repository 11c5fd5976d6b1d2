"""What a classifier ends in, after its scores: the host computes it."""

__all__ = ["host_classes"]

_HOST = {
    "softmax": "rtlstm.host.softmax(y)",
    "logsoftmax": "numpy.log(rtlstm.host.softmax(y))",
    "argmax": "rtlstm.host.argmax(y)",
}
"""The host's function for an operator, by its name in small letters without underscores."""


def host_classes(kind: str, apart: bool = False) -> str | None:
    """Return how the host computes an operator that makes probabilities or classes of scores, or None.

    Its scores are all of y, or one of several parts if these stand ``apart``.
    """
    found = _HOST.get(kind.lower().replace("_", ""))
    return found and f"{found.replace('(y)', '(parts(y)[NAME])')}, NAME being its part" if apart else found
