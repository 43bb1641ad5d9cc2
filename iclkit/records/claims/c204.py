"""M5, M12 and M13: task vectors, what they need, and where they lie in a deeper model (chapter 204)."""

import numpy as np

from iclkit.records.claims import VERDICTS, Measured, claim


@claim(
    "M5",
    finding="2-Mem is a task-recognition head: the pooled vector φ is a task vector",
    chapter="204",
    theirs="swap φ, and the prediction follows the other chain",
    unit="share of answers nearer the donor's row after the swap",
    records=["task_vectors_204"],
)
def m5(record):
    """Holds for a seed where after the swap nine answers in ten are nearer the donor's row, and a swap within the
    chain leaves the answer within 1/10 of the way from the own row to the other."""
    swap = record["K8/swap"]  # [seed donor 3]: other, same state, own chain
    far = swap[:, 0, 0]
    good = (swap[:, :2, 2] > 0.9).all(1) & (swap[:, 2, 0] < 0.1 * far)
    why = (
        f"the answer is {swap[:, 0, 1].min():.2f} to {swap[:, 0, 1].max():.2f} nats from the donor's row and "
        f"{far.min():.2f} to {far.max():.2f} from its own; donors ending in another state serve as well; "
        f"{record['K8/by_chain'].min():.0%} or more of φ's variance lies between chains, at most "
        f"{record['K8/by_state'].max():.0%} between present states, and a linear probe names the chain in "
        f"{record['K8/read'].min():.0%} of sequences or more"
    )
    return Measured.over(swap[:, 0, 2], good, why)


@claim(
    "M12",
    finding="Without MLPs 2-Gen forms and 2-Mem does not",
    chapter="204",
    theirs="implied",
    unit="distance from 2-Mem on training chains at K = 8 (nats)",
    records=["models_204", "task_vectors_204"],
)
def m12(record, opened):
    """2-Mem does not form: at K = 8 its distance stays above three times that of the models with MLPs. 2-Gen
    forms where it is nearer than 1-Gen on fresh chains. Reproduced if both for every seed at K = 8; partly if 2-Gen
    forms at K = 256 alone."""
    memory = record["attention-K8/distances"][:, -1, 0, 3]
    with_mlp = opened["K8/distance"]
    fresh = record["attention-K256/distances"][:, -1, 1]
    few = record["attention-K8/distances"][:, -1, 1]
    no_memory, forms, there = memory > 3 * with_mlp.max(), fresh[:, 1] < fresh[:, 0], few[:, 1] < few[:, 0]
    partly = no_memory.all() and forms.all()
    verdict = VERDICTS[0] if (no_memory & there).all() else VERDICTS[1] if partly else VERDICTS[2]
    why = (
        f"with MLPs the distance from 2-Mem is {with_mlp.max():.2f} at most; without, 2-Gen is nearer than 1-Gen on "
        f"fresh chains in {forms.sum()} of {len(forms)} seeds at K = 256 after 1,200 updates (distances from 2-Gen "
        f"{fresh[:, 1].min():.2f} to {fresh[:, 1].max():.2f}), and in {there.sum()} of {len(few)} "
        "at K = 8 after 3,000"
    )
    return Measured(
        float(np.median(memory)), float(memory.min()), float(memory.max()), len(memory), verdict, why
    )


@claim(
    "M13",
    finding="Layered roles in a deeper model: compile evidence, pool it into a latent, decode",
    chapter="204",
    theirs="hypothesis",
    unit="largest rise, over one attention layer, of the share of answers that a swap moves",
    records=["task_vectors_204"],
)
def m13(record):
    """Holds for a seed where one attention layer alone brings more than half of the answers over."""
    nearer = record["four-layers/swap"][:, ::2, 2]  # before, and after each of the four layers
    rise = np.diff(nearer, axis=1).max(1)
    read = record["four-layers/read"]
    why = (
        "in four layers (C = 3, 1,200 updates, 2-Mem nearest but not reached) the chain is read a little better "
        f"after every layer ({np.median(read[:, 0]):.2f} at the embedding, {np.median(read[:, -1]):.2f} at the end), "
        "and a swap of the last position's stream moves more answers after every layer: "
        + " / ".join(" ".join(f"{value:.2f}" for value in row) for row in nearer)
        + "; most of it happens in one layer"
    )
    return Measured.over(rise, rise > 0.5, why)
