"""Attention in exemplar–label sequences: against slow twins that read one sequence after another."""

import dataclasses

import pytest
import torch

from iclkit import circuits
from iclkit.circuits import copying
from iclkit.model import TransformerConfig
from iclkit.pairs import pair_transformer
from iclkit.tasks import Batch, FewShot, ImageLike, evaluate, evaluators
from iclkit.tasks.fewshot import in_context_accuracy

SOURCE = ImageLike(n_classes=12, n_exemplars=4, d_features=10, rank=4)
TWO = FewShot(SOURCE, batch_size=24)
FOUR = FewShot(SOURCE, pairs=4, burst=1, batch_size=24)
BURST = FewShot(SOURCE, pairs=4, burst=2, batch_size=24)
TASKS = [*evaluators(TWO, "Train", "ICL", "Flip", "CIWL").values(), FOUR, BURST]
CONFIG = TransformerConfig(d_vocab=12, n_ctx=9, d_model=16, n_heads=4, layer_norm=True, init_scale=2.0)
MODEL = pair_transformer(CONFIG, 10, seed=1, query_only=True)
ONE_LAYER = pair_transformer(dataclasses.replace(CONFIG, n_layers=1), 10, seed=1)
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.mix}-{task.pairs}-{task.burst}")


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def sequences(model, batch, layer):
    """One sequence at a time: its labels, its answer, and its pattern `[head][query][key]`."""
    for inputs, targets in zip(batch.inputs, batch.targets):
        _, cache = model.run_with_cache(inputs[None])
        pattern = cache["pattern", layer].detach()[0]
        yield [int(x) for x in inputs[1::2, -1]], int(targets[-1]), pattern


@every_task
@pytest.mark.parametrize("layer", [0, 1])
def test_induction_strength_agrees_with_reading_one_by_one(task, layer):
    batch, total = task.batch(0, 0), torch.zeros(4)
    for labels, answer, pattern in sequences(MODEL, batch, layer):
        for head in range(4):
            seen = {name: 0.0 for name in labels}
            for pair, name in enumerate(labels):
                seen[name] += pattern[head][-1][2 * pair + 1].item()
            others = [share for name, share in seen.items() if name != answer]
            total[head] += seen[answer] - sum(others) / len(others)
    close(circuits.induction_strength(MODEL, batch, layer), total / 24)
    if layer == 1:
        close(circuits.induction_strength(MODEL, batch), total / 24)


def point(pattern, key):
    pattern = torch.zeros_like(pattern)
    pattern[torch.arange(len(key)), :, -1, key] = 1
    return pattern


def test_the_signs_of_induction_strength_on_flip():
    """A head that looks at the label in the context has +1; one that looks at the query's own label, −1."""
    batch = evaluators(TWO, "Flip")["Flip"].batch(0, 0)
    answer, labels = batch.targets[:, -1:], batch.inputs[:, 1::2, -1].long()
    for right, sign in ((labels == answer, 1.0), (labels != answer, -1.0)):
        key = 2 * right.int().argmax(1) + 1
        hooks = [(("pattern", 1), lambda pattern, hook, key=key: point(pattern, key))]
        close(circuits.induction_strength(MODEL, batch, fwd_hooks=hooks), torch.full((4,), sign))
        parts = circuits.query_attention(MODEL, batch, fwd_hooks=hooks)
        close(parts[:, :, copying.PARTS.index("correct" if sign > 0 else "other")], torch.ones(2, 4))


