"""Checks of chapter 201: 2-Gen, the posterior over chains, a chain that fools the memory."""

import math

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.predictors import Gen, Mem, expected_loss
from iclkit.tasks import Markov, generator
from iclkit.tasks.markov import chains_of, sample

EASY = 0.5


@exercise(seconds=5)
def ex1(answer):
    """2-Gen of one context `x [n]`, for several sizes and α."""
    for seed, (C, n, alpha) in enumerate(((5, 40, 1.0), (3, 60, 0.5), (7, 12, 2.0), (4, 2, 1.0))):
        x = Markov(vocab=C, K=3, length=max(n, 2), batch_size=1).draw(201, seed).tokens[0, :n]
        if n > 2:
            x[n // 2] = x[-1]
        everywhere = torch.bincount(x, minlength=C)
        after, before = x[1:][x[:-1] == x[-1]], x[:-1][x[1:] == x[-1]]

        def smooth(seen, add=alpha, C=C):
            seen = torch.bincount(seen, minlength=C) + add
            return seen / seen.sum()

        same(
            answer(x, C, alpha),
            Gen(2, C, alpha)(x[None], (-1,))[0, 0].exp().to(torch.get_default_dtype()),
            name="the prediction",
            mistakes={
                "count what came after the present state, not what came before it": smooth(before),
                "this counts all states: that is 1-Gen; count only those right after x[-1]": (
                    everywhere + alpha
                )
                / (n + C * alpha),
                "add alpha to each count": smooth(after, 1.0),
                "divide by the sum, so that the answer adds up to one": smooth(after)
                * (len(after) + C * alpha),
            },
        )
    return "right for four sizes, also where the state was never seen before"


@exercise(seconds=5)
def ex2(answer):
    """The posterior of 2-Mem for short and long contexts and for chains with zeros."""
    for seed, n in enumerate((12, 3, 5000)):
        task = Markov(vocab=4, K=6, length=n, batch_size=1, chain_seed=seed)
        drawn = task.draw(201, seed)
        x, P, pi = drawn.tokens[0, :n], drawn.chains.P, drawn.chains.pi
        steps, states = P[:, x[:-1], x[1:]].log(), pi[:, x].log()
        same(
            answer(x, P, pi),
            Mem(2, drawn.chains).log_posterior(x[None], (-1,))[0, 0].exp(),
            name="the posterior",
            mistakes={
                "the first state counts too: begin with pi[:, x[0]]": steps.sum(1).softmax(0),
                "these are the weights of 1-Mem: use the pairs, P[:, x[:-1], x[1:]]": states.sum(1).softmax(
                    0
                ),
                "rows and columns: P[k, i, j] goes from i to j": (
                    pi[:, x[0]].log() + P[:, x[1:], x[:-1]].log().sum(1)
                ).softmax(0),
                "this is the logarithm of the posterior": (pi[:, x[0]].log() + steps.sum(1)).log_softmax(0),
            },
        )
    P = torch.stack([torch.eye(3, dtype=torch.float64)[[1, 2, 0]], torch.full((3, 3), 1 / 3).double()])
    x, chains = torch.tensor([0, 2, 1, 0]), chains_of(P)
    wanted = torch.tensor([0.0, 1.0], dtype=torch.float64)
    same(answer(x, chains.P, chains.pi), wanted, name="the posterior with an impossible chain")
    return "right for 3, 12 and 5,000 states, and with a chain that cannot be"


@exercise(seconds=20)
def ex3(answer):
    """A chain `answer(P) [5 5]` on which 2-Mem pays more than ln 5 and 2-Gen less than EASY."""
    paid = []
    for seed in (0, 1):
        known = Markov(vocab=5, K=8, chain_seed=seed).chains()
        chain = check_chain(answer(known.P.clone()))
        one = chains_of(chain[None])
        x = sample(one, torch.zeros(400, dtype=torch.long), 64, generator(201, 3, seed))
        truth = one.log_P[0][x[:, -1]][:, None]
        gen, mem = (expected_loss(truth, each(x, (-1,))).item() for each in (Gen(2, 5), Mem(2, known)))
        if gen >= EASY:
            raise Wrong(f"2-Gen pays {gen:.2f} nats on it, at most {EASY} is allowed: make it more certain")
        if mem <= math.log(5):
            raise Wrong(
                f"2-Mem pays {mem:.2f} nats on it for chain seed {seed}; more than {math.log(5):.2f} is "
                "needed: choose steps that all of the given chains find unlikely"
            )
        paid.append(mem)
    return f"2-Mem pays {min(paid):.1f} nats or more, 2-Gen less than {EASY}"


def check_chain(chain) -> torch.Tensor:
    """Refuse what is no chain of five states."""
    if not isinstance(chain, torch.Tensor) or chain.shape != (5, 5):
        raise Wrong("return one chain, a tensor [5 5]")
    chain = chain.double()
    if not (chain > 0).all():
        raise Wrong(
            "all probabilities should be positive: a chain with zeros may be one that no memory allows"
        )
    if (chain.sum(1) - 1).abs().max() > 1e-4:
        raise Wrong(
            f"each row should sum to one; yours sum to {[round(s, 3) for s in chain.sum(1).tolist()]}"
        )
    return chain
