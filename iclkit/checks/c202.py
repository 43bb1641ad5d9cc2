"""Checks of chapter 202: a distance, a first time or none, a rule that names phases."""

from itertools import combinations

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.predictors import PHASES, UNDECIDED, Distances, divergence
from iclkit.tasks import Markov, generator


@exercise(seconds=5)
def ex1(answer):
    """Mean KL(p ‖ q) of log-probabilities `[sequences states]`, with and without zeros in p."""
    for seed, zero in enumerate((False, True)):
        log_p, log_q = torch.randn(2, 30, 5, generator=generator(202, 1, seed)).mul(2).log_softmax(-1)
        if zero:
            log_p = log_p.masked_fill(torch.arange(5) == torch.arange(30)[:, None] % 5, -torch.inf)
            log_p = log_p.log_softmax(-1)
        want = divergence(log_p[:, None], log_q[:, None])
        gap = (log_p - log_q).masked_fill(torch.isneginf(log_p), 0)
        same(
            answer(log_p, log_q),
            want,
            name="the distance",
            mistakes={
                "this is KL(q ‖ p): weigh by the probabilities of p, the predictor": divergence(
                    log_q[:, None], log_p[:, None]
                ),
                "sum over states, then take the mean over sequences": (log_p.exp() * gap).mean(),
                "take the mean over sequences, not the sum": want * len(log_p),
                "this is the cross-entropy: subtract log q from log p": -(log_p.exp() * log_q).sum(-1).mean(),
            },
        )
    return "right, also where the predictor excludes a state"


@exercise(seconds=5)
def ex2(answer):
    """The first step of a lasting stretch of a name, or None."""
    steps = [0, 10, 30, 70, 100, 200]
    G, M, U = "2-Gen", "2-Mem", UNDECIDED
    for names, lasting, want in (
        ([U, G, G, M, M, M], 1, 10),
        ([U, G, U, G, G, M], 2, 70),
        ([G, G, G, G, G, G], 6, 0),
        ([U, U, U, U, U, G], 1, 200),
        ([U, M, U, M, M, U], 1, None),
        ([U, G, U, G, U, G], 2, None),
        ([U, U, U, U, U, G], 2, None),
    ):
        got = answer(list(steps), list(names), G, lasting)
        said = f"for {' '.join(names)} and lasting = {lasting} "
        if got is None and want is not None:
            raise Wrong(said + "you find none, but there is a stretch")
        if want is None:
            if got is not None:
                raise Wrong(
                    said + f"you give {got}, but there is no such stretch: a censored run has no number"
                )
        elif got != want:
            place = steps.index(want)
            if got == place:
                raise Wrong("return the step, steps[place], not the place in the list")
            if lasting > 1 and got == steps[place + lasting - 1]:
                raise Wrong("return the first look of the stretch, not the last")
            if got == steps[names.index(G)]:
                raise Wrong(said + "you take a stretch that is too short")
            raise Wrong(said + f"you give {got}")
    return "first times are right, and censored runs have none"


@exercise(seconds=10)
def ex3(answer):
    """A rule `answer(distances [2 5], apart [2 5 5])` → a name."""
    for K in (8, 512):
        apart = Distances(Markov(vocab=5, K=K, length=64), sequences=300).apart
        twins = bool(apart[0, 2, 0] < 0.01)
        for column, name in enumerate(PHASES):
            got = ask(answer, apart[..., column], apart)
            if twins and got == "1-Mem":
                raise Wrong(f"with {K} chains 1-Mem is no different from 1-Gen, yet your rule says 1-Mem")
            if not (twins and column == 2) and got != name:
                raise Wrong(f"a network that is {name} itself, with {K} chains, is called {got}")
        if (got := ask(answer, apart[..., 4], apart)) != UNDECIDED:
            raise Wrong(f"a network that guesses evenly is called {got}; it should be undecided")
        for pair in combinations((0, 1, 3), 2):
            table = torch.full((2, 5), 0.4, dtype=torch.float64)
            table[:, list(pair)] = 0.1
            if (got := ask(answer, table, apart)) != UNDECIDED:
                both = " and ".join(PHASES[each] for each in pair)
                raise Wrong(f"equally far from {both} on both tests, a network is called {got}")
    return "names the four, and knows when to be undecided"


def ask(answer, table, apart) -> str:
    """What the rule says; it must be one of the five words."""
    got = answer(table.clone(), apart.clone())
    if got not in (*PHASES, UNDECIDED):
        raise Wrong(f"return one of {', '.join(PHASES)} or {UNDECIDED}; got {got!r}")
    return got
