"""Records: what is saved comes back; damage says what to do; recipes resume; claims are computed."""

import datetime
import json
import os
import types

import numpy as np
import pytest

from iclkit import TrainConfig, records
from iclkit.records import __main__ as command
from iclkit.records import claims, recipes, scorecard, store
from iclkit.records.claims import Claim, Measured
from iclkit.records.making import MakingError, make, piece_file
from iclkit.records.quoting import QuotedError
from iclkit.records.recipes import Probe

META = {"config": {"steps": 3}, "seeds": [0, 1], "seconds": 1.5, "recipe": "tests", "scale": "book"}
MOST_BYTES = 30_000_000


@pytest.fixture
def folder(tmp_path):
    arrays = {"loss": np.array([[3.0, 2.0], [3.1, 2.1]]), "steps": np.arange(2), "name": np.array(["a", "b"])}
    records.save("tiny", arrays, META, tmp_path)
    return tmp_path


def test_what_is_saved_comes_back(folder):
    record = records.load("tiny", folder)
    assert dict(record).keys() == {"loss", "steps", "name"}
    np.testing.assert_allclose(record["loss"], [[3, 2], [3.1, 2.1]], rtol=1e-6)
    assert record["loss"].dtype == np.float32 and record["steps"].dtype == np.int64
    assert record.meta["seeds"] == [0, 1] and {"torch", "numpy", "iclkit"} <= record.meta["versions"].keys()
    assert not list(folder.glob("*.partial"))
    with pytest.raises(ValueError, match="read-only"):
        record["loss"][0] = 0


def test_exact_arrays_stay_double(tmp_path):
    record = records.save("tiny", {"exact_x": np.array([0.1])}, META, tmp_path)
    assert records.load("tiny", tmp_path)["exact_x"][0] == 0.1 and record["exact_x"].dtype == np.float64


def test_an_unknown_array_lists_the_known(folder):
    with pytest.raises(KeyError, match="it has loss, steps, name"):
        records.load("tiny", folder)["los"]


