"""Claim of chapter 103."""

from iclkit.records.claims import Measured, claim


@claim(
    "I2",
    finding="An induction head can be written down by hand",
    chapter="103",
    theirs="construction",
    unit="accuracy on the second copy, worst period",
    records=["by_hand_103"],
)
def i2(record):
    """Right at every period when intact; without a head, the present symbol again; the law of temperature."""
    names = record["condition"].tolist()
    intact = record["right"][:, names.index("intact")].min(1)
    repeats = [record["present"][:, names.index(f"without {head}")].min(1) for head in ("L0H0", "L1H0")]
    law = abs(record["soft"][:, 1] - record["law"]).max((1, 2))
    good = (intact >= 0.99) & (repeats[0] >= 0.99) & (repeats[1] >= 0.99) & (law < 0.01)
    return Measured.over(
        intact,
        good,
        why=".99 or more at every period 2 … 32; without a head, or with L1H0 softened, it fails as predicted",
    )
