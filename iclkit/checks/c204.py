"""Checks of chapter 204: a swap as a hook, 2-Mem as encode, pool and decode, variance, mean task vectors."""

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.circuits.task_vectors import between
from iclkit.predictors import Mem
from iclkit.tasks import Markov, generator


@exercise(seconds=5)
def ex1(answer):
    """`swap_hook(vectors)` → a hook that puts `vectors [batch d_model]` at the last position."""
    for seed, seq in enumerate((6, 3, 1)):
        random = generator(204, 1, seed)
        tensor, vectors = torch.randn(4, seq, 5, generator=random), torch.randn(4, 5, generator=random)
        everywhere = vectors[:, None].expand(-1, seq, -1)
        last, first = tensor.clone(), tensor.clone()
        last[:, -1], first[:, 0] = vectors, vectors
        before, got = tensor.clone(), called(answer(vectors), tensor)
        if not torch.equal(tensor, before):
            raise Wrong("changes the activation in place; work on tensor.clone()")
        same(
            got,
            last,
            name="what the hook returns",
            mistakes={
                "replace the last position alone; the others belong to the sequence": everywhere,
                "replace the last position, not the first": first,
                "replace, do not add": torch.cat([tensor[:, :-1], tensor[:, -1:] + vectors[:, None]], 1),
            },
        )
    return "the last position is the donor's, the rest is as it was"


def called(hook, tensor):
    """What a hook returns for this activation."""
    if not callable(hook):
        raise Wrong("swap_hook should return a function of (tensor, hook)")
    try:
        return hook(tensor, None)
    except Exception as error:
        raise Wrong(f"the hook raises {type(error).__name__}: {error}") from None


@exercise(seconds=10)
def ex2(answer):
    """2-Mem's posterior over chains from `tokens [seq]` and `log_P [K C C]`, uniform before: `[K]`."""
    for seed in range(3):
        task = Markov(K=5, length=12, batch_size=1, start="uniform", chain_seed=seed)
        drawn = task.draw(204, seed)
        tokens, log_P = drawn.tokens[0, :-1], drawn.chains.log_P
        evidence = log_P[:, tokens[:-1], tokens[1:]]
        wrong_way = log_P[:, tokens[1:], tokens[:-1]]
        states = drawn.chains.log_pi[:, tokens].sum(1)
        same(
            answer(tokens, log_P),
            Mem(2, drawn.chains).log_posterior(tokens[None], (-1,))[0, 0].exp(),
            name="the posterior",
            mistakes={
                "rows are where a transition begins: log_P[k, from, to]": wrong_way.sum(1).softmax(0),
                "evidence adds up: pool with a sum, or multiply the mean by its number": evidence.mean(
                    1
                ).softmax(0),
                "a posterior sums to one over the chains: softmax at the end": evidence.sum(1),
                "these are log-probabilities: exp at the end": evidence.sum(1).log_softmax(0),
                "count transitions, not states (that is 1-Mem)": states.softmax(0),
            },
        )
    return "encode each pair, add up, softmax: 2-Mem's posterior"


@exercise(seconds=5)
def ex3(answer):
    """The share of variance of `x [batch d]` between the classes of `label [batch]`."""
    for seed in range(3):
        random = generator(204, 3, seed)
        label = torch.tensor([0] * 4 + [1] * 9 + [2] * 7)
        x = torch.randn(20, 4, generator=random) + 3 + torch.randn(3, 4, generator=random)[label]
        want = between(x, label)
        means = torch.stack([x[label == k].mean(0) for k in range(3)])
        total = (x - x.mean(0)).square().sum()
        unweighted = (means - means.mean(0)).square().sum(1).mean() / (total / 20)
        same(
            answer(x, label),
            torch.tensor(want),
            name="the share",
            mistakes={
                "take the overall mean away first": float(
                    (means[label].square().sum() / x.square().sum()).item()
                ),
                "a class counts as often as it comes up": unweighted.item(),
                "this is the share within the classes": 1 - want,
                "divide by the total variance, not by that within the classes": want / (1 - want),
            },
        )
    return "between the classes, over the whole"


@exercise(seconds=5)
def ex4(answer):
    """Mean task vectors: `phi [batch d]`, `chain [batch]`, K → `[K d]`."""
    for seed in range(3):
        random = generator(204, 4, seed)
        chain = torch.cat([torch.arange(4), torch.randint(4, (21,), generator=random)])
        phi = torch.randn(25, 3, generator=random)
        want = torch.stack([phi[chain == k].mean(0) for k in range(4)])
        sums = torch.zeros(4, 3).index_add(0, chain, phi)
        same(
            answer(phi, chain, 4),
            want,
            name="the vectors",
            mistakes={
                "divide each sum by the number of sequences of its chain": sums,
                "each chain has its own number of sequences; do not divide all by the same": sums / 25,
                "every chain gets its own mean, not that of all": phi.mean(0).expand(4, -1),
            },
        )
    return "one vector a chain"
