"""What a classifier ends in, after its scores: the host computes it."""

__all__ = ["HOST_CLASSES", "host_classes"]

HOST_CLASSES = {
    "softmax": "rtlstm.host.softmax(y)",
    "logsoftmax": "numpy.log(rtlstm.host.softmax(y))",
    "argmax": "rtlstm.host.argmax(y)",
}
"""The host's function for an operator, by its name in small letters without underscores."""


def host_classes(kind: str) -> str | None:
    """Return how the host computes an operator that makes probabilities or classes of scores, or None."""
    return HOST_CLASSES.get(kind.lower().replace("_", ""))
