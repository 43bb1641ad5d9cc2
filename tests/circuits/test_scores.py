"""Scores: slow twins, hand-built right values, random-model baselines, refusals."""

import math

import pytest
import torch
from hand_built import SHARP, duplicate_model, induction_model

from iclkit import circuits
from iclkit.circuits import scores
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import repeated_tokens

PERIOD, VOCAB = 8, 12
CONFIG = TransformerConfig(d_vocab=VOCAB, n_ctx=24, d_model=16, n_heads=4)


def random_pattern(batch: int = 3, head: int = 2, seq: int = 9, seed: int = 0) -> torch.Tensor:
    scores = torch.randn(batch, head, seq, seq, generator=torch.Generator().manual_seed(seed)) * 2
    return scores.masked_fill(torch.ones(seq, seq).triu(1).bool(), -torch.inf).softmax(-1)


def random_tokens(batch: int = 3, seq: int = 9, vocab: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randint(vocab, (batch, seq), generator=torch.Generator().manual_seed(seed))


def slow(pattern, tokens, keys_of) -> list[float]:
    """Mean over queries that have any wanted key of the attention on them, one number at a time."""
    found = []
    for head in range(pattern.shape[1]):
        shares = []
        for row in range(len(tokens)):
            for query in range(tokens.shape[1]):
                keys = keys_of(tokens[row].tolist(), query)
                if keys:
                    shares.append(sum(float(pattern[row, head, query, key]) for key in keys))
        found.append(sum(shares) / len(shares))
    return found


def before(t, i):
    return [i - 1] if i else []


def duplicates(t, i):
    return [j for j in range(i) if t[j] == t[i]]


def followers(t, i):
    return [j + 1 for j in range(i) if t[j] == t[i]]


def stripe(t, i, period=3):
    return [i - period + 1] if i >= period and t[i - period] == t[i] else []


@pytest.mark.parametrize("seed", range(5))
def test_scores_agree_with_counting_one_by_one(seed):
    pattern, tokens = random_pattern(seed=seed), random_tokens(seed=seed)
    for fast, keys_of in (
        (scores.previous_token_score(pattern, tokens), before),
        (scores.duplicate_token_score(pattern, tokens), duplicates),
        (scores.prefix_matching_score(pattern, tokens), followers),
        (scores.induction_stripe_score(pattern, tokens, 3), stripe),
    ):
        torch.testing.assert_close(fast, torch.tensor(slow(pattern, tokens, keys_of)))


def test_hand_built_induction_model():
    model, tokens = induction_model(), repeated_tokens(VOCAB, PERIOD, batch=6)
    one, none = torch.tensor(1.0), torch.tensor(0.0)
    assert scores.previous_token(model, tokens)[0, 0] > 0.999
    torch.testing.assert_close(scores.prefix_matching(model, tokens), torch.tensor([[0.0], [1.0]]))
    torch.testing.assert_close(scores.induction_stripe(model, tokens, PERIOD), torch.tensor([[0.0], [1.0]]))
    torch.testing.assert_close(scores.duplicate_token(model, tokens)[1, 0], none)
    torch.testing.assert_close(scores.copying_score_logits(model, tokens)[1, 0], one)
    torch.testing.assert_close(scores.copying_score_logits(model, tokens)[0, 0], -one)


def test_hand_built_model_predicts_every_second_copy():
    for period in range(2, 12):
        tokens = repeated_tokens(VOCAB, period, batch=20)
        loss = circuits.per_token_loss(induction_model(), tokens)
        assert loss[:, period + 1 :].max() < 1e-3


def test_hand_built_duplicate_head():
    model, tokens = duplicate_model(), repeated_tokens(VOCAB, PERIOD, batch=6)
    assert scores.duplicate_token(model, tokens)[0, 0] > 0.999
    assert scores.prefix_matching(model, tokens)[0, 0] < 1e-3
    torch.testing.assert_close(scores.copying_score_logits(model, tokens)[0, 0], torch.tensor(1.0))


def test_stripe_and_prefix_matching_are_one_on_two_distinct_copies():
    model, tokens = Transformer(CONFIG), repeated_tokens(VOCAB, PERIOD, batch=6)
    torch.testing.assert_close(
        scores.prefix_matching(model, tokens), scores.induction_stripe(model, tokens, PERIOD)
    )


def test_untrained_models_attend_about_uniformly():
    tokens = repeated_tokens(VOCAB, PERIOD, batch=16)
    second = range(PERIOD + 1, 2 * PERIOD + 1)
    uniform = sum(1 / (i + 1) for i in second) / len(second)
    for score in (scores.prefix_matching, scores.duplicate_token):
        found = circuits.random_baseline(score, CONFIG, tokens, range(6))
        assert abs(found.mean - uniform) < 0.4 * uniform and 0 < found.std < uniform
    everywhere = sum(1 / (i + 1) for i in range(1, 17)) / 16
    found = circuits.random_baseline(scores.previous_token, CONFIG, tokens, range(6))
    assert abs(found.mean - everywhere) < 0.4 * everywhere
    found = circuits.random_baseline(
        lambda m, t: scores.induction_stripe(m, t, PERIOD), CONFIG, tokens, range(6)
    )
    assert abs(found.mean - uniform) < 0.4 * uniform
    found = circuits.random_baseline(scores.copying_score_logits, CONFIG, tokens, range(6))
    assert -1 < found.mean < -0.4  # one token of nine: 4 · (1/10) − 1 = −.6


@torch.no_grad()
def slow_copying(model: Transformer, tokens: torch.Tensor, layer: int, head: int) -> float:
    _, cache = model.run_with_cache(tokens)
    attn, total = model.blocks[layer].attn, []
    for row in range(len(tokens)):
        for query in range(tokens.shape[1]):
            attended = everything = 0.0
            for key in range(query + 1):
                logits = cache["v", layer][row, key, head] @ attn.W_O[head] @ model.W_U
                raised = (logits - logits.mean()).relu() * cache["pattern", layer][row, head, query, key]
                attended += float(raised[tokens[row, key]])
                everything += sum(float(raised[t]) for t in set(tokens[row].tolist()))
            total.append(attended / (attended + everything))
    return 4 * sum(total) / len(total) - 1


def test_copying_by_logits_agrees_with_one_by_one():
    model, tokens = Transformer(CONFIG), random_tokens(2, 6, VOCAB)
    found = scores.copying_score_logits(model, tokens)
    assert abs(float(found[1, 2]) - slow_copying(model, tokens, 1, 2)) < 1e-5


def test_scores_work_with_layer_norm_and_leave_the_model_alone():
    model = Transformer(TransformerConfig(d_vocab=VOCAB, d_model=16, layer_norm=True, d_mlp=8))
    tokens = repeated_tokens(VOCAB, PERIOD)
    logits = model(tokens)
    for score in (scores.prefix_matching, scores.previous_token, scores.copying_score_logits):
        found = score(model, tokens)
        assert found.shape == (2, 4) and not found.requires_grad
    assert torch.equal(model(tokens), logits)


def test_losses_and_the_icl_score():
    logits = torch.zeros(2, 5, 7)
    losses = circuits.token_losses(logits, torch.ones(2, 5, dtype=torch.int64))
    torch.testing.assert_close(losses, torch.full((2, 4), math.log(7)))
    falling = torch.arange(16.0).neg().expand(3, 16)
    assert circuits.icl_score(falling) == pytest.approx(-14.5 + 2.5)  # places 14, 15 against 2, 3
    assert circuits.icl_score(falling[0]) == pytest.approx(-12)
    flat = circuits.random_baseline(
        lambda m, t: circuits.icl_score(circuits.per_token_loss(m, t)),
        CONFIG,
        random_tokens(200, 17, VOCAB),
        range(4),
    )
    assert abs(flat.mean) < 0.1
    tokens = repeated_tokens(VOCAB, PERIOD, batch=30)
    losses = circuits.per_token_loss(induction_model(), tokens)
    assert (
        circuits.icl_score(losses) < -0.1 * SHARP
    )  # wrong by SHARP / place in the first copy, right in the second


def test_losses_take_any_predictor():
    tokens = random_tokens()
    losses = circuits.per_token_loss(lambda t: torch.zeros(*t.shape, 4), tokens)
    torch.testing.assert_close(losses, torch.full((3, 8), math.log(4)))


def test_bad_input():
    pattern, tokens = random_pattern(), random_tokens()
    with pytest.raises(ValueError, match="sum to 1.*not hook_attn_scores"):
        scores.prefix_matching_score(pattern * 2, tokens)
    with pytest.raises(ValueError, match="tokens of shape \\(3, 9\\); got \\(3, 8\\)"):
        scores.prefix_matching_score(pattern, tokens[:, :-1])
    with pytest.raises(ValueError, match="tokens of shape \\(3, 9\\); got \\(2, 9\\)"):
        scores.duplicate_token_score(pattern, tokens[:2])
    with pytest.raises(ValueError, match="query = key"):
        scores.previous_token_score(pattern[:, :, :5])
    with pytest.raises(
        ValueError, match="no position of these tokens has an earlier occurrence.*repeated_tokens"
    ):
        scores.prefix_matching_score(pattern, torch.arange(9).expand(3, 9))
    with pytest.raises(ValueError, match="the same token 3 places earlier"):
        scores.induction_stripe_score(pattern, torch.arange(9).expand(3, 9), 3)
    with pytest.raises(ValueError, match="1 ≤ period < 9"):
        scores.induction_stripe_score(pattern, tokens, 9)
    with pytest.raises(ValueError, match="8 positions or more; got 7"):
        circuits.icl_score(torch.zeros(2, 7))
    with pytest.raises(ValueError, match="seq ≥ 2"):
        circuits.token_losses(torch.zeros(2, 5, 7), tokens)
    with pytest.raises(ValueError, match="at least one seed"):
        circuits.random_baseline(scores.previous_token, CONFIG, tokens, [])
    with pytest.raises(ValueError, match="n_layers=0"):
        scores.previous_token(Transformer(TransformerConfig(d_vocab=4, n_layers=0)), tokens)
