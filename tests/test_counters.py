"""Philox4x32-10 against published vectors and another implementation of its rounds."""

import torch

from posteer.core.counters import key_of, philox, uniforms

VECTORS = (  # Random123's kat_vectors
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
)


def test_the_published_vectors():
    for counter, key, expected in VECTORS:
        words = philox(
            tuple(torch.tensor([word]) for word in counter),
            tuple(torch.tensor([word]) for word in key),
        )
        assert " ".join(f"{int(word):08x}" for word in words) == expected


def plain(counter, key):
    """The rounds in whole numbers of any size."""
    a, b, c, d = counter
    for turn in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        low = key[0] + turn * 0x9E3779B9 & 0xFFFFFFFF
        high = key[1] + turn * 0xBB67AE85 & 0xFFFFFFFF
        a, b, c, d = (
            right >> 32 ^ b ^ low,
            right & 0xFFFFFFFF,
            left >> 32 ^ d ^ high,
            left & 0xFFFFFFFF,
        )
    return a, b, c, d


def test_a_number_depends_on_its_place_alone():
    keys = [key_of(seed, "rollouts") for seed in (3, 4)]
    drawn = uniforms(torch.tensor(keys), torch.tensor([7, 9]), 6, 5)
    for run, step in ((0, 7), (1, 9)):
        for draw in range(6):
            for latent in range(5):
                word = plain((latent, step, draw // 4, 0), keys[run])[draw % 4]
                assert float(drawn[run, draw, latent]) == word / 2**32
    alone = uniforms(torch.tensor(keys[1:]), torch.tensor([9]), 2, 3)
    assert torch.equal(alone[0], drawn[1, :2, :3])


def test_they_are_uniform_and_independent():
    """Means, variances and neighbours' correlations of 60,000: six standard errors."""
    drawn = uniforms(torch.tensor([key_of(0, "a")]), torch.tensor([1]), 6, 10_000)[0]
    n = drawn.numel()
    assert abs(float(drawn.mean()) - 0.5) < 6 * (1 / 12 / n) ** 0.5
    assert abs(float(drawn.var()) - 1 / 12) < 6 * (1 / 180 / n) ** 0.5
    centred = drawn - 0.5
    for one, other in ((centred[1:], centred[:-1]), (centred[:, 1:], centred[:, :-1])):
        assert abs(float((one * other).mean())) < 6 * (1 / 12) / one.numel() ** 0.5
