"""Checks of pictures: no text leaves one, or meets another text."""

from itertools import combinations

from rtlstm.gen.pictures.picture import Picture, Text, text_width


def extent(text: Text) -> tuple[float, float, float, float]:
    wide = text_width(text.text, text.size)
    left = text.x - {"start": 0.0, "middle": wide / 2, "end": wide}[text.anchor]
    return left, left + wide, text.y - text.size, text.y


def check_texts(picture: Picture) -> None:
    boxes = [extent(text) for text in picture.texts]
    assert boxes
    for left, right, top, bottom in boxes:
        assert left >= 0 and right <= picture.width and top >= 0 and bottom <= picture.height
    for a, b in combinations(boxes, 2):
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2], (a, b)
