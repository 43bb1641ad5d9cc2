"""What is measured of models that must do without previous-token attention, on models of known attention."""

import pytest
import torch

from iclkit.records.recipes import coopetition_301, forbidden_401
from iclkit.records.recipes.coopetition_301 import Look, model_of, task_of


@pytest.fixture(scope="module")
def setting():
    config = forbidden_401.configs("book")[0]
    return Look(task_of(config), 60), model_of(config, 0)


def test_its_config_is_the_forbidden_variant():
    (config,) = forbidden_401.configs("book")
    assert config["forbidden"] == ["previous"] and config["model"] == coopetition_301.MODEL


def test_matching_is_attention_to_the_right_exemplar_minus_the_other(setting):
    look, model = setting
    batch = look.few
    right = 2 * (batch.inputs[:, 3, -1] == batch.targets[:, -1]).long()  # exemplars stand at 0 and 2

    def towards(pattern, hook):
        rows = torch.arange(len(pattern))
        pattern[:, :, -1] = 0
        pattern[rows, 0, -1, right] = 0.75
        pattern[rows, 0, -1, 2 - right] = 0.25
        pattern[rows, 1, -1, 2 - right] = 1
        return pattern

    found = forbidden_401.matching(model, batch, [(("pattern", 0), towards)])
    assert found == pytest.approx([0.5, -1], abs=1e-6)


def test_blinded_the_query_sees_itself_alone_in_layer_0(setting):
    look, model = setting
    inputs, seen = look.few.inputs[:5], []
    predict = forbidden_401.blinded(model, [(("z", 0), lambda z, hook: seen.append(z))])
    assert not torch.equal(predict(inputs), model(inputs))
    _, cache = model.run_with_cache(inputs)
    assert torch.allclose(seen[0][:, -1], cache["v", 0][:, -1], atol=1e-6)
