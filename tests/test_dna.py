"""The study of DNA: what it reads of a folder of AUGUSTUS, and its optimum, against posteer's."""

from itertools import pairwise, product

import dna
import numpy as np
import pytest
import torch

import posteer
from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream
from posteer.tokens.contexts import all_sequences

UTILITY = "def pairs(y):\n    return sum(a == 1 and b == 2 for a, b in zip(y, y[1:]))\n"


def species_file(kernel, order, upper=False, before=""):
    """As AUGUSTUS writes it: comments, other sections, probabilities of four digits."""
    lines = ["# header", before, "[1]", "[P_ls]", "a\t0.5", "[EMISSION]", "# size", "4", "# k", "2"]
    for at, pattern in enumerate(product("acgt", repeat=order + 1)):
        word = "".join(pattern)
        lines.append(f"{word.upper() if upper else word}\t{kernel.flat[at]:.4f}")
    lines += ["# patterns:", "#\taaaaa\t2262152", "[2]", "[EMISSION]", "aaa\t0.9"]
    return "\n".join(lines)


@pytest.fixture
def folder(tmp_path):
    stream = numpy_stream(0, "dna")
    for name in ("ape", "bee", "cow"):
        kernel = stream.dirichlet(np.ones(4), size=16)
        (tmp_path / name).mkdir()
        text = species_file(kernel, 2, upper=name == "bee")
        (tmp_path / name / f"{name}_intron_probs.pbl").write_text(text)
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "dog_intron_probs.pbl").write_text("[EMISSION]\naaa\t0.5\n")
    return tmp_path


def test_tables_are_read_and_their_best_prompt_found(folder, tmp_path, capsys):
    out, utility = tmp_path / "species.safetensors", tmp_path / "cg.py"
    utility.write_text(UTILITY)
    asked = [str(folder), "--out", str(out), "--order", "2", "--length", "5"]
    dna.main([*asked, "--species", "bee,ape,cow"])
    said = capsys.readouterr().out
    prior = posteer.open_process(f"mixture({out})")
    assert prior.names == ("ape", "bee", "cow")
    prompts = all_sequences(4, 5)
    found = posteer.expected_utility(f"exact:mixture({out})", f"{utility}:pairs", prompts, 4)
    best = int(found.expected_utility.argmax())
    tokens = "".join(map(str, prompts[best].tolist()))
    assert f"({tokens}): J {float(found.expected_utility[best]):.6f}" in said


def test_the_mean_number_of_pairs_is_a_sum_over_continuations():
    kernels = numpy_stream(1, "dna").dirichlet(np.ones(4), size=(2, 4))
    for horizon in (1, 2, 4):
        expected = np.zeros((2, 4))
        for tail in product(range(4), repeat=horizon):
            pairs = sum(a == 1 and b == 2 for a, b in pairwise(tail))
            chance, before = np.ones((2, 4)), np.arange(4)
            for token in tail:
                chance, before = chance * kernels[:, before, token], np.full(4, token)
            expected += pairs * chance
        assert np.allclose(dna.pairs_that_follow(kernels, 1, horizon), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (["--species", "dog"], "no table of order 2 of such a species"),
        (["--region", "igenic"], "no table of order 2 in any NAME_igenic"),
        (["--order", "2", "--length", "2"], "expected more than the order"),
        (["--order", "2", "--length", "40"], "too many"),
        (["--out", "x.txt"], "ends with one of"),
    ],
)
def test_what_it_cannot_use_is_one_line(folder, more, match, tmp_path):
    with pytest.raises(InputError, match=match):
        dna.main([str(folder), "--out", str(tmp_path / "x.json"), "--order", "2", *more])


def test_kernels_of_a_file_that_is_cut_are_not_made_up():
    kernel = torch.full((16, 4), 0.25).numpy()
    whole = species_file(kernel, 2)
    assert dna.kernel_of(whole, 2) is not None
    assert dna.kernel_of(whole[: len(whole) // 2], 2) is None
    assert dna.kernel_of(whole, 4) is None