def test_a_missing_record_names_near_ones_and_the_command(folder):
    with pytest.raises(records.RecordError, match="mean tiny.*python -m iclkit.records make tinny"):
        records.load("tinny", folder)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: truncate(f / "tiny.npz"),
        lambda f: flip(f / "tiny.npz"),
        lambda f: (f / "tiny.npz").write_bytes(b""),
        lambda f: (f / "tiny.npz").unlink(),
        lambda f: (f / "tiny.json").unlink(),
        lambda f: truncate(f / "tiny.json"),
        lambda f: (f / "tiny.json").write_text("{}"),
        lambda f: (f / "tiny.json").write_text("[]"),
        lambda f: (f / "tiny.json").write_bytes(b"\xff\xfe"),
    ],
)
def test_a_damaged_record_names_the_command_and_is_left_alone(folder, damage):
    damage(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(records.RecordError, match="damaged.*python -m iclkit.records make tiny"):
        records.load("tiny", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_objects_and_an_incomplete_meta_are_refused(tmp_path):
    with pytest.raises(ValueError, match="pickle"):
        records.save("bad", {"x": np.array([{}, None])}, META, tmp_path)
    with pytest.raises(ValueError, match="seeds is missing"):
        records.save("bad", {}, {k: v for k, v in META.items() if k != "seeds"}, tmp_path)
    assert not list(tmp_path.iterdir())


# --- quoted -------------------------------------------------------------------------------------------


def test_quoted_is_silent_when_right_and_raises_in_a_build(monkeypatch, capsys):
    monkeypatch.setenv("ICLKIT_BUILD", "1")
    records.quoted(0.93, 0.95, within=0.03)
    records.quoted(0.3, 0.1 + 0.2, within=0)
    for measured in (0.97, float("nan")):
        with pytest.raises(QuotedError, match="text says 0.93.*measured"):
            records.quoted(0.93, measured, within=0.03)
    assert capsys.readouterr().out == ""


def test_quoted_prints_both_for_a_reader(monkeypatch, capsys):
    monkeypatch.delenv("ICLKIT_BUILD", raising=False)
    records.quoted(0.93, np.float32(0.5), within=0.03)
    assert capsys.readouterr().out == "the text says 0.93 (± 0.03), this run measured 0.5\n"
    with pytest.raises(ValueError, match="within"):
        records.quoted(1, 1, within=-1.0)


# --- recipes ------------------------------------------------------------------------------------------


@pytest.fixture
def recipe(monkeypatch, tmp_path):
    """A recipe of 2 configs × 2 seeds that counts its work and fails when told."""
    monkeypatch.setenv("ICLKIT_CACHE", str(tmp_path / "cache"))
    module = types.ModuleType("walks")
    module.calls, module.broken, module.text = [], set(), "first text"
    module.NAME, module.COST, module.SEEDS = "walks", "4 × 1 ms on one core", (0, 1)
    module.configs = lambda scale: [{"steps": n if scale == "book" else 10 * n} for n in (5, 9)]

    def unit(config, seed):
        module.calls.append((config["steps"], seed))
        if (config["steps"], seed) in module.broken:
            raise ZeroDivisionError("a piece that fails")
        return {"end": np.random.default_rng(seed).normal(size=config["steps"]).sum()}

    module.unit = unit
    module.assemble = lambda pieces: {"ends": np.array([p.arrays["end"] for p in pieces]).reshape(2, -1)}
    monkeypatch.setattr("iclkit.records.making.source", lambda r: r.text)
    return module


def test_making_says_its_cost_and_keeps_where_it_came_from(recipe, tmp_path, capsys):
    make(recipe, folder=tmp_path)
    record = records.load("walks", tmp_path)
    assert capsys.readouterr().out == "walks at book scale: 4 × 1 ms on one core; 0 of 4 pieces are done\n"
    assert record["ends"].shape == (2, 2) and recipe.calls == [(5, 0), (5, 1), (9, 0), (9, 1)]
    assert record.meta["config"] == [{"steps": 5}, {"steps": 9}] and record.meta["recipe"] == "walks"


def test_making_resumes_and_skips_what_is_done(recipe, tmp_path):
    recipe.broken = {(9, 0)}
    with pytest.raises(
        MakingError, match=r"1 of 4 pieces.*(?s:.*)\"steps\": 9.*seed 0(?s:.*)a piece that fails"
    ):
        make(recipe, folder=tmp_path)
    assert recipe.calls == [(5, 0), (5, 1), (9, 0), (9, 1)] and not (tmp_path / "walks.npz").exists()
    recipe.broken, recipe.calls = set(), []
    again = make(recipe, folder=tmp_path)
    assert recipe.calls == [(9, 0)]
    recipe.calls = []
    make(recipe, seeds=[0, 1, 2], folder=tmp_path)
    assert recipe.calls == [(5, 2), (9, 2)]
    fresh = [np.random.default_rng(s).normal(size=n).sum() for n in (5, 9) for s in (0, 1)]
    np.testing.assert_allclose(again["ends"].ravel(), fresh, rtol=1e-6)


def test_what_is_finished_makes_a_record_that_says_what_is_missing(recipe, tmp_path):
    with pytest.raises(MakingError, match="no piece of walks is finished; make it without --finished"):
        make(recipe, folder=tmp_path, finished=True)
    recipe.broken = {(9, 0), (9, 1)}
    with pytest.raises(MakingError):
        make(recipe, folder=tmp_path)
    recipe.calls, recipe.assemble = [], lambda pieces: {"of": np.array([p.config["steps"] for p in pieces])}
    record = make(recipe, folder=tmp_path, finished=True)
    assert record["of"].tolist() == [5, 5] and not recipe.calls
    assert record.meta["config"] == [{"steps": 5}] and record.meta["missing"] == 2


def test_finished_pieces_that_make_no_record_say_so(recipe, tmp_path):
    recipe.broken = {(9, 1)}
    with pytest.raises(MakingError):
        make(recipe, folder=tmp_path)
    with pytest.raises(MakingError, match="3 of 4 pieces of walks do not make a record.*without --finished"):
        make(recipe, folder=tmp_path, finished=True)
    assert not (tmp_path / "walks.npz").exists()


def test_another_text_or_scale_is_made_anew(recipe, tmp_path):
    make(recipe, folder=tmp_path)
    recipe.calls = []
    make(recipe, "paper", folder=tmp_path)
    assert recipe.calls == [(50, 0), (50, 1), (90, 0), (90, 1)]
    recipe.text, recipe.calls = "second text", []
    make(recipe, folder=tmp_path)
    assert len(recipe.calls) == 4


def test_a_half_written_piece_is_made_again(recipe, tmp_path):
    make(recipe, folder=tmp_path)
    truncate(piece_file(recipe, {"steps": 5}, 1))
    recipe.calls = []
    make(recipe, folder=tmp_path)
    assert recipe.calls == [(5, 1)]


def test_a_kill_between_pieces_loses_nothing_done(recipe, tmp_path):
    whole = recipe.unit

    def killed(config, seed):
        if seed == 1:
            raise KeyboardInterrupt
        return whole(config, seed)

    recipe.unit = killed
    with pytest.raises(KeyboardInterrupt):
        make(recipe, folder=tmp_path)
    recipe.unit, recipe.calls = whole, []
    make(recipe, folder=tmp_path)
    assert (5, 0) not in recipe.calls and (5, 1) in recipe.calls


def test_the_command_lists_and_names_the_nearest(recipe, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "every", lambda: {"walks": recipe})
    monkeypatch.setattr(recipes, "every", lambda: {"walks": recipe})
    assert command.main(["list"]) == 0 and "walks" in capsys.readouterr().out
    assert command.main(["make", "walkes"]) == 1
    assert "nearest are walks" in capsys.readouterr().err
    assert command.main(["make", "walks", "--seeds", "4", "--folder", str(tmp_path)]) == 0
    assert records.load("walks", tmp_path).meta["seeds"] == [4]


# --- claims -------------------------------------------------------------------------------------------


def a_claim(**changes) -> Claim:
    def judge(record):
        last = record["loss"][:, -1]
        return Measured.over(last, good=last < 2.05, why="loss at the end below 2.05")

    fields = {"id": "I3", "finding": "it falls", "chapter": "104", "theirs": "as stated", "unit": "nat"}
    return Claim(**{**fields, "records": ("tiny",), "judge": judge, **changes})


def test_a_row_is_computed_from_its_record(folder):
    row = a_claim().row(folder)
    assert list(row) == claims.COLUMNS
    assert row["verdict"] == "partly" and row["why"].endswith("holds for 1 of 2 seeds") and row["seeds"] == 2
    assert (row["low"], row["ours"], row["high"]) == pytest.approx((2.0, 2.05, 2.1))


@pytest.mark.parametrize("good, verdict", [([1, 1, 1], 0), ([1, 1, 0], 1), ([1, 0, 0], 2), ([0, 0, 0], 2)])
def test_the_verdict_follows_from_the_seeds(good, verdict):
    assert Measured.over([1, 2, 3], good, "x").verdict == claims.VERDICTS[verdict]


def test_impossible_verdicts_and_shapes_are_refused():
    with pytest.raises(ValueError, match="reproduced, partly, not reproduced"):
        Measured(1.0, 0.0, 2.0, 3, "great", "")
    with pytest.raises(ValueError, match="one value and one verdict a seed"):
        Measured.over([1, 2, 3], [True], "x")


def test_a_claim_has_one_judge(monkeypatch):
    monkeypatch.setattr(claims, "_known", {})
    about = {"finding": "", "chapter": "104", "theirs": "", "unit": "", "records": []}
    claims.claim("I99", **about)(lambda: None)
    with pytest.raises(ValueError, match="I99 is judged twice"):

        @claims.claim("I99", **about)
        def other():
            pass


def test_the_scorecard_is_in_order_and_leaves_out_what_has_no_record(folder, monkeypatch):
    known = {
        "I10": a_claim(id="I10", chapter="109"),
        "I4": a_claim(id="I4"),
        "I3": a_claim(id="I3"),
        "I5": a_claim(id="I5", chapter="105", records=("absent",)),
    }
    monkeypatch.setattr(claims, "every", lambda: known)
    assert [row["id"] for row in scorecard.rows(folder)] == ["I3", "I4", "I10"]
    scorecard.write(folder, folder / "card.json")
    card = json.loads((folder / "card.json").read_text())
    assert card[0]["ours"] == 2.05 and card == json.loads(scorecard.render(scorecard.rows(folder)))


# --- what is shipped ----------------------------------------------------------------------------------

RECIPES = recipes.every()


def test_the_shipped_scorecard_is_what_the_records_say():
    assert scorecard.FILE.read_text(encoding="utf-8") == scorecard.render(scorecard.rows())


def test_every_shipped_record_is_whole_and_has_a_recipe():
    for name in store.names():
        record = records.load(name)
        assert name in RECIPES, f"no recipe makes {name}"
        assert record.meta["recipe"] == RECIPES[name].__name__


def test_the_shipped_records_are_small():
    files = [path for path in store.DATA.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    assert {path.suffix for path in files} <= {".npz", ".json", ".md"}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_has_what_making_needs(name):
    recipe = RECIPES[name]
    assert recipe.COST and recipe.SEEDS
    for at in ("book", "paper"):
        assert recipe.configs(at) == json.loads(json.dumps(recipe.configs(at))), "configs must be JSON values"


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_the_training_of_a_config_is_one_that_can_be_made(recipe):
    for config in recipe.configs("book"):
        if "training" in config:
            training = config["training"]
            made = TrainConfig(**training)
            assert json.loads(json.dumps({name: getattr(made, name) for name in training})) == training


def probed() -> list[str]:
    """Of the shipped records one a day, in turn; all of them with ICLKIT_PROBES=all."""
    shipped = [name for name in sorted(RECIPES) if name in store.names()]
    if os.environ.get("ICLKIT_PROBES") == "all" or not shipped:
        return shipped
    return [shipped[datetime.date.today().toordinal() % len(shipped)]]


def test_a_probe_finds_itself_in_its_record():
    for name in probed():
        probe = RECIPES[name].probe(records.load(name))
        assert isinstance(probe, Probe) and probe.low < probe.high
        assert probe.holds(), f"{name}, {probe.what}: {probe.measured} is outside {probe.low} … {probe.high}"


def test_a_probe_out_of_range_does_not_hold():
    assert Probe("x", 1.0, 0.9, 1.1).holds() and not Probe("x", 1.2, 0.9, 1.1).holds()
