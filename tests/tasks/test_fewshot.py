"""Few-shot sequences: single examples of every mix and evaluator, the sampler's slow twin, what must hold."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iclkit.tasks import FewShot, Given, ImageLike, evaluate, evaluators, generator, in_context_accuracy
from iclkit.tasks.fewshot import MIXES, SUPPORTED, accuracy, distinct, edges

TINY = ImageLike(n_classes=30, n_exemplars=5, d_features=6, rank=3)
TASK = FewShot(TINY, batch_size=200)


def rows(task, seed=0, step=0):
    """Every sequence as (context classes, query's class, context labels, answer), in plain lists."""
    drawn = task.draw(seed, step)
    return [
        (classes[:-1], classes[-1], labels, answer)
        for classes, labels, answer in zip(
            drawn.classes.tolist(), drawn.labels.tolist(), drawn.answers.tolist()
        )
    ]


def test_bursty_holds_the_query_class_and_another_with_their_own_labels():
    for context, query, labels, answer in rows(TASK):
        assert context.count(query) == 1 and len(set(context)) == 2
        assert labels == context and answer == query


def test_icl_only_gives_the_two_classes_new_labels_out_of_all():
    seen, own = set(), 0
    for context, query, labels, answer in rows(replace(TASK, mix="relabelled", batch_size=2000)):
        assert context.count(query) == 1 and len(set(context)) == len(set(labels)) == 2
        assert answer == labels[context.index(query)]
        seen |= set(labels)
        own += answer == query
    assert seen == set(range(30)) and 2000 / 30 * 0.6 < own < 2000 / 30 * 1.5


def test_icl_evaluator_gives_them_0_and_1_by_chance():
    answers = Counter()
    for context, query, labels, answer in rows(evaluators(TASK)["ICL"]):
        assert context.count(query) == 1 and len(set(context)) == 2 and sorted(labels) == [0, 1]
        assert answer == labels[context.index(query)]
        answers[answer] += 1
    assert 70 < answers[0] < 130


def test_flip_gives_each_the_label_that_training_gives_the_other():
    flip = evaluators(TASK)["Flip"]
    for trained, flipped in zip(rows(TASK, 3), rows(flip, 3)):
        assert flipped[:2] == trained[:2]
        assert flipped[2] == trained[2][::-1]
        (other,) = set(trained[0]) - {trained[1]}
        assert flipped[3] == other


def test_ciwl_shows_the_answer_and_never_the_query_class():
    places = Counter()
    for context, query, labels, answer in rows(evaluators(TASK)["CIWL"]):
        assert query not in context and len(set(context)) == 2
        assert answer == query and labels.count(query) == 1
        place = labels.index(query)
        assert labels[1 - place] == context[1 - place]
        places[place] += 1
    assert 70 < places[0] < 130


def test_iwl_shows_neither_the_class_nor_its_label():
    for context, query, labels, answer in rows(evaluators(TASK)["IWL"]):
        assert query not in context and query not in labels and len(set(context)) == 2
        assert labels == context and answer == query


def test_ciwl_only_training_is_the_ciwl_construction():
    task = replace(TASK, mix="copied")
    assert evaluators(task)["Train"] == task == evaluators(TASK)["CIWL"]


def test_train_evaluator_is_the_training_without_matching():
    task = replace(TASK, matched=True, zipf=1.0, bursty=0.5)
    assert evaluators(task)["Train"] == replace(task, matched=False, bursty=1.0)
    assert all(not e.matched and e.zipf == 1.0 for e in evaluators(task).values())
    assert list(evaluators(task, "Flip", "IWL")) == ["Flip", "IWL"]


def test_matched_items_of_one_class_are_one_picture():
    task = replace(TASK, pairs=5, burst=2, batch_size=60)
    for matched, most in ((False, 0), (True, 60)):
        drawn, same, together = replace(task, matched=matched).draw(0, 0), 0, 0
        for classes, indices in zip(drawn.classes.tolist(), drawn.indices.tolist()):
            pictures = set(zip(classes, indices))
            same += len(pictures) == len(set(classes)) == 3
            together += len({i for c, i in pictures if c != classes[-1]}) == 1
        assert same >= most and (matched or same < 20)
        assert together < 40, "query's and distractor's picture are drawn apart"


def test_items_draw_their_exemplars_apart():
    drawn = replace(TASK, batch_size=4000).draw(0, 0)
    partner = drawn.classes[:, :-1] == drawn.classes[:, -1:]
    coincide = (drawn.indices[:, :-1] == drawn.indices[:, -1:])[partner].float().mean()
    assert abs(coincide - 1 / 5) < 0.03


def test_bursts_distractors_and_the_rest():
    task = replace(TASK, pairs=8, burst=3)
    for context, query, labels, _ in rows(task):
        counts = Counter(context)
        assert counts.pop(query) == 3 and sorted(counts.values()) == [1, 1, 3] and labels == context
    for context, query, labels, answer in rows(replace(task, mix="swapped")):
        (other,) = [c for c, n in Counter(context).items() if n == 3 and c != query]
        swap = {query: other, other: query}
        assert labels == [swap.get(c, c) for c in context] and answer == other
    for context, _, labels, _ in rows(replace(task, mix="numbered")):
        assert set(labels) == {0, 1, 2, 3} and len(set(zip(context, labels))) == 4
    for context, query, *_ in rows(replace(task, pairs=4, burst=3)):
        assert sorted(Counter(context).values()) == [1, 3] and context.count(query) == 3


def test_the_share_of_bursty_sequences():
    task = replace(TASK, bursty=0.7, batch_size=3000)
    supported = 0
    for context, query, labels, answer in rows(task):
        assert len(set(context)) == 2 and labels == context and answer == query
        supported += query in context
    assert abs(supported / 3000 - 0.7) < 0.03


def test_pairs_stand_in_random_order():
    first = sum(context[0] == query for context, query, *_ in rows(replace(TASK, batch_size=2000)))
    assert abs(first / 2000 - 0.5) < 0.04


@pytest.mark.parametrize("zipf", [0.0, 1.0, 2.5])
def test_classes_follow_their_law(zipf):
    drawn = replace(TASK, zipf=zipf, batch_size=20000).draw(0, 0)
    share = torch.bincount(drawn.classes[:, -1], minlength=30) / 20000
    law = torch.arange(1.0, 31) ** -zipf
    assert torch.allclose(share, law / law.sum(), atol=0.015)


def slow_distinct(stretches: list[int], chances: list[float]) -> list[int]:
    """Lay the stretches that are left end to end, and see in which one the chance falls; then take it out."""
    left, drawn = dict(enumerate(stretches)), []
    for chance in chances:
        point = int(chance * sum(left.values()))
        number = next(iter(left))
        while point >= left[number]:
            point -= left[number]
            number = next(other for other in left if other > number)
        drawn.append(number)
        del left[number]
    return drawn


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=4, max_size=12), st.integers(1, 4), st.integers(0, 10**6))
def test_drawing_without_repeats_agrees_with_its_slow_twin(stretches, count, seed):
    chances = torch.rand(20, count, generator=generator(seed), dtype=torch.float64)
    chances[0] = 0.0
    chances[1] = 1 - 2**-53
    got = distinct(torch.tensor([0, *stretches]).cumsum(0), chances)
    for row, slow in zip(got.tolist(), chances.tolist()):
        assert row == slow_distinct(stretches, slow)
        assert len(set(row)) == count


