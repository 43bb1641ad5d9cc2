"""I5 and I6: what is lost with the induction heads, and which way they were built (chapter 105)."""

import numpy as np

from iclkit.records.claims import Measured, claim

MODELS = ("shortformer_4", "absolute_4", "absolute_1")


@claim(
    "I5",
    finding="Causal: remove the heads and in-context learning goes",
    chapter="105",
    theirs="nearly all of the ICL score in small attention-only models",
    unit="share of the ICL score lost with the induction heads",
    records=["cause_105"],
)
def i5(record):
    """Holds where the induction heads (all of layer 1) carry at least 3/4 of the score and the whole label
    mapping, while layer 0, patterns preserved, carries less than 1/10 of the score."""
    score = record["shortformer_4_icl"][:, -1]
    _, kept, heads = record["shortformer_4_icl_groups"][:, -1].T / score
    chance = record["shortformer_4_labels_groups"][:, -1, 2] < 0.35
    induction = (record["shortformer_4_prefix"][:, -1, 1] > 0.3).all(1)
    alone = record["shortformer_4_icl_heads"][:, -1, 1] / score[:, None, None]
    why = (
        "share lost with all heads of layer 1, all of them induction heads; one head alone costs at most "
        f"{1 - alone.min():.0%}, layer 0 with patterns preserved {max(1 - kept.min(), 0):.0%}, and the label "
        "mapping falls to chance"
    )
    good = (1 - heads >= 0.75) & (1 - kept < 0.1) & chance & induction
    return Measured.over(1 - heads, good, why)


def way(routes) -> str:
    """Q, K or V: the reader of layer 1 whose corruption costs more than twice the next; else mixed."""
    order = np.argsort(routes)
    return "QKV"[order[-1]] if routes[order[-1]] > 2 * routes[order[-2]] else "mixed"


@claim(
    "I6",
    finding="Two ways to build it: K-composition on a previous-token head, or Q-composition on a "
    "duplicate-token head",
    chapter="105",
    theirs="both seen",
    unit="runs by the way they are built",
    records=["cause_105"],
)
def i6(record):
    """Reproduced when both ways are seen among the runs, partly when one is, by path patching; composition
    scores above chance must agree."""
    ways, agree = [], []
    for model in MODELS:
        best = record[f"{model}_composition"].max((2, 3))  # [seed Q/K/V]
        for routes, scores, chance in zip(record[f"{model}_routes"], best, record[f"{model}_chance"]):
            ways.append(way(routes))
            agree.append(ways[-1] in "QKV" and scores["QKV".index(ways[-1])] > chance[0] + 3 * chance[1])
    seen = {kind: ways.count(kind) for kind in ("K", "Q", "V", "mixed")}
    both, one = seen["K"] and seen["Q"], seen["K"] or seen["Q"]
    verdict = "reproduced" if both else "partly" if one else "not reproduced"
    by_model = "; ".join(f"{m} {' '.join(ways[3 * k : 3 * k + 3])}" for k, m in enumerate(MODELS))
    why = f"{by_model}; composition scores agree in {sum(agree)} of {len(ways)} runs"
    ours = ", ".join(f"{kind} {number}" for kind, number in seen.items() if number)
    return Measured(ours, None, None, len(record[f"{MODELS[0]}_routes"]), verdict, why)
