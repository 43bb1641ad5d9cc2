"""Claims of chapter 201."""

import numpy as np

from iclkit.records.claims import Measured, claim

EXACT = 1e-6
NEAR = 0.03


@claim(
    "M1",
    finding="The task and four ideal predictors: 1-Gen, 2-Gen, 1-Mem, 2-Mem",
    chapter="201",
    theirs="formulas",
    unit="largest |closed form − brute force| of the four",
    records=["observers_201"],
)
def m1(record):
    error = record["errors"].max(1)
    good, told, gap = error < EXACT, [], []
    for C in (5, 10):
        losses = record[f"C{C}/losses"][..., list(record[f"C{C}/n"]).index(record[f"C{C}/at"]), :]
        training, fresh = losses[:, :, 0], losses[:, :, 1]  # [K seed observer]
        entropy = sum(1 / k for k in range(2, C + 1))  # of an evenly drawn row
        told.append(abs(fresh[..., 5].mean(0) - entropy))
        gap.append((training[..., 3] - training[..., 5]).max(0))
        laplace = record[f"C{C}/laplace"][:, 0] - record[f"C{C}/losses"][0, :, 1, 0, 0]
        best = (fresh[..., 1:2] < fresh[..., [0, 2, 3]]).all((0, 2))
        good = good & (told[-1] < NEAR) & (gap[-1] < NEAR) & best & (laplace > 0)
    why = (
        f"closed forms equal sums over all sequences and chains to {error.max():.0e}; one who is told the "
        f"chain pays the entropy of an even row within {np.max(told):.3f} nats, 2-Mem at most "
        f"{np.max(gap):.3f} more on training chains for every K, 2-Gen the least on fresh ones for every K; "
        "the smoothing of 1-Gen matched to π beats adding one; the paper's own smoothing is unknown"
    )
    return Measured.over(error, good, why)