def test_edges_are_whole_and_every_class_can_be_drawn():
    assert edges(4, 0.0, torch.device("cpu")).tolist() == [0, 1, 2, 3, 4]
    steep = edges(1000, 8.0, torch.device("cpu")).diff()
    assert (steep >= 1).all() and (steep[1:] <= steep[:-1]).all()


@pytest.mark.parametrize("mix", MIXES)
def test_inputs_are_the_exemplars_and_the_labels(mix):
    task = replace(TASK, mix=mix, pairs=3)
    drawn, batch = task.draw(4, 2), task.batch(4, 2)
    assert batch.inputs.shape == (200, 7, 7) and batch.inputs.dtype == torch.float32
    for row in range(0, 200, 40):
        for place in range(3):
            x, y = batch.inputs[row, 2 * place], batch.inputs[row, 2 * place + 1]
            assert torch.equal(x[:-1], TINY.vectors(drawn.classes[row, place], drawn.indices[row, place]))
            assert x[-1] == -1 and y[-1] == drawn.labels[row, place] and (y[:-1] == 0).all()
        assert torch.equal(
            batch.inputs[row, 6, :-1], TINY.vectors(drawn.classes[row, 3], drawn.indices[row, 3])
        )
    assert torch.equal(batch.targets[:, -1], drawn.answers)
    assert batch.mask[:, -1].all() and not batch.mask[:, :-1].any()


def test_a_batch_is_a_pure_function_of_seed_and_step():
    first, again = TASK.batch(3, 7), TASK.batch(3, 7)
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.targets, again.targets)
    for other in (TASK.batch(3, 8), TASK.batch(4, 7), replace(TASK, zipf=1.0).batch(3, 7)):
        assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize("mix", MIXES)
def test_renumbering_classes_renumbers_their_own_labels_and_nothing_else(mix):
    low, high = (replace(TASK, mix=mix, classes=span).draw(0, 0) for span in ((0, 15), (15, 30)))
    own = 0 if mix in ("relabelled", "numbered") else 15
    assert torch.equal(high.classes, low.classes + 15) and torch.equal(high.indices, low.indices)
    assert torch.equal(high.labels, low.labels + own) and torch.equal(high.answers, low.answers + own)


