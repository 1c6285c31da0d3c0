"""Limits that several rooms share: what is still enumerated, and how much is held at once."""

from __future__ import annotations

ENUMERABLE_CONTINUATIONS = 2**16
"""Continuations of a prompt up to which its expected utility on a model is enumerated."""

ENUMERABLE_MEANS = 2**12
"""The same for the mean utility of each of a bank's latents: thousands of them, each enumerated."""

ENUMERABLE_LEAVES = 2**25
"""Prompts or classes x continuations up to which a whole landscape is computed."""

ENUMERABLE_PROMPTS = 2**12
"""Prompts up to which all are read by a model to rank one among them."""

ENUMERABLE_CLASSES = 50_000
"""Classes of prompts up to which all are scored."""

LISTED_PROMPTS = 2**16
"""Prompts up to which those that are allowed are listed."""

NUMBERS_AT_ONCE = 2**22
"""Working set, in numbers, of what is worked on repeatedly: it stays in the cache's reach."""

NUMBERS_IN_PASSING = 2**24
"""Working set, in numbers, of tables that are passed over once."""

MOST_TOKENS, MOST_HORIZON = 1_000_000, 10_000
"""Longest prompt or rollout, and longest continuation, that may be asked for at any door."""

MOST_LATENTS = 10_000_000
"""Latents of a bank, rollouts, candidates: more are refused at any door."""

MOST_TABLE_NUMBERS = 2**27
"""Numbers in the tables of all atoms of a prior together: a gibibyte."""

MOST_OF_ANY = 1_000_000
"""Steps, restarts, candidates and the like that a method may be told to take."""

MOST_SEED = 2**62 - 1
"""Seeds and budgets stay below it in size: files keep them as 64 bits."""

N_SAMPLES, ROLLOUT_LENGTH = 5000, 2000
"""Latents of a bank and tokens of each rollout, unless asked otherwise; as in the paper."""

COMPARED = ("auto", "ppt-rb", "gcg", "coordinate")
"""Methods that are compared where none are named."""

DRAW_SECONDS = 120.0
"""Time for a bank of a model whose speed is not known, where no sizes are named."""

RANKED_TOKENS = 2**14
"""Model tokens that ranking all prompts may take on a model that is not exact, unless it is asked
for: the paper's 64 prompts take 1,280."""

MONTE_CARLO_ROLLOUTS = 20_000
"""Continuations of a prompt that are drawn where they cannot be enumerated."""

SAMPLED_ROLLOUTS = 2000
"""The same for each candidate of several that the model is asked about."""

TIE = 1e-5
"""Prompts share a rank if their expected utilities differ by no more of the spread over all
prompts: the paper's tie, whose utilities spread over about 1."""

ROUNDING_OF_EXACT, ROUNDING_OF_NETWORKS = 1e-13, 1.1e-5
"""What arithmetic in double or single precision may do to an expected utility, of its size. With
the second, runs ranked by an absolute tie of 1e-5 as in the paper keep their ranks."""
