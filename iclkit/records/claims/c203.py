"""M3 and M4: the circuits behind 1-Gen and 2-Gen (chapter 203)."""

import numpy as np
import torch

from iclkit.circuits.edges import Edge
from iclkit.circuits.subsets import smallest
from iclkit.records.claims import VERDICTS, Measured, claim

NODES = ("Emb", "Att0", "MLP0", "Att1", "MLP1", "Out")
EDGES: list[Edge] = [(a, b) for place, a in enumerate(NODES) for b in NODES[place + 1 :]]
POOL_AND_READ = [("Emb", "Att0"), ("Emb", "MLP0"), ("Att0", "MLP0"), ("MLP0", "Out")]
TOLD = [("Emb", "Att0"), ("Emb", "Att1"), ("Att0", "Att1"), ("Att1", "Out")]
THROUGH_MLP0 = [("Att0", "MLP0"), ("MLP0", "Att1")]
LEAST, CHEAP = 0.9, 0.1


def number(edges: list[Edge]) -> int:
    """A subset's number, as in `circuits.subsets`."""
    return sum(1 << EDGES.index(edge) for edge in edges)


def edges_in(subset: int) -> list[Edge]:
    return [edge for bit, edge in enumerate(EDGES) if subset >> bit & 1]


def cost(record, phase: str, forced: int) -> np.ndarray:
    """What a pattern written by hand costs, as a share of the way to a uniform guess, for each seed."""
    d, guess = record[f"{phase}/distance"], record[f"{phase}/uniform"]
    return (record[f"{phase}/forced"][:, forced] - d) / (guess - d)


@claim(
    "M3",
    finding="One-point circuits pool uniformly, and the first MLP maps counts to the answer",
    chapter="203",
    theirs="as stated",
    unit="entropy of L0H0 against an even look, in 1-Gen",
    records=["models_203", "circuits_203"],
)
def m3(models, record):
    """Pooling: even patterns by hand cost less than 1/10 of the way to a guess; without MLP0 more than half of
    the answer is lost. Reproduced if, besides, pooling and MLP0 alone keep half of it; else partly."""
    entropy = models["K256/entropy"][:, list(models["K256/steps"]).index(300), 0]
    even = cost(record, "1-Gen", 0)
    d, guess = record["1-Gen/distance"], record["1-Gen/uniform"]
    lost = (record["1-Gen/without"][:, 1] - d) / (guess - d)
    alone = record["1-Gen/shares"][:, number(POOL_AND_READ)].astype(float)
    pools, reads = (entropy > 0.9) & (even < CHEAP) & (lost > 0.5), alone >= 0.5
    verdict = VERDICTS[0] if (pools & reads).all() else VERDICTS[1] if pools.all() else VERDICTS[2]
    why = (
        f"even attention by hand in both layers costs at most {even.max():.0%} of the way to a guess; with MLP0 "
        f"at its mean {lost.min():.0%} to {lost.max():.0%} of the way is lost, yet pooling and MLP0 alone, without "
        f"the second layer, keep only {alone.min():.0%} to {alone.max():.0%} of the answer: the second layer "
        "pools what MLP0 wrote once more"
    )
    return Measured(
        float(np.median(entropy)), float(entropy.min()), float(entropy.max()), len(entropy), verdict, why
    )


@claim(
    "M4",
    finding="2-Gen is a statistical induction head: the previous state, then the match",
    chapter="203",
    theirs="as stated, no MLP needed",
    unit="attention of L1H0 to what followed the present state, in 2-Gen",
    records=["models_203", "circuits_203"],
)
def m4(models, record):
    """Head: match and previous state more than 2 and 5 times an even look's, and the match by hand costs less
    than 1/10 of the way to a guess. Reproduced if the four edges told keep 9/10 of the answer; partly if it
    takes others for every seed."""
    even = models["K256/match_even"]
    match, previous = (models[f"K256/{name}"][:, -1] for name in ("match", "previous"))
    by_hand = cost(record, "2-Gen", 2)
    head = (match > 2 * even) & (previous > 0.3) & (by_hand < CHEAP)
    shares = record["2-Gen/shares"].astype(float)
    told = shares[:, number(TOLD)]
    fewest = [edges_in(smallest(torch.from_numpy(each), LEAST)[0]) for each in shares]
    detour = sum(all(edge in edges for edge in THROUGH_MLP0) for edges in fewest)
    verdict = VERDICTS[0] if (head & (told >= LEAST)).all() else VERDICTS[1] if head.all() else VERDICTS[2]
    sizes = sorted({len(edges) for edges in fewest})
    why = (
        f"an even look gives {even.mean():.2f}; attention to the previous state is {previous.min():.2f} to "
        f"{previous.max():.2f} (even: 0.06), and the match written by hand is no worse than the learned one. "
        f"But Emb → Att0 → Att1 → Out with Emb → Att1 keeps only {told.min():.0%} to {told.max():.0%} of "
        f"the answer: the smallest sets that keep {LEAST:.0%} have {' or '.join(map(str, sizes))} of 15 edges, and "
        f"in {detour} of {len(fewest)} seeds the previous state goes through MLP0"
    )
    return Measured(float(np.median(match)), float(match.min()), float(match.max()), len(match), verdict, why)
