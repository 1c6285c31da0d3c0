"""The DNA of species as a mixture of Markov kernels, from a folder of AUGUSTUS.

    python studies/dna.py CONFIG/species --out species.safetensors
    python studies/dna.py CONFIG/species --species human,fly,arabidopsis --out three.safetensors

The gene finder AUGUSTUS keeps, for each species, what its introns or the DNA between its genes look
like: NAME/NAME_intron_probs.pbl and NAME_igenic_probs.pbl have a section [EMISSION] with a line
`acgta 0.31` for each k letters and the next one. Those of order `--order` are written as kernels
that `exact:mixture(FILE)` reads; letters are the tokens a=0, c=1, g=2, t=3. A file may have a table
for each of several shares of g and c: the first is taken. AUGUSTUS comes without its tables here.

With `--length` all prompts of so many letters are tried: the largest J of the mean number of CG
pairs in what follows (`--horizon`), by enumeration.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from running import Options, positive, run

from posteer.core.errors import InputError, require
from posteer.families.atoms.files import save_atoms

LETTERS = "acgt"
REGIONS = ("intron", "igenic")
MOST_PROMPTS = 4**11


def kernel_of(text: str, order: int) -> np.ndarray | None:
    """The first table of emissions in a file, or None where it has none of this order."""
    section = text.partition("[EMISSION]")[2].partition("\n[")[0]
    found = np.full((4**order, 4), np.nan)
    for pattern, chance in re.findall(r"^([acgtACGT]+)\s+([\d.eE+-]+)\s*$", section, re.MULTILINE):
        if len(pattern) != order + 1:
            return None
        at = 0
        for letter in pattern.lower():
            at = at * 4 + LETTERS.index(letter)
        if np.isnan(found.flat[at]):
            found.flat[at] = float(chance)
    whole = bool(np.isfinite(found).all()) and bool((found.sum(1) > 0).all())
    return found / found.sum(1, keepdims=True) if whole else None


def read_species(folder: Path, region: str, order: int) -> dict[str, np.ndarray]:
    """A kernel for each species that has one; probabilities are rounded there, and add up here."""
    require(folder.is_dir(), f"{folder}: no such folder")
    kernels = {}
    for path in sorted(folder.glob(f"*/*_{region}_probs.pbl")):
        if path.name != f"{path.parent.name}_{region}_probs.pbl":
            continue
        kernel = kernel_of(path.read_text("utf-8", "replace"), order)
        if kernel is not None:
            kernels[path.parent.name] = kernel
    require(len(kernels) > 0, f"{folder}: no table of order {order} in any NAME_{region}_probs.pbl")
    return kernels


def pairs_that_follow(kernels: np.ndarray, order: int, horizon: int) -> np.ndarray:
    """The mean number of CG pairs in what each kernel emits after each context: `[L, C]`."""
    n_contexts = 4**order
    after = (np.arange(n_contexts)[:, None] * 4 + np.arange(4)) % n_contexts
    # A pair counts if both letters are in what follows: after the first the last letter is known.
    value = np.zeros((len(kernels), 2, n_contexts))
    is_c = np.arange(n_contexts) % 4 == 1
    for _ in range(horizon):
        gain = np.zeros((2, n_contexts, 4))
        gain[1, is_c, 2] = 1.0
        following = value[:, 1][:, after]
        value = np.stack([(kernels * (gain[q] + following)).sum(-1) for q in range(2)], 1)
    return value[:, 0]


def best_prompt(kernels: np.ndarray, order: int, length: int, horizon: int) -> tuple[float, str]:
    """The largest J over all prompts, every species equally likely before."""
    require(length > order, f"length {length}: expected more than the order {order}")
    require(4**length <= MOST_PROMPTS, f"length {length}: 4**{length} prompts are too many to try")
    log = np.log(np.maximum(kernels, 1e-300))
    n_contexts = 4**order
    # Row p of `likelihood` is the prompt p as a number in base 4, its last tokens the context.
    likelihood = np.zeros((len(kernels), n_contexts))
    for _ in range(length - order):
        context = np.arange(likelihood.shape[1]) % n_contexts
        likelihood = (likelihood[:, :, None] + log[:, context]).reshape(len(kernels), -1)
    weights = np.exp(likelihood - likelihood.max(0))
    mean = pairs_that_follow(kernels, order, horizon)
    context = np.arange(likelihood.shape[1]) % n_contexts
    value = (weights * mean[:, context]).sum(0) / weights.sum(0)
    best = int(value.argmax())
    letters = [LETTERS[best // 4**place % 4] for place in reversed(range(length))]
    return float(value[best]), "".join(letters)


def main(arguments: list[str] | None = None) -> None:
    options = Options(__doc__)
    options.add_argument("folder", type=Path, help="config/species of AUGUSTUS")
    options.add_argument("--out", type=Path, required=True, help="a .safetensors, .npz or .json")
    options.add_argument("--species", default="", help="names, separated by commas; all if none")
    options.add_argument("--region", choices=REGIONS, default=REGIONS[0])
    options.add_argument("--order", type=positive, default=4)
    options.add_argument("--length", type=positive, help="try all prompts of so many letters")
    options.add_argument("--horizon", type=positive, default=4)
    given = options.parse_args(arguments)
    known = read_species(given.folder, given.region, given.order)
    names = [name.strip() for name in given.species.split(",") if name.strip()] or sorted(known)
    missing = [name for name in names if name not in known]
    if missing:
        raise InputError(f"{missing[0]}: no table of order {given.order} of such a species")
    kernels = {name: known[name] for name in names}
    save_atoms(given.out, kernels)
    print(f"{given.out}: {len(kernels)} kernels of order {given.order}")
    if given.length is not None:
        stacked = np.stack(list(kernels.values()))
        value, prompt = best_prompt(stacked, given.order, given.length, given.horizon)
        as_tokens = "".join(str(LETTERS.index(letter)) for letter in prompt)
        print(f"of {4**given.length:,} prompts the best is {prompt} ({as_tokens}): J {value:.6f}")


if __name__ == "__main__":
    run(main)
