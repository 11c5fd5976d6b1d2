"""Reverses words with two networks on one device: the decoder goes on where the encoder ends.

The state stays on the device, which gives the number of the largest score, one value in place of eight; the
driver gives it back as the next token. Run with ``python examples/encoder_decoder.py [BACKEND]``; needs
``rtlstm[torch,sim]``.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import rtlstm

LETTERS, UNITS, LONGEST = 6, 32, 5
BEGIN, STOP = LETTERS, LETTERS + 1
Words = NDArray[np.int64]


class Encoder(nn.Module):
    """Letters ``(N, T)`` to the LSTM's outputs; its final state is what matters."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(LETTERS, 8), nn.LSTM(8, UNITS, batch_first=True)

    def forward(self, letters: torch.Tensor) -> Any:
        """Return the outputs of every step."""
        return self.lstm(self.table(letters))[0]


class Decoder(nn.Module):
    """Tokens ``(N, T)`` and a state to the scores of the next tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(LETTERS + 2, 8), nn.LSTM(8, UNITS, batch_first=True)
        self.scores = nn.Linear(UNITS, LETTERS + 2)

    def forward(self, tokens: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        """Return the scores of every step."""
        return self.scores(self.lstm(self.table(tokens), (h, c))[0])


def make_words(count: int, seed: int) -> tuple[Words, Words, Words]:
    """Return words ``(N, T)``, their lengths, and what follows a word: it backwards, then stops."""
    rng = np.random.default_rng(seed)
    words, lengths = rng.integers(0, LETTERS, (count, LONGEST)), rng.integers(2, LONGEST + 1, count)
    backwards = np.full((count, LONGEST + 1), STOP)
    for word, length, reverse in zip(words, lengths, backwards, strict=True):
        reverse[:length] = word[:length][::-1]
    return words, lengths, backwards


def train(updates: int = 500) -> tuple[Encoder, Decoder]:
    """Train both on words that are reversed."""
    torch.manual_seed(0)
    encoder, decoder = Encoder(), Decoder()
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 0.01)
    for update in range(updates):
        words, lengths, backwards = map(torch.from_numpy, make_words(128, update))
        scores = decoder(begun(backwards), *read(encoder, words, lengths))
        optimiser.zero_grad()
        nn.functional.cross_entropy(scores.flatten(0, 1), backwards.flatten()).backward()
        optimiser.step()
    return encoder.eval(), decoder.eval()


def read(encoder: Encoder, words: torch.Tensor, lengths: torch.Tensor) -> Any:
    """Return the states in which the encoder ends, h and c."""
    packed = pack_padded_sequence(encoder.table(words), lengths, batch_first=True, enforce_sorted=False)
    return encoder.lstm(packed)[1]


def begun(backwards: Any) -> Any:
    """Return what the decoder reads: its outputs, a step later."""
    first = torch.full((len(backwards), 1), BEGIN)
    return torch.cat([first, torch.as_tensor(backwards)[:, :-1]], dim=1)


def make_builds(encoder: Encoder, decoder: Decoder, folder: Path) -> tuple[rtlstm.Build, rtlstm.Build]:
    """Make a device with the decoder as its first network, and a build of the encoder for it."""
    words, lengths, backwards = make_words(64, 10_000)
    options: dict[str, Any] = {"weight_bits": 8, "data_bits": 12, "lanes": 8, "macs": 4, "streams": 8}
    options |= {"decide": "argmax", "capacities": {"networks": 2, "operations": 20, "weight_rows": 1024}}
    states = [part.detach().numpy() for part in read(encoder, *map(torch.from_numpy, (words, lengths)))]
    options |= {"calibration": begun(backwards).numpy(), "calibration_state": tuple(states)}
    second = rtlstm.compile(decoder, folder=folder / "decoder", **options)
    given: dict[str, Any] = {"calibration": words, "calibration_lengths": lengths}
    return rtlstm.compile(encoder, folder=folder / "encoder", device=second, **given), second


def reverse(builds: tuple[rtlstm.Build, rtlstm.Build], words: Words, lengths: Words, backend: str) -> Words:
    """Return what the two builds make of words, ``(N, T)``, with STOP behind the end."""
    found = np.full((len(words), LONGEST + 1), STOP)
    with builds[1].open(backend) as decoder:
        encoder = decoder.load(builds[0].folder, network=1)
        for word, length, row in zip(words, lengths, found, strict=True):
            stream = encoder.stream()
            stream.steps(word[:length])
            tokens, _ = decoder.decode(BEGIN, LONGEST + 1, stop=STOP, after=stream)
            row[: len(tokens)] = tokens
    return found


def main(backend: str = "golden", updates: int = 500) -> float:
    """Train, build and reverse; return the share of words that come out backwards."""
    words, lengths, backwards = make_words(200, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        tokens = reverse(make_builds(*train(updates), Path(folder)), words, lengths, backend)
    right = float((tokens == backwards[:, : tokens.shape[1]]).all(axis=1).mean())
    read, wrote = words[0, : lengths[0]], tokens[0][tokens[0] < LETTERS]
    shown = ("".join("abcdef"[letter] for letter in each) for each in (read, wrote))
    print(f"{' -> '.join(shown)}; {100 * right:g} of 100 words are right")
    return right


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "golden")
