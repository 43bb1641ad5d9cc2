"""Activation patching: identities that hold for any model, and the hand-built one."""

import dataclasses

import pytest
import torch
from hand_built import induction_model

from iclkit import circuits
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import repeated_tokens

SMALL = TransformerConfig(d_vocab=11, n_ctx=12, n_layers=2, d_model=8, n_heads=2, d_mlp=8, layer_norm=True)
CLEAN = torch.randint(11, (4, 10), generator=torch.Generator().manual_seed(0))
CORRUPTED = torch.randint(11, (4, 10), generator=torch.Generator().manual_seed(1))


def metric(logits: torch.Tensor) -> torch.Tensor:
    return (logits[:, -1, 3] - logits[:, -1, 5]).mean()


def test_the_stream_at_the_last_position_after_the_last_layer_is_all_there_is():
    for direction, wanted in (("denoise", 1.0), ("noise", 0.0)):
        effect = circuits.activation_patch(
            Transformer(SMALL), CLEAN, CORRUPTED, metric, "resid_post", direction
        )
        assert effect.shape == (2, 10)
        assert effect[1, -1] == pytest.approx(wanted, abs=1e-4)
        torch.testing.assert_close(effect[1, :-1], torch.full((9,), 1 - wanted), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "at", ["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", *"qkvz", "pattern"]
)
def test_swapping_the_runs_turns_the_scale_round(at):
    model = Transformer(SMALL)
    denoise = circuits.activation_patch(model, CLEAN, CORRUPTED, metric, at, "denoise")
    swapped = circuits.activation_patch(model, CORRUPTED, CLEAN, metric, at, "noise")
    torch.testing.assert_close(denoise, 1 - swapped, atol=1e-4, rtol=1e-4)


def test_a_change_in_one_token_passes_the_stream_at_its_own_position_first():
    model, corrupted = Transformer(SMALL), CLEAN.clone()
    corrupted[:, 4] = (corrupted[:, 4] + 1) % 11
    effect = circuits.activation_patch(model, CLEAN, corrupted, metric)
    assert effect[0, 4] == pytest.approx(1, abs=1e-4)
    assert effect[0, [0, 1, 2, 3, 5, 6, 7, 8, 9]].abs().max() < 1e-4
    assert circuits.activation_patch(model, CLEAN, corrupted, metric, direction="noise")[0, 4].abs() < 1e-4


def test_z_and_result_say_the_same():
    model = Transformer(SMALL)
    z, result = (circuits.activation_patch(model, CLEAN, CORRUPTED, metric, at) for at in ("z", "result"))
    torch.testing.assert_close(z, result, atol=1e-4, rtol=1e-4)


def hand_built_case():
    """Clean: the string comes back. Corrupted: another string comes first."""
    tokens = repeated_tokens(12, 5, batch=6)
    corrupted = tokens.clone()
    for row in range(len(tokens)):
        unused = [t for t in range(1, 12) if t not in tokens[row].tolist()]
        corrupted[row, 1:6] = torch.tensor(unused[:5])
    answer = tokens[:, 10]
    return tokens[:, :10], corrupted[:, :10], lambda logits: logits[:, -1].gather(1, answer[:, None]).mean()


def test_in_the_hand_built_model_both_heads_are_sufficient_where_expected():
    clean, corrupted, metric = hand_built_case()
    model = induction_model()
    z = circuits.activation_patch(model, clean, corrupted, metric, "z")
    assert z[1, 0] == pytest.approx(1, abs=1e-4)  # its output is the answer
    assert z[0, 0] < 0.2  # the right place is found, but holds another token
    pattern = circuits.activation_patch(model, clean, corrupted, metric, "pattern", "noise")
    assert pattern[0, 0] == pytest.approx(1, abs=1e-4)  # previous is previous in either run
    assert pattern[1, 0] < 0.3
    stream = circuits.activation_patch(model, clean, corrupted, metric, "resid_pre")
    assert stream[0].argmax() == 5 or stream[1].argmax() == 5  # the earlier answer stands at place 5


def test_untrained_heads_share_the_effect():
    config = TransformerConfig(d_vocab=11, n_ctx=12, d_model=16, n_heads=4)

    def share(model, tokens):
        return circuits.activation_patch(
            model, tokens, CORRUPTED, lambda logits: logits[:, -1].square().sum(), "z"
        )

    found = circuits.random_baseline(share, config, CLEAN, range(3))
    assert abs(found.mean) < 1 and found.std < 2


def test_nothing_is_left_behind():
    model = Transformer(SMALL)
    before = model(CLEAN)
    circuits.activation_patch(model, CLEAN, CORRUPTED, metric)
    assert torch.equal(model(CLEAN), before)


def test_vectors_given_to_an_embedded_model_are_not_written_into():
    model = Transformer(dataclasses.replace(SMALL, embedded=True, positions="rotary"))
    clean, corrupted = torch.randn(2, 4, 10, 8, generator=torch.Generator().manual_seed(0))
    before = corrupted.clone()
    circuits.activation_patch(model, clean, corrupted, metric, "resid_pre")
    assert torch.equal(corrupted, before)


def test_bad_input():
    model = Transformer(SMALL)
    with pytest.raises(ValueError, match="at must be one of resid_pre.*got 'resid'"):
        circuits.activation_patch(model, CLEAN, CORRUPTED, metric, "resid")
    with pytest.raises(ValueError, match='"denoise" or "noise"; got \'both\''):
        circuits.activation_patch(model, CLEAN, CORRUPTED, metric, direction="both")
    with pytest.raises(ValueError, match="one shape.*\\(4, 10\\) and \\(4, 9\\)"):
        circuits.activation_patch(model, CLEAN, CORRUPTED[:, 1:], metric)
    with pytest.raises(ValueError, match="no effect to share out"):
        circuits.activation_patch(model, CLEAN, CLEAN, metric)
    with pytest.raises(KeyError, match="mlp_out"):
        circuits.activation_patch(
            Transformer(dataclasses.replace(SMALL, d_mlp=0)), CLEAN, CORRUPTED, metric, "mlp_out"
        )
