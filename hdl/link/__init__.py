"""The device's side of the serial link. ``docs/link.md`` describes the protocol."""
