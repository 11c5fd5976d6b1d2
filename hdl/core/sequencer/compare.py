"""A comparison for paths that are decided a cycle ahead."""

from amaranth.hdl import Const, Value


def exceeds(a: Value, b: Value) -> Value:
    """Whether ``a > b``, bit by bit from the top: ``above``, a larger bit was seen; ``equal``, none differed.

    Without a carry chain, whose delay synthesis does not see when it balances logic.
    """
    width = max(len(a), len(b))
    above: Value = Const(0, 1)
    equal: Value = Const(1, 1)
    for bit in reversed(range(width)):
        one = a[bit] if bit < len(a) else Const(0, 1)
        other = b[bit] if bit < len(b) else Const(0, 1)
        above, equal = above | (equal & one & ~other), equal & ~(one ^ other)
    return above
