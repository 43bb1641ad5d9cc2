"""Records refuse what they cannot hold, and the record that was there stays."""

import types

import numpy as np
import pytest

from iclkit import records
from iclkit.records import __main__ as command
from iclkit.records import store
from iclkit.records.making import make

META = {"config": {"steps": 3}, "seeds": [0, 1], "seconds": 1.5, "recipe": "tests", "scale": "book"}


@pytest.fixture
def folder(tmp_path):
    records.save("tiny", {"loss": np.ones(2), "steps": np.arange(2)}, META, tmp_path)
    return tmp_path


@pytest.mark.parametrize("seconds", [float("nan"), np.float32(1)])
def test_a_record_survives_a_meta_that_cannot_be_written(folder, seconds):
    with pytest.raises(ValueError, match="meta holds JSON values"):
        records.save("tiny", {"x": np.zeros(1)}, {**META, "seconds": seconds}, folder)
    assert set(records.load("tiny", folder)) == {"loss", "steps"}


def test_a_record_without_its_description_is_still_counted(folder):
    (folder / "tiny.json").unlink()
    assert store.names(folder) == ["tiny"]


def test_no_seeds_and_no_models_are_refused(folder):
    recipe = types.ModuleType("walks")
    recipe.NAME, recipe.SEEDS = "walks", (0, 1)
    with pytest.raises(ValueError, match="seeds lists at least one; walks has 0, 1"):
        make(recipe, seeds=[], folder=folder)
    with pytest.raises(KeyError, match="holds no models; it has the arrays loss, steps"):
        records.load_model(records.load("tiny", folder), "2L")


def test_a_damaged_record_ends_the_scorecard_with_one_line(folder, monkeypatch, capsys):
    (folder / "tiny.json").unlink()
    monkeypatch.setattr("iclkit.records.scorecard.write", lambda: store.load("tiny", folder))
    assert command.main(["scorecard"]) == 1
    assert "python -m iclkit.records make tiny" in capsys.readouterr().err
