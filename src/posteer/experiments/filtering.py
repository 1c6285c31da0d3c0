"""How close trained transformers are to exact Bayes: total variation by prefix length.

    python -m posteer.experiments.filtering [--sequences 64] [--length 1999]

For fixed sequences of each shipped model's own process: the total variation between its next-token
law and the exact predictive after so many tokens, as mean and largest over sequences.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from posteer.models import SequenceModel, load, read_manifest, shipped_models
from posteer.models.exact import ExactModel
from posteer.processes import open_process, sample_sequences
from posteer.randomness import numpy_stream, torch_stream
from posteer.shapes import Float

PREFIXES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1999)


def total_variation(
    model: SequenceModel, process: str, n: int, length: int, seed: int = 0
) -> Float[Tensor, "B T1"]:
    """Distance to exact Bayes after 0, 1, ..., length tokens of fixed sequences."""
    exact = ExactModel(open_process(process))
    stream, generator = numpy_stream(seed, "filtering"), torch_stream(seed, "filtering")
    tokens, _ = sample_sequences(exact.process, n, length, stream, generator)
    laws = torch.cat([model.log_predictive(part).cpu() for part in tokens.split(8)])
    return 0.5 * (laws.double().exp() - exact.log_predictive(tokens).exp()).abs().sum(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--length", type=int, default=1999)
    given = parser.parse_args()
    prefixes = [prefix for prefix in PREFIXES if prefix <= given.length]
    print("| model | | " + " | ".join(map(str, prefixes)) + " |")
    print("|---" * (2 + len(prefixes)) + "|")
    for name, folder in shipped_models().items():
        process = str(read_manifest(folder)["process"])
        distance = total_variation(load(name), process, given.sequences, given.length)
        for label, row in (("mean", distance.mean(0)), ("largest", distance.amax(0))):
            cells = " | ".join(f"{float(row[prefix]):.4f}" for prefix in prefixes)
            print(f"| {name} | {label} | {cells} |")


if __name__ == "__main__":
    main()
