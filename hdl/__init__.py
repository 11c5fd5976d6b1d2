"""The hardware: Amaranth components, described by a manifest of ``rtlstm.spec``."""