@every_task
def test_query_attention_agrees_with_reading_one_by_one(task):
    batch = task.batch(0, 1)
    groups = [[] for _ in range(task.pairs)]
    for labels, answer, pattern in sequences(MODEL, batch, 1):
        rows = torch.zeros(4, 4)
        for head in range(4):
            for key, share in enumerate(pattern[head][-1]):
                if key == 2 * task.pairs:
                    part = "itself"
                elif key % 2 == 0:
                    part = "exemplars"
                else:
                    part = "correct" if labels[key // 2] == answer else "other"
                rows[head, copying.PARTS.index(part)] += share
        for pair, name in enumerate(labels):
            if name == answer:
                groups[pair].append(rows)
    found = circuits.query_attention(MODEL, batch)
    close(found, torch.stack([torch.stack(group).mean(0) for group in groups]))
    close(found.sum(2), torch.ones(task.pairs, 4))


@every_task
def test_label_attention_agrees_with_reading_one_by_one(task):
    batch = task.batch(0, 2)
    groups = [[] for _ in range(task.pairs)]
    for labels, answer, pattern in sequences(MODEL, batch, 0):
        both = torch.zeros(2, 4)
        for head in range(4):
            for place in range(1, 2 * task.pairs, 2):
                both[0, head] += pattern[head][place][place - 1] / task.pairs
                both[1, head] += pattern[head][place][place] / task.pairs
        for pair, name in enumerate(labels):
            if name == answer:
                groups[pair].append(both)
    expected = torch.stack([torch.stack(group).mean(0) for group in groups]).mean(0)
    close(torch.stack(circuits.label_attention(MODEL, batch)), expected)


def test_even_attention_is_halved_between_a_label_and_its_exemplar_among_all():
    """Scores of nought: y₁ sees two places, y₂ four, each as much as any other."""
    hooks = [(("pattern", 0), lambda pattern, hook: (pattern > 0) / (pattern > 0).sum(-1, keepdim=True))]
    found = circuits.label_attention(MODEL, TWO.batch(0, 0), fwd_hooks=hooks)
    close(torch.stack(found), torch.full((2, 4), (1 / 2 + 1 / 4) / 2))


def test_groups_count_equally_however_many_sequences_they_have():
    batch = TWO.batch(0, 0)
    correct = copying.correct_places(batch)
    some = torch.cat([torch.nonzero(correct[:, 0])[:6, 0], torch.nonzero(correct[:, 1])[:2, 0]])
    uneven = Batch(*(x[some] for x in batch))
    places = circuits.query_attention(MODEL, uneven)
    row, seen = copying.query_row(MODEL, uneven, 1), copying.pattern_of(MODEL, uneven, 0)
    close(places[:, :, 3], torch.stack([part[:, :, -1].mean(0) for part in (row[:6], row[6:])]))
    previous = (seen[:, :, 1, 0] + seen[:, :, 3, 2]) / 2
    close(circuits.label_attention(MODEL, uneven).previous, (previous[:6].mean(0) + previous[6:].mean(0)) / 2)


@every_task
@pytest.mark.parametrize("alone", [False, True])
def test_imposing_the_attention_that_is_there_changes_nothing(task, alone):
    batch = task.batch(0, 0)
    row = copying.query_row(MODEL, batch, 1)[:, 2]
    hook = copying.query_sees(MODEL, 1, [2], row)
    cut = copying.direct_paths(MODEL, {"L1H2"}) if alone else []
    close(
        circuits.ablate_edges(MODEL, cut, [hook])(batch.inputs),
        circuits.ablate_edges(MODEL, cut)(batch.inputs),
    )
    if not alone:
        close(circuits.ablate_edges(MODEL, [], [hook])(batch.inputs), MODEL(batch.inputs).detach())


def normed(model, x):
    ln = model.ln_final
    return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt() * ln.w + ln.b


@every_task
@torch.no_grad()
def test_imposed_attention_agrees_with_summing_what_heads_write(task):
    batch, head, strength = task.batch(0, 3), 1, 0.7
    kept = circuits.impose_attention(MODEL, batch, [head], strength)
    alone = circuits.impose_attention(MODEL, batch, [head], strength, alone=True)
    W_O = MODEL.blocks[1].attn.W_O[head]
    for i, inputs in enumerate(batch.inputs[:12]):
        _, cache = MODEL.run_with_cache(inputs[None])
        labels, v = inputs[1::2, -1].long().tolist(), cache["v", 1][0, :, head]
        right = [2 * p + 1 for p, name in enumerate(labels) if name == batch.targets[i, -1]]
        wrong = [2 * p + 1 for p, name in enumerate(labels) if name != batch.targets[i, -1]]
        z = sum(strength / len(right) * v[k] for k in right) + sum(
            (1 - strength) / len(wrong) * v[k] for k in wrong
        )
        was = cache["z", 1][0, -1, head] @ W_O
        close(alone[i, -1], normed(MODEL, z @ W_O) @ MODEL.W_U)
        close(kept[i, -1], normed(MODEL, cache["resid_post", 1][0, -1] - was + z @ W_O) @ MODEL.W_U)


def copier():
    """Every head of a last layer copies the label it looks at; where it looks by itself is anywhere."""
    model = pair_transformer(dataclasses.replace(CONFIG, d_model=48, d_head=12, layer_norm=False), 10, seed=2)
    with torch.no_grad():
        attn = model.blocks[1].attn
        model.pairs.W_L.copy_(torch.eye(12, 48))
        model.blocks[0].attn.W_O.zero_()
        model.positions.W_pos.zero_()
        attn.W_V.copy_(torch.eye(48, 12).expand(4, 48, 12))
        attn.W_O.copy_(torch.eye(12, 48).expand(4, 12, 48))
        model._W_U.copy_(torch.eye(48, 12))
    return model


@every_task
def test_a_copier_answers_what_it_is_made_to_look_at(task):
    """It answers right exactly where the correct label has more attention than any other label."""
    batch, strengths = task.batch(0, 0), [0.0, 0.3, 0.8, 1.0]
    expected = torch.zeros(4, 4)
    for inputs, targets in zip(batch.inputs, batch.targets):
        wrong = [name for name in inputs[1::2, -1].tolist() if name != targets[-1]]
        most = max(wrong.count(name) for name in wrong) / len(wrong)
        expected += torch.tensor([s > (1 - s) * most for s in strengths]) / 24
    close(circuits.imposed_accuracy(copier(), batch, strengths, alone=True), expected)


def test_imposed_accuracy_is_that_of_each_head_and_strength():
    batch = TWO.batch(0, 5)
    for alone in (False, True):
        found = circuits.imposed_accuracy(MODEL, batch, (0, 0.4, 1), alone)
        for head, place, strength in ((0, 0, 0.0), (3, 1, 0.4), (2, 2, 1.0)):
            logits = circuits.impose_attention(MODEL, batch, [head], strength, alone)
            assert found[head, place].item() == pytest.approx(in_context_accuracy(logits, batch))


def test_one_layer_is_measured_too():
    batch = TWO.batch(0, 0)
    assert circuits.induction_strength(ONE_LAYER, batch).shape == (4,)
    everything = circuits.impose_attention(ONE_LAYER, batch, range(4), 1.0, alone=True)
    close(everything, circuits.impose_attention(ONE_LAYER, batch, [3, 2, 1, 0], 1.0, alone=True))


WITH_MLP = pair_transformer(dataclasses.replace(CONFIG, d_mlp=8), 10, seed=3)
both = pytest.mark.parametrize("model", [MODEL, WITH_MLP], ids=["attention only", "with MLPs"])


def without_layer_0(model, inputs, fresh):
    """Two passes: layer 0 writes nothing, and layer 1 keeps its clean inputs but for the `fresh` ones."""
    names = [(f"{kind}_input", 1) for kind in "qkv"]
    _, clean = model.run_with_cache(inputs, names)
    hooks = [(("z", 0), lambda z, hook: torch.zeros_like(z))]
    if model.config.d_mlp:
        hooks.append((("mlp_out", 0), lambda x, hook: torch.zeros_like(x)))
    kept = [name for name in names if name[0][0] not in fresh]
    return model.run_with_hooks(inputs, hooks + [(name, lambda x, hook: clean[hook.name]) for name in kept])


@both
@torch.no_grad()
def test_paths_agree_with_two_passes(model):
    inputs, paths = TWO.batch(0, 0).inputs, circuits.path_ablations(model)
    assert list(paths) == ["whole", "direct", "Q", "K", "V", "QKV", "layer 1", "Emb", "Emb alone"]
    for name, fresh in (("direct", ""), ("Q", "q"), ("K", "k"), ("V", "v"), ("QKV", "qkv")):
        close(paths[name](inputs), without_layer_0(model, inputs, fresh))
    assert torch.equal(paths["whole"](inputs), model(inputs))
    found = [paths[name](inputs) for name in paths]
    assert all((a - b).abs().max() > 1e-3 for i, a in enumerate(found) for b in found[:i])


@torch.no_grad()
def test_all_three_inputs_anew_is_layer_0_ablated():
    inputs = TWO.batch(0, 0).inputs
    ablated = circuits.ablate(MODEL, [(0, head) for head in range(4)])
    close(circuits.path_ablations(MODEL)["QKV"](inputs), ablated(inputs))


@torch.no_grad()
def test_the_embeddings_paths_are_what_the_residual_stream_says():
    inputs, paths = TWO.batch(0, 0).inputs, circuits.path_ablations(MODEL)
    _, cache = MODEL.run_with_cache(inputs)
    emb, end = cache["resid_pre", 0][:, -1], cache["resid_post", 1][:, -1]
    parts = {"Emb": end - emb, "Emb alone": emb, "layer 1": cache["resid_pre", 1][:, -1]}
    for name, stream in parts.items():
        expected = torch.stack([normed(MODEL, x) for x in stream]) @ MODEL.W_U
        close(paths[name](inputs)[:, -1], expected)


def test_paths_can_be_evaluated():
    tasks = evaluators(TWO)
    for predict in circuits.path_ablations(MODEL).values():
        found = evaluate(predict, tasks, 24)
        assert set(found) == set(tasks) and all(0 <= x <= 1 for x in found.values())


def test_a_batch_that_does_not_fit_is_refused():
    batch = evaluators(TWO, "IWL")["IWL"].batch(0, 0)
    for measure in (circuits.induction_strength, circuits.query_attention, circuits.label_attention):
        with pytest.raises(ValueError, match="absent from the context in 24 of 24 sequences"):
            measure(MODEL, batch)
    with pytest.raises(ValueError, match="absent from the context in 24 of 24"):
        circuits.imposed_accuracy(MODEL, batch)
    half = dataclasses.replace(TWO, bursty=0.5).batch(0, 0)
    with pytest.raises(ValueError, match=r"absent from the context in \d+ of 24"):
        circuits.induction_strength(MODEL, half)
    alike = FewShot(SOURCE, pairs=2, burst=2).batch(0, 0)
    with pytest.raises(ValueError, match="no other label than the answer"):
        circuits.induction_strength(MODEL, alike)
    with pytest.raises(ValueError, match="no other label than the answer"):
        circuits.impose_attention(MODEL, alike, [0], 0.5)
    good = TWO.batch(0, 0)
    for inputs in (good.inputs[:, :4], good.inputs[:, 1:4], torch.zeros(3, 5), good.inputs[..., :-1] * 0):
        with pytest.raises(ValueError, match="expected a batch of exemplar–label pairs"):
            circuits.induction_strength(MODEL, Batch(inputs, good.targets))
    one = Batch(*(x[:1] for x in good))
    with pytest.raises(ValueError, match="no sequence of this batch has the correct label in pair"):
        circuits.query_attention(MODEL, one)


def test_a_model_that_does_not_fit_is_refused():
    batch = TWO.batch(0, 0)
    for measure in (circuits.induction_strength, circuits.query_attention, circuits.label_attention):
        with pytest.raises(ValueError, match="no head L2H0; this model has L0H0 … L1H3"):
            measure(MODEL, batch, 2)
    with pytest.raises(ValueError, match="no head L1H4"):
        circuits.impose_attention(MODEL, batch, [4], 0.5)
    with pytest.raises(ValueError, match="strength is a share of attention, 0 … 1; got 1.5"):
        circuits.impose_attention(MODEL, batch, [0], 1.5)
    with pytest.raises(ValueError, match="10 features and a label"):
        circuits.induction_strength(
            MODEL, Batch(torch.cat([batch.inputs[..., :1], batch.inputs], 2), batch.targets)
        )
    nothing = pair_transformer(dataclasses.replace(CONFIG, n_layers=0), 10)
    with pytest.raises(ValueError, match="this model has no attention layer"):
        circuits.induction_strength(nothing, batch)
    with pytest.raises(ValueError, match="two layers; this model has 1"):
        circuits.path_ablations(ONE_LAYER)