def test_a_range_of_classes_and_exemplars():
    task = replace(TASK, classes=(10, 14), indices=(1, 3), batch_size=500)
    drawn = task.draw(0, 0)
    assert set(drawn.classes.flatten().tolist()) == {10, 11, 12, 13}
    assert set(drawn.indices.flatten().tolist()) == {1, 2}
    assert set(replace(task, mix="relabelled").draw(0, 0).labels.flatten().tolist()) == set(range(30))


def test_mixes_share_their_draws():
    for mix in SUPPORTED:
        assert torch.equal(replace(TASK, mix=mix).draw(0, 0).classes, TASK.draw(0, 0).classes)
    assert torch.equal(replace(TASK, mix="copied").draw(0, 0)[0], replace(TASK, mix="absent").draw(0, 0)[0])


def reader(strategy, table):
    """A predictor that knows what to look for: `icl` matches pictures, `ciwl` knows each picture's class."""

    def classes(x):
        return (x[..., None, None, :] - table).square().sum(-1).min(-1).values.argmin(-1)

    def predict(inputs):
        logits = torch.zeros(*inputs.shape[:2], 30)
        known, shown = classes(inputs[:, 0::2, :-1]), inputs[:, 1::2, -1].long()
        match = known[:, :-1] == known[:, -1:]
        if strategy == "icl":
            logits[:, -1].scatter_add_(1, shown, match.float())
        else:
            logits[:, -1].scatter_(1, known[:, -1:], 1.0)
        return logits

    return predict


def test_evaluators_tell_the_strategies_apart():
    table = torch.randn(30, 5, 6, generator=generator(7))
    tasks = evaluators(replace(TASK, exemplars=Given(table)))
    icl, ciwl = (evaluate(reader(strategy, table), tasks, 1000) for strategy in ("icl", "ciwl"))
    assert icl["Train"] == icl["ICL"] == icl["Flip"] == 1 and ciwl["Train"] == ciwl["CIWL"] == 1
    assert ciwl["Flip"] == 0 and ciwl["IWL"] == 1 and icl["IWL"] < 0.1
    assert 0.3 < icl["CIWL"] < 0.7 and 0.3 < ciwl["ICL"] < 0.7


def test_accuracies_look_at_the_labels_they_should():
    batch = replace(TASK, batch_size=1).batch(0, 0)
    (first, second), answer = batch.inputs[0, 1::2, -1].long().tolist(), int(batch.targets[0, -1])
    wrong = first + second - answer
    absent = next(label for label in range(30) if label not in (first, second))
    logits = torch.zeros(1, 5, 30)
    logits[0, -1, [absent, answer, wrong]] = torch.tensor([3.0, 2.0, 1.0])
    assert in_context_accuracy(logits, batch) == 1 and accuracy(logits, batch) == 0
    logits[0, -1, wrong] = 5.0
    assert in_context_accuracy(logits, batch) == 0


def test_reading_one_sequence():
    read = TASK.draw(0, 0).read(0)
    *pairs, query = read.split(" | ")
    assert len(pairs) == 2 and all(pair.split(".")[0] == pair.split()[1] for pair in pairs)
    assert query.split(".")[0] == query.split(" → ")[1]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"mix": "burst"}, "mix must be one of bursty, relabelled"),
        ({"pairs": 31}, "draws 31 different classes; there are 30"),
        ({"mix": "copied", "classes": (0, 2)}, "draws 3 different classes; there are 2"),
        ({"pairs": 0}, "pairs must be at least 1"),
        ({"burst": 3}, "a burst of 3 needs as many pairs; got pairs=2"),
        ({"bursty": 1.5}, "bursty is a share"),
        ({"bursty": 0.5, "mix": "swapped"}, "1 with others"),
        ({"zipf": -1.0}, "zipf must be finite"),
        ({"zipf": float("nan")}, "zipf must be finite"),
        ({"classes": (5, 31)}, r"classes must lie within the 30 there are, \(0, 30\); got \(5, 31\)"),
        ({"indices": (0, 6)}, r"indices must lie within the 5 there are, \(0, 5\); got \(0, 6\)"),
        ({"indices": (3, 3)}, "indices must lie within"),
        ({"indices": (True, 3)}, "each end of indices must be a whole number; got True"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_impossible_tasks_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        FewShot(TINY, **wrong)


@pytest.mark.parametrize("name, needs", [("ICL", "numbered"), ("Flip", "swapped"), ("CIWL", "copied")])
def test_evaluators_that_one_label_cannot_have_are_refused(name, needs):
    one = FewShot(TINY, pairs=1)
    with pytest.raises(ValueError, match=f"'{needs}' needs two labels in the context"):
        evaluators(one, name)
    assert set(evaluators(one, "Train", "IWL")) == {"Train", "IWL"}
    with pytest.raises(ValueError, match="evaluators are Train, ICL, Flip, CIWL, IWL; got Flop"):
        evaluators(TASK, "Flop")
