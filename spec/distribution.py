"""Which distribution this installation comes from: rtlstm, or rtlstm-driver, which is its driver alone."""

from importlib.metadata import PackageNotFoundError, version

WHOLE, DRIVER = "rtlstm", "rtlstm-driver"


def distribution() -> str:
    """Return the name of the installed distribution, as pip takes it."""
    try:
        version(WHOLE)
    except PackageNotFoundError:
        return DRIVER
    return WHOLE
