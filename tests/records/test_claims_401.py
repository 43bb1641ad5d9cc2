"""T1–T5 can fail: each rule on records made by hand, as the claim says, and then with one thing wrong."""

import numpy as np
import pytest
from made import LOOKS, Made, chains, drawings, levers, runs, starts

from iclkit.records.claims import c401, every
from iclkit.records.recipes import Piece, levers_401


def judged(claim, *records):
    return every()[claim].judge(*records).verdict


def test_t1():
    ends = [Made({"accuracy": runs(flip, seeds=5)}) for flip in (0.9, 0.1)]
    assert judged("T1", *ends, drawings(), levers()) == "reproduced"
    assert judged("T1", *ends, drawings(0.05), levers()) == "partly"
    assert judged("T1", *ends, drawings(), levers(**{"4_layers": runs(0.9)})) == "partly"
    assert judged("T1", ends[1], ends[1], drawings(), levers()) == "not reproduced"
    assert judged("T1", ends[0], ends[0], drawings(), levers()) == "not reproduced"


def test_t2():
    assert judged("T2", levers()) == "reproduced"
    assert judged("T2", levers(decay_attention_0_3=runs(0.5))) == "partly"
    both = {"decay_everywhere_0_1": runs(), "decay_attention_0_3": runs(0.5)}
    assert judged("T2", levers(**both)) == "not reproduced"
    one = runs(0.5)
    one[0, 5:, c401.FLIP] = 0.1
    assert judged("T2", levers(decay_everywhere_0_1=one)) == "partly", "every seed is asked"


def test_t2_names_the_doses_that_harm():
    stayed = levers(default=runs(0.6), decay_tables_0_3=runs(0.2))
    why = every()["T2"].judge(stayed).why
    assert "further in every seed at" in why and "tables 0.3" in why.split("every seed at")[1]


@pytest.mark.parametrize(
    "change",
    [
        {"classes_3200": runs(icl=0.6)},
        {"exemplars_5": runs(0.05)},
        {"bursty_0_5": runs(icl=0.95)},
        {"zipf_1_0": runs(0.05)},
    ],
)
def test_t3_asks_for_all_four_directions(change):
    assert every()["T3"].judge(levers()).ours == 4
    found = every()["T3"].judge(levers(**change))
    assert found.ours == 3 and found.verdict == "partly" and found.why.count("fails") == 1


def test_t4():
    given = starts(0.7, 0.9, 0.5)
    assert judged("T4", given, levers()) == "reproduced"
    assert judged("T4", starts(0.7, 0.6, 0.5), levers()) == "partly", "no start helps"
    assert judged("T4", starts(0.7, 0.9, 0.8), levers()) == "partly", "none blocks"
    assert judged("T4", given, levers(forbidden=runs(0.1, 0.8, 0.9))) == "partly", (
        "ICL without previous token"
    )
    assert judged("T4", given, levers(forbidden=runs(ciwl=0.6, peak=0.5, icl=0.5))) == "partly", "no CIWL"
    assert judged("T4", given, levers(matched=runs(), forbidden=runs(0.1, 0.8, 0.9))) == "not reproduced"


def test_t5():
    moved = {"default_K_64": 0.8, "width_32_K_16": -0.5, "decay_3_0_K_16": 0.4}
    assert judged("T5", chains(**moved)) == "reproduced"
    assert judged("T5", chains(**moved | {"decay_3_0_K_16": 0.05})) == "partly"
    assert judged("T5", chains()) == "not reproduced"
    assert every()["T5"].judge(chains(default_K_16=0.25)).ours == pytest.approx(0.25)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="expected one of the variants default, matched"):
        c401.variant(levers(), "unmatched")
    with pytest.raises(ValueError, match="levers.*got 'dropout'"):
        c401.doses(levers(), "dropout")


def test_variants_stand_as_the_configs_do():
    marked = levers(zipf_1_0=runs(0.77))
    assert c401.late(c401.doses(marked, "zipf")[1.0]).tolist() == pytest.approx([0.77] * 3)
    piece = [
        Piece({"variant": name}, seed, {"steps": np.zeros(1), "accuracy": np.array([number, seed])})
        for number, name in enumerate(("b", "a"))
        for seed in (1, 0)
    ]
    assert levers_401.assemble(piece)["accuracy"].tolist() == [[[0, 0], [0, 1]], [[1, 0], [1, 1]]]


def test_what_is_late_must_be_there():
    accuracy = runs()
    for looks in (0, -1, LOOKS + 1):
        with pytest.raises(ValueError, match=f"looks must be 1 … {LOOKS}"):
            c401.late(accuracy, looks=looks)
    with pytest.raises(ValueError, match=r"expected accuracies \[… look 5\]"):
        c401.late(accuracy[..., :4])
    with pytest.raises(ValueError, match="evaluator 0 … 4"):
        c401.highest(accuracy, 9)
    with pytest.raises(ValueError, match="classes.*got 'nope'"):
        c401.doses(levers(), "nope")
