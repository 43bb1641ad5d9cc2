"""Models in records: what is packed comes back, what is not there is named; claims of 104 can fail."""

import numpy as np
import pytest
import torch

from iclkit import Transformer, TransformerConfig, records
from iclkit.records.claims import every
from iclkit.records.models import load_model, pack

SMALL = dict(d_vocab=7, n_ctx=8, n_layers=2, d_model=8, n_heads=2, layer_norm=True, smeared_keys=True)


@pytest.fixture
def record(tmp_path):
    model = Transformer(TransformerConfig(**SMALL), seed=3)
    arrays = {f"small/3/{name}": array for name, array in pack(model).items()} | {"small/loss": np.zeros(2)}
    meta = {"config": [{"variant": "small", "model": SMALL}], "seeds": [3], "seconds": 1.0, "recipe": "tests"}
    return records.save("models", arrays, meta | {"scale": "book"}, tmp_path)


def test_a_model_comes_back_with_the_same_logits(record):
    tokens = torch.arange(7)[None]
    again = load_model(record, "small", 3)
    assert torch.equal(again(tokens), Transformer(TransformerConfig(**SMALL), seed=3)(tokens))
    assert not again.training


def test_what_the_record_lacks_is_named(record):
    with pytest.raises(KeyError, match="no variant 'large'; it has small"):
        load_model(record, "large", 3)
    with pytest.raises(KeyError, match=r"no seed 0 of 'small'; it has 3"):
        load_model(record, "small", 0)


def test_a_checkpoint_is_named_by_its_step(tmp_path):
    models = {step: Transformer(TransformerConfig(**SMALL), seed=step) for step in (10, 20)}
    arrays = {f"small/0/{step}/{name}": w for step, m in models.items() for name, w in pack(m).items()}
    meta = {"config": [{"variant": "small", "model": SMALL}], "seeds": [0], "seconds": 1.0, "recipe": "tests"}
    record = records.save("steps", arrays, meta | {"scale": "book"}, tmp_path)
    tokens = torch.arange(7)[None]
    for step, model in models.items():
        assert torch.equal(load_model(record, "small", 0, step)(tokens), model(tokens))
    for step in (None, 15):
        with pytest.raises(KeyError, match=rf"has steps \[10, 20\] of 'small', seed 0; got step={step}"):
            load_model(record, "small", 0, step)


def test_final_weights_have_no_step(record):
    with pytest.raises(KeyError, match="no steps, only the final weights"):
        load_model(record, "small", 3, step=10)


def test_claims_fail_on_gradual_growth():
    arrays = dict(records.load("part1_models"))
    steps = arrays["2L/steps"]
    straight = np.linspace(0, 1, len(steps))[None].repeat(5, 0)
    arrays["2L/prefix"] = np.stack([0 * straight, 0.8 * straight], 2)[..., None]
    arrays["2L/icl"], arrays["2L/loss"] = -3 * straight, 4 - 2 * straight
    assert every()["I3"].judge(arrays).verdict == "not reproduced"
    arrays["1L/prefix"] = arrays["1L-smeared/prefix"]
    assert every()["I4"].judge(arrays).verdict == "not reproduced"
