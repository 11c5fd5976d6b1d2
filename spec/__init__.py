"""The ground floor: networks, formats, programs, manifests. Needs numpy and pydantic alone."""
