"""Checks of chapter 207: the match, a slope with its error, the wait on the plateau, a world without one."""

import math

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.minimal.sa import SA, Contexts, coefficients, contexts, wait
from iclkit.tasks import Markov, generator

FLOOR = 0.01


@exercise(seconds=5)
def ex1(answer):
    """s_m for tokens `[batch seq]` and δ."""
    for seed, delta in enumerate((0.0, 1.5, -1.0)):
        tokens = torch.randint(0, 4, (5, 9), generator=generator(207, 1, seed))
        want = SA(4, delta=delta).match(tokens)
        first = want.clone()
        same_, place = (tokens == tokens[:, -1:]).double(), torch.arange(1, 10)
        before = torch.cat([torch.zeros(5, 1), same_[:, :-1]], 1)
        more = math.exp(delta) - 1
        first[:, 0] /= 1 + more
        same(
            answer(tokens, delta),
            want,
            name="the tensor of s_m",
            mistakes={
                "the first place has no place before it: its attention to itself is 1": first,
                "divide by all attention, m − 1 + e^δ from place 2 on, not by m": (
                    same_.cumsum(1) + more * before
                )
                / place,
                "e^δ goes to the place before m, not to m itself": (same_.cumsum(1) + more * same_)
                / (place + more),
                "δ changes nothing in your answer: the previous place weighs e^δ": same_.cumsum(1) / place,
            },
        )
    return "with its own first place, for three δ"


@exercise(seconds=10)
def ex2(answer):
    """c_δ and its standard error."""
    for seed in range(3):
        data = contexts(Markov(vocab=5, K=None, length=20, batch_size=300), seed)
        want = coefficients(data, FLOOR)["c_delta"]
        told = answer(*data)
        if not isinstance(told, (tuple, list)) or len(told) != 2:
            raise Wrong("return two numbers: the estimate, and its standard error")
        root = len(data.tokens) ** 0.5
        shares = torch.nn.functional.one_hot(data.tokens, 5).double().mean(1)
        last = torch.nn.functional.one_hot(data.tokens[:, -1], 5).double()
        f = (1 - FLOOR) * shares + FLOOR / 5
        now = ((1 - FLOOR) * data.rows / f * (last - shares) / 20).sum(1).mean()
        same(
            told[0],
            want.mean,
            name="the estimate",
            mistakes={
                "x_{N−1} is asked for, the state before the last, not the last": now,
                "the factor 1/N is missing": 20 * want.mean,
                "the sign is turned: c_δ is minus the slope of the loss": -want.mean,
            },
            atol=1e-7,
        )
        same(
            told[1],
            want.error,
            name="the standard error",
            mistakes={
                "this is the spread of one sequence; the mean's error is √batch times smaller": want.error
                * root,
                "divide by √batch, not by batch": want.error / root,
            },
            rtol=0.01,  # dividing by batch − 1 or by batch is the same to this
            atol=1e-7,
        )
    return "estimate and error, on three samples"


@exercise(seconds=20)
def ex3(answer):
    """The time at which β reaches 2."""
    for a, b, c in ((3e-3, 2e-4, 5e-3), (1e-3, 1e-3, 4e-3), (0.0, 1e-3, 1e-2), (2e-3, 0.0, 1e-3)):
        want, other = wait(a, b, c), wait(b, a, c)
        same(
            answer(a, b, c),
            want,
            rtol=0.01,
            name=f"the wait for a={a:g}, b={b:g}, c={c:g}",
            mistakes={
                "this is when δ reaches 2; a pushes β": other,
                "β + δ has reached 2 here, β not yet": math.log(1 + 2 * c / (a + b)) / c,
                "this is the wait without help, 2 / a: the term c δ is missing": 2 / a if a else math.inf,
            },
        )
    return "within one per cent, for four cases"


@exercise(seconds=20)
def ex4(answer):
    """A world whose mixed coefficient is less than a tenth of that of our chains."""
    seq = 100
    data = Contexts(*answer(1500, seq, 0))
    check_world(data, seq)
    steep = coefficients(contexts(Markov(vocab=5, K=None, length=seq, batch_size=1500), 0))["mixed"].mean
    flat = coefficients(data)["mixed"]
    if abs(flat.mean) + 2 * flat.error > steep / 10:
        raise Wrong(
            f"c_βδ is {flat.mean:.2g} ± {flat.error:.1g}, that of our chains {steep:.2g}: "
            "a state must not tell what comes after it"
        )
    if torch.equal(data.tokens, answer(1500, seq, 1)[0]):
        raise Wrong("seeds 0 and 1 give the same tokens; draw them from a generator with that seed")
    return f"c_βδ is {abs(flat.mean) / steep:.0%} of that of our chains"


def check_world(data: Contexts, seq: int) -> None:
    """Refuse what is no world, or a trivial one."""
    tokens, rows = data
    if not isinstance(tokens, torch.Tensor) or tokens.dtype != torch.long or tokens.shape != (1500, seq):
        raise Wrong(f"tokens should be whole numbers, [{1500} {seq}]")
    if not isinstance(rows, torch.Tensor) or rows.shape != (1500, 5):
        raise Wrong("the true probabilities should be a tensor, [1500 5]")
    if tokens.min() < 0 or tokens.max() > 4:
        raise Wrong("states are 0 … 4")
    if not torch.allclose(rows.double().sum(1), torch.ones(1500, dtype=torch.double), atol=1e-4):
        raise Wrong("each row of probabilities should sum to one")
    if (tokens == tokens[:, :1]).all(1).float().mean() > 0.05:
        raise Wrong("a sequence should not be constant")
    if (rows - 0.2).abs().max() < 0.02:
        raise Wrong("all states are equally likely; let some be more frequent")
    shares = torch.nn.functional.one_hot(tokens, 5).double().mean((0, 1))
    if (shares - rows.double().mean(0)).abs().max() > 0.05:
        raise Wrong(
            "the probabilities do not fit the sequences: on average they should be the states' shares"
        )
