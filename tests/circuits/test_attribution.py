"""Direct logit attribution: the parts sum to the logit."""

import dataclasses

import pytest
import torch
from hand_built import SHARP, induction_model

from iclkit import circuits
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import repeated_tokens

SMALL = TransformerConfig(d_vocab=11, n_ctx=12, n_layers=2, d_model=8, n_heads=2)
TOKENS = torch.randint(11, (3, 10), generator=torch.Generator().manual_seed(0))
TARGETS, OTHERS = TOKENS.roll(-1, 1), (TOKENS + 1) % 11


def built(config: TransformerConfig) -> Transformer:
    model = Transformer(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim < 2:
                weight.add_(
                    torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name))) * 0.3
                )
    return model


@pytest.mark.parametrize("positions", ["absolute", "shortformer", "rotary"])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("variant", [{}, {"d_mlp": 16}, {"tied": True}, {"n_layers": 0}])
def test_the_parts_sum_to_the_logit_and_to_differences(positions, layer_norm, variant):
    model = built(dataclasses.replace(SMALL, positions=positions, layer_norm=layer_norm, **variant))
    logits, cache = model.run_with_cache(TOKENS)
    parts = circuits.direct_logit_attribution(cache, model, TARGETS)
    wanted = logits.gather(2, TARGETS[..., None])[..., 0]
    torch.testing.assert_close(sum(parts.values()), wanted, atol=1e-5, rtol=1e-5)
    parts = circuits.direct_logit_attribution(cache, model, TARGETS, versus=OTHERS)
    wanted = wanted - logits.gather(2, OTHERS[..., None])[..., 0]
    torch.testing.assert_close(sum(parts.values()), wanted, atol=1e-5, rtol=1e-5)


def test_in_the_hand_built_model_the_induction_head_says_it_all():
    model, tokens = induction_model(), repeated_tokens(12, 8, batch=4)
    _, cache = model.run_with_cache(tokens)
    parts = circuits.direct_logit_attribution(cache, model, tokens.roll(-1, 1))
    second = slice(9, 16)
    torch.testing.assert_close(parts["L1H0"][:, second], torch.full((4, 7), SHARP))
    assert all(parts[name].abs().max() == 0 for name in ("embed", "pos_embed", "L0H0"))


def test_untrained_parts_have_no_side():
    config = dataclasses.replace(SMALL, d_model=32, n_heads=4)

    def head_share(model, tokens):
        _, cache = model.run_with_cache(tokens)
        return circuits.direct_logit_attribution(cache, model, TARGETS, OTHERS)["L1H0"].mean()

    found = circuits.random_baseline(head_share, config, TOKENS, range(20))
    assert abs(found.mean) < 3 * found.std / 20**0.5 + 1e-3


def test_bad_input():
    model = Transformer(SMALL)
    _, cache = model.run_with_cache(TOKENS)
    with pytest.raises(ValueError, match="targets of shape \\(3, 10\\), like the tokens"):
        circuits.direct_logit_attribution(cache, model, TARGETS[:, :4])
    with pytest.raises(KeyError, match="result"):
        _, partial = model.run_with_cache(TOKENS, ["embed", "pos_embed"])
        circuits.direct_logit_attribution(partial, model, TARGETS)
