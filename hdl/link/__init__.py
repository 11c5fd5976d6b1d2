"""The device's side of the serial link; ``docs/link.md`` has the protocol."""
