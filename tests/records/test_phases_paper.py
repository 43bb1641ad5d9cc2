"""The record at the size of the paper: it says what it holds, whatever part of its runs is finished."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from iclkit import records
from iclkit.notebooks.form import ROOT
from iclkit.records.claims.c202 import at_their_size
from iclkit.records.recipes import Piece, phases_202, phases_paper

PARTS = ((256,), (64, 256, 4096), (16, 4), phases_paper.MANY)


def test_the_record_says_which_runs_it_holds():
    record, planned = records.load("phases_paper"), phases_paper.configs("book")
    held = record["K"].tolist()
    assert held == sorted(config["K"] for config in record.meta["config"]) and held
    assert all(config in planned for config in record.meta["config"])
    assert record.meta.get("missing", 0) == len(planned) - len(held)
    assert record.meta["seeds"] == list(phases_paper.SEEDS)
    assert record["distances"].shape == (len(held), 1, len(phases_paper.LOOKS), 2, 5)
    assert all(np.isfinite(array).all() for array in record.values())


def test_the_list_of_changes_names_what_is_missing():
    [line] = [
        line for line in (ROOT / "book/changes.md").read_text().splitlines() if "`phases_paper`" in line
    ]
    missing = sorted(set(phases_paper.MANY) - set(records.load("phases_paper")["K"].tolist()))
    said = re.search("Missing are K = ([^.]*)", line)
    assert [int(K) for K in re.findall(r"\d+", said[1])] == missing if said else not missing


def a_record(part) -> SimpleNamespace:
    """A record of pieces whose every number is their K, as making would assemble it."""
    looks = np.array(phases_paper.LOOKS)
    shapes = {"distances": (len(looks), 2, 5), "losses": (len(looks), 2), "train_loss": (4,)}
    shapes |= {"apart": (2, 5, 5), "floors": (2, 5)}
    configs = [config for config in phases_paper.configs("book") if config["K"] in part]
    pieces = [
        Piece(c, 0, {"steps": looks, **{n: np.full(s, float(c["K"])) for n, s in shapes.items()}})
        for c in configs
    ]
    record = {name: array.copy() for name, array in phases_paper.assemble(pieces).items()}
    return type("Made", (dict,), {"meta": {"config": configs, "missing": 12 - len(part)}})(record)


@pytest.mark.parametrize("part", PARTS, ids=len)
def test_any_part_of_the_runs_makes_a_record_in_order(part):
    record = a_record(part)
    assert record["K"].tolist() == sorted(part)
    for name in ("distances", "losses", "apart", "floors", "train_loss"):
        assert record[name].shape[:2] == (len(part), 1)
        assert (record[name].reshape(len(part), -1).T == sorted(part)).all()


@pytest.mark.parametrize("part", PARTS, ids=len)
def test_the_probe_repeats_the_first_of_what_is_there(part, monkeypatch):
    asked = []

    def fit(config, seed, measures, looks):
        asked.append((config["K"], seed, config["training"]["steps"], looks))
        return SimpleNamespace(history={"looks": np.full((1, 2, 6), float(config["K"]))})

    monkeypatch.setattr(phases_202, "Look", lambda task: None)
    monkeypatch.setattr(phases_202, "fit", fit)
    assert phases_paper.probe(a_record(part)).holds() and asked == [(min(part), 0, 10, [10])]


@pytest.mark.parametrize("part", PARTS, ids=len)
def test_the_reason_of_m2_names_every_k_and_counts_the_missing(part):
    record = a_record(part)
    record["distances"] = np.ones_like(record["distances"])
    record["distances"][..., 1] = 0.01
    record["apart"] = np.ones_like(record["apart"])
    said = at_their_size(record)
    assert f"2-Gen for K = {', '.join(map(str, sorted(part)))} ({12 - len(part)} of" in said
