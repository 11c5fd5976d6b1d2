"""The warning that tells notes about a build to a caller in Python."""


class NoteWarning(UserWarning):
    """A note about a build: what was assumed or left to the host, or what is lost in its formats."""
