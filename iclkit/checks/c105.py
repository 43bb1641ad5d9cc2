"""Checks of chapter 105: ablation by the mean, the two ends of the ICL score, all heads but a few removed."""

import torch

from iclkit import circuits
from iclkit.checks import Wrong, exercise, same
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import generator


def put(z, head, value):
    """A copy of z with one head's output set to a value."""
    out = z.clone()
    out[:, :, head] = value
    return out


def without(model, tokens, heads):
    """Logits with these heads removed."""
    return circuits.ablate(model, heads)(tokens).detach()


@exercise(seconds=5)
def ex1(answer):
    """Mean ablation: answer(z, reference, head) → z with one head replaced by its mean, place by place."""
    for seed in range(3):
        random, head = generator(1051, seed), seed
        z, reference = (torch.randn(n, 5, 3, 4, generator=random) for n in (2, 6))

        mistakes = {
            "the mean runs over places as well; every place has its own": put(
                z, head, reference.mean((0, 1))[head]
            ),
            "this is the mean of z; what the head writes as a rule is in the reference": put(
                z, head, z.mean(0)[:, head]
            ),
            "all heads are replaced, not one": reference.mean(0).expand_as(z),
            "this is zero ablation: the head writes nothing, not its mean": put(z, head, 0.0),
        }
        same(
            answer(z, reference, head), put(z, head, reference.mean(0)[:, head]), name="z", mistakes=mistakes
        )
    return "one head holds its mean at each place, the others are untouched, on three random inputs"


@exercise(seconds=5)
def ex2(answer):
    """The two ends of a change of the ICL score: answer(before, after) → [late part, early part]."""
    for seed, n in enumerate((64, 63, 40)):
        before, after = torch.rand(2, n, generator=generator(1052, seed)) * 4
        rise = after - before
        late, early = rise[n - n // 8 :].mean(), -rise[n // 8 : n // 4].mean()
        mistakes = {
            "the early part has the wrong sign: a higher early loss lowers the score": torch.stack(
                [late, -early]
            ),
            "before and after are exchanged": torch.stack([-late, -early]),
            "late and early are exchanged": torch.stack([early, late]),
            "these are losses after the change; take the change": torch.stack(
                [after[n - n // 8 :].mean(), -after[n // 8 : n // 4].mean()]
            ),
            "the early stretch is n/8 … n/4, not the first eighth": torch.stack(
                [late, -rise[: n // 8].mean()]
            ),
        }
        same(answer(before, after), torch.stack([late, early]), name="the pair", mistakes=mistakes)
    return "both ends, and their sum is the change of the score, at three lengths"


@exercise(seconds=20)
def ex3(answer):
    """Sufficiency: answer(model, kept) → a function tokens → logits in which only the heads `kept` write."""
    config = TransformerConfig(d_vocab=12, n_ctx=8, d_model=12, n_heads=3, layer_norm=True)
    every = [(layer, head) for layer in range(2) for head in range(3)]
    for seed, kept in enumerate([[(0, 1), (1, 2)], [(0, 0), (0, 2), (1, 1)]]):
        model, random = Transformer(config, seed), generator(1053, seed)
        tokens = torch.randint(12, (3, 8), generator=random)

        rest = [head for head in every if head not in kept]
        mistakes = {
            "the heads to keep are the ones removed": without(model, tokens, kept),
            "only layer 0 is emptied; the rest of layer 1 still writes": without(
                model, tokens, [h for h in rest if h[0] == 0]
            ),
            "only layer 1 is emptied; the rest of layer 0 still writes": without(
                model, tokens, [h for h in rest if h[0] == 1]
            ),
            "every head is removed, the kept ones too": without(model, tokens, every),
            "nothing is removed": model(tokens).detach(),
        }
        run = answer(model, kept)
        if not callable(run):
            raise Wrong(f"return a function tokens → logits; yours returned {type(run).__name__}")
        same(run(tokens), without(model, tokens, rest), atol=1e-4, name="the logit tensor", mistakes=mistakes)
    return "only the kept heads write, on two random models"
