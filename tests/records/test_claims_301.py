"""C1 and C2 can fail: evaluators built wrongly are noticed, and so is a course without rise or fade."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from iclkit.records.claims import c301, every
from iclkit.tasks import Batch, FewShot, ImageLike, evaluators

SOURCE = dict(n_classes=30, n_exemplars=4, d_features=6, rank=3)
SETTING = SimpleNamespace(meta={"config": [{"source": SOURCE, "task": {"batch_size": 8}}]})
TASK = FewShot(ImageLike(**SOURCE), batch_size=200)
EXAMPLES = {  # context, query, labels, answer
    "Train": ([3, 7], 7, [3, 7], 7),
    "ICL": ([3, 7], 7, [0, 1], 1),
    "Flip": ([3, 7], 7, [7, 3], 3),
    "CIWL": ([3, 7], 9, [9, 7], 9),
    "IWL": ([3, 7], 9, [3, 7], 9),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_an_evaluator_is_its_own_and_nobody_else_s(name):
    assert c301.as_stated(name, *EXAMPLES[name])
    context, query, labels, answer = EXAMPLES[name]
    for other, example in EXAMPLES.items():
        assert c301.as_stated(name, *example) == (other == name)
    assert not c301.as_stated(name, context, query, labels, answer + 1)
    assert not c301.as_stated(name, [query, query], query, labels, answer)


def test_every_evaluator_is_built_as_stated():
    found = every()["C1"].judge(SETTING)
    assert found.verdict == "reproduced" and found.ours == 1 and found.seeds == c301.SEEDS


@pytest.mark.parametrize("name, mix", [("Flip", "bursty"), ("CIWL", "absent"), ("ICL", "relabelled")])
def test_an_evaluator_of_another_mix_is_noticed(monkeypatch, name, mix):
    def wrong(task, *names):
        return {
            k: replace(each, mix=mix) if k == name else each for k, each in evaluators(task, *names).items()
        }

    monkeypatch.setattr(c301, "evaluators", wrong)
    assert every()["C1"].judge(SETTING).verdict == "not reproduced"


def test_a_batch_that_shows_other_pictures_is_noticed(monkeypatch):
    honest = FewShot.batch

    def shifted(task, seed, step):
        inputs, *rest = honest(task, seed, step)
        inputs[3, 0, 0] += 1.0
        return Batch(inputs, *rest)

    assert c301.faithful(TASK, 0).all()
    monkeypatch.setattr(FewShot, "batch", shifted)
    assert np.flatnonzero(~c301.faithful(TASK, 0)).tolist() == [3]
    assert every()["C1"].judge(SETTING).verdict == "not reproduced"


def test_sequences_that_depend_on_the_pictures_are_noticed(monkeypatch):
    other = c301.with_other_pictures(TASK)
    assert c301.same_sequences(TASK, other, 0)
    assert not c301.same_sequences(TASK, replace(other, classes=(0, 29)), 0)
    assert not torch.equal(TASK.batch(0, 0).inputs[..., :3], other.batch(0, 0).inputs[..., :3])


def a_course(seeds=5, **changes) -> dict:
    """Made-up accuracies [seed step 5]: ICL first, CIWL in its place."""
    steps = np.arange(0, 25_000, 500)
    rise, fade = 1 / (1 + np.exp(-(steps - 2500) / 300)), 1 / (1 + np.exp(-(steps - 10_000) / 1500))
    flip, icl, ciwl = 0.5 + 0.3 * rise - 0.75 * fade, 0.5 + 0.4 * rise - 0.3 * fade, 0.55 + 0.4 * fade
    curves = {
        "train": 0.5 + 0.45 * rise,
        "icl": icl,
        "flip": flip,
        "ciwl": ciwl,
        "iwl": 0.001 * rise,
    } | changes
    accuracy = np.stack([curves[name] + 0 * steps for name in ("train", "icl", "flip", "ciwl", "iwl")], 1)
    return {"steps": steps, "accuracy": np.repeat(accuracy[None], seeds, 0)}


class Drawn(dict):
    """A record of one variant, the characters, whose Flip ends at .4; arrays as those of `a_course`."""

    def __init__(self):
        made = a_course(seeds=3)
        made["accuracy"][:, -10:, 2] = 0.4
        super().__init__(steps=made["steps"], accuracy=made["accuracy"][None])
        self.meta = {"config": [{"variant": "characters"}]}


def c2(record):
    return every()["C2"].judge(record, Drawn())


def verdict(**changes) -> str:
    return c2(a_course(**changes)).verdict


def test_a_rise_and_fade_is_told_from_its_parts():
    flip = a_course()["accuracy"][0, :, 2]
    assert verdict() == "reproduced"
    assert verdict(flip=np.minimum(flip, 0.65)) == "not reproduced"  # never rises
    assert verdict(flip=np.maximum(flip, 0.25)) == "not reproduced"  # never fades
    assert verdict(ciwl=0.55) == "not reproduced"  # nobody takes over
    assert verdict(ciwl=0.99) == "not reproduced"  # CIWL is above ICL from the start
    assert verdict(iwl=0.03) == "not reproduced"  # the weights know it alone


def test_seeds_count_one_by_one():
    record = a_course()
    record["accuracy"][0, :, 2] = 0.5
    found = c2(record)
    assert found.verdict == "partly" and found.why.endswith("holds for 4 of 5 seeds")
    assert "3 seeds of half the length: Flip peaks at 0.78 to 0.78 and ends at 0.40 to 0.40" in found.why
    record["accuracy"][:3, :, 2] = 0.5
    assert c2(record).verdict == "not reproduced"


def test_the_course_of_a_run():
    found = c301.course(a_course(seeds=2))
    assert found.flip == pytest.approx([0.76] * 2, abs=0.03) and (found.flip_at > 2500).all()
    assert (found.crossing > 7000).all() and (found.crossing < 12_000).all()
    assert found.end.shape == (2, 5) and (found.end[:, 3] > 0.9).all()
