"""Claim of chapter 207: a force ends the plateau, and its length is N / log N."""

import numpy as np

from iclkit.records.claims import VERDICTS, Measured, claim

CONSTANT, EXPONENT, NOISE = 1.25, 0.2, 0.2


@claim(
    "M10",
    finding="Theory of 1-Gen to 2-Gen: two biases β, δ > 0, a plateau, then the fall; τ ~ N / log N",
    chapter="207",
    theirs="τ ∝ (N / log N)^1, as stated",
    unit="exponent of the trained models' τ against N / log N",
    records=["plateau_207"],
)
def m10(record):
    """Reproduced when four things hold: all slopes are positive; c_βδ N / log N is constant within a factor
    of CONSTANT; the plateau is longer than the fall, and τ the same within NOISE over seeds and batch sizes,
    the noiseless flow included; the exponent of τ is 1 within EXPONENT. Partly without the last."""
    N, found = record["N"], record["coefficients"][..., 0]
    units = N / np.log(N)
    mean, error = found.mean(0), np.sqrt((record["coefficients"][..., 1] ** 2).sum(0)) / len(found)
    scaled = found[..., 2] * units[:, None]
    ratio = float((scaled.max(1) / scaled.min(1)).max())
    times = record["times"]
    tau = times[..., 1]
    sharp = float(((times[..., 2] - times[..., 0]) / times[..., 0]).max())
    spread = float((tau.std(0, ddof=1) / tau.mean(0)).max())
    shift = float(np.abs(tau.mean(0)[:, 1:] / tau.mean(0)[:, :1] - 1).max())
    exponents = [np.polyfit(np.log(units), np.log(each), 1)[0] for each in tau.mean(2)]
    last = np.log(tau.mean((0, 2))[-1] / tau.mean((0, 2))[-2]) / np.log(units[-1] / units[-2])
    theory = bool((mean > 2 * error).all() and ratio < CONSTANT)
    force = sharp < 1 and max(spread, shift) < NOISE
    law = abs(np.mean(exponents) - 1) < EXPONENT
    verdict = VERDICTS[0] if theory and force and law else VERDICTS[1] if theory and force else VERDICTS[2]
    why = (
        f"c_β, c_δ and c_βδ are positive, the least {(mean / error).min():.0f} standard errors from 0; "
        f"without training c_βδ N / log N stays within a factor of {ratio:.2f} over N = {N[0]} to {N[-1]}; "
        f"the fall takes at most {sharp:.0%} of the time before it; τ spreads by at most {spread:.0%} over "
        f"seeds and moves by at most {shift:.0%} from the noiseless flow to batches of 16; the exponent is "
        f"{last:.2f} between the two longest, below 1 because c_β is still below its law for short sequences"
    )
    return Measured(float(np.median(exponents)), min(exponents), max(exponents), len(exponents), verdict, why)
