"""Mutants by number."""
import random

import attributes
import edges  # noqa: F401: its changes register themselves
import kinds
import operators  # noqa: F401
import structure  # noqa: F401
import wholes  # noqa: F401
from mutation import GENTLE, HARSH, Mutant

CALM = 0.65
"""The share of mutants that get gentle changes only: those that an engine runs are worth most."""

# Changes that find most come more often.
GENTLE += [attributes.other_value, kinds.extreme_integers]
HARSH += [attributes.extreme_value, attributes.extreme_value, kinds.wrong_values, kinds.extreme_constant]


def mutant(seeds, seed, index):
    """The `index`-th mutant of a seed: the same for the same numbers, corpus and version of these files."""
    rng = random.Random(f"{seed}/{index}")
    made = Mutant(seeds.pick(rng), rng, seeds)
    calm = rng.random() < CALM
    wanted = rng.choice([1, 1, 1, 2, 2, 3, 4])
    for _ in range(20):
        if len(made.trail) == wanted:
            break
        change = rng.choice(GENTLE if calm or rng.random() < 0.3 else HARSH)
        try:
            told = change(made)
        except (ValueError, TypeError, OverflowError, LookupError, StopIteration):
            # The model that earlier changes left has no such form; the part that was changed stays.
            told = "in part"
        if told:
            made.trail.append(f"{change.__name__}: {told}")
    return made
