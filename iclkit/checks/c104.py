"""Checks of chapter 104: the ICL score, smeared keys, a probe that no fixed offset passes."""

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.circuits import prefix_matching_score
from iclkit.circuits.scores import earlier_occurrences
from iclkit.tasks import generator

MOST = 0.2


@exercise(seconds=5)
def ex1(answer):
    """ICL score of losses `[batch seq]`: the last eighth of positions minus positions n/8 … n/4."""
    for seed, n in enumerate((64, 40, 16)):
        losses = torch.rand(5, n, generator=generator(104, 1, seed)) * 4
        late, early = losses[:, n - n // 8 :].mean(), losses[:, n // 8 : n // 4].mean()
        first, whole = losses[:, : n // 8].mean(), losses.mean()
        same(
            answer(losses),
            late - early,
            name="the score",
            mistakes={
                "the sign is turned: late minus early, so that more negative is more learning": early - late,
                "early means positions n/8 … n/4, not the first eighth": late - first,
                "subtract the early eighth, not the mean over all positions": late - whole,
                "the places depend on the length n; 56 … 63 and 8 … 15 are those of n = 64": float("nan"),
                "average over all sequences, not the first alone": losses[0, n - n // 8 :].mean()
                - losses[0, n // 8 : n // 4].mean(),
            },
        )
    return "late minus early, for three lengths"


@exercise(seconds=5)
def ex2(answer):
    """Smeared keys: `k [batch seq d_head]` and a number `a`."""
    for seed in range(3):
        random = generator(104, 2, seed)
        k, a = torch.randn(2, 7, 4, generator=random), torch.randn((), generator=random) + 0.5
        keep, zero = torch.sigmoid(a), torch.zeros_like(k[:, :1])
        before, after = torch.cat([k[:, :1], k[:, :-1]], 1), torch.cat([k[:, 1:], k[:, -1:]], 1)
        empty, around = torch.cat([zero, k[:, :-1]], 1), k.roll(1, 1)

        def mix(share, other, k=k):
            return share * k + (1 - share) * other

        chain = [k[:, 0]]
        for t in range(1, k.shape[1]):
            chain.append(keep * k[:, t] + (1 - keep) * chain[-1])

        same(
            answer(k, a),
            mix(keep, before),
            name="the tensor of smeared keys",
            mistakes={
                "the shares are exchanged: σ(a) belongs to the key itself": mix(1 - keep, before),
                "each key is mixed with the next one: that looks into the future": mix(keep, after),
                "the first key has nothing before it and stays as it is, unmixed with 0": mix(keep, empty),
                "the first key is mixed with the last: roll goes around": mix(keep, around),
                "the share is σ(a), between 0 and 1, not a itself": mix(a, before),
                "mix with the key before as it came in, not as you have already smeared it": torch.stack(
                    chain, 1
                ),
            },
        )
    return "each key shows the one before it, the first is unchanged"


@exercise(seconds=20)
def ex3(answer):
    """A probe `answer(batch, seed)` on which every head that looks a fixed number of places back fails."""
    probes = [answer(32, seed) for seed in (0, 1)]
    for tokens in probes:
        check_probe(tokens)
        n = tokens.shape[1]
        best = max((fixed_offset_score(tokens, offset), offset) for offset in range(n))
        if best[0] > MOST:
            raise Wrong(
                f"a head that always looks {best[1]} places back has prefix matching {best[0]:.2f} on it; "
                f"at most {MOST} is allowed: let the distance between occurrences vary"
            )
    if torch.equal(*probes):
        raise Wrong("seeds 0 and 1 give the same tokens; draw them from a generator with that seed")
    return f"no fixed offset gets more than {MOST}, an induction head gets 1"


def check_probe(tokens) -> None:
    """Refuse what is no probe at all."""
    if not isinstance(tokens, torch.Tensor) or tokens.is_floating_point() or tokens.ndim != 2:
        raise Wrong("the probe should be a tensor of whole numbers, [batch seq]")
    if len(tokens) != 32 or not 8 <= tokens.shape[1] <= 64:
        raise Wrong(f"the probe should have 32 rows of 8 to 64 tokens; yours is {list(tokens.shape)}")
    if tokens.min() < 0 or tokens.max() > 63:
        raise Wrong(f"tokens lie in 0 … 63; yours in {int(tokens.min())} … {int(tokens.max())}")
    if (tokens[:, 0] != 0).any() or (tokens[:, 1:] == 0).any():
        raise Wrong("each row should begin with BOS, token 0, and hold it nowhere else")
    asked = earlier_occurrences(tokens).any(2).float().mean()
    if asked < 0.25:
        raise Wrong(f"only {asked:.0%} of the tokens stood there before; at least a quarter should")


def fixed_offset_score(tokens, offset: int) -> float:
    """Prefix matching of a head that always looks `offset` places back, at BOS where there is none."""
    n = tokens.shape[1]
    key = (torch.arange(n) - offset).clamp(min=0)
    pattern = torch.nn.functional.one_hot(key, n).float().expand(len(tokens), 1, n, n)
    return prefix_matching_score(pattern, tokens).item()
