# ruff: noqa: F401
"""Circuit tools: what the weights say, what heads do, and what happens when a part is changed."""

from iclkit.circuits import (
    ablation,
    attribution,
    copying,
    edges,
    entropy,
    expansion,
    factored,
    forbidding,
    grafting,
    patching,
    scores,
    subsets,
    weights,
)
from iclkit.circuits.ablation import ablate, ablate_each_head, frozen_patterns
from iclkit.circuits.attribution import direct_logit_attribution, residual_parts
from iclkit.circuits.copying import (
    impose_attention,
    imposed_accuracy,
    induction_strength,
    label_attention,
    path_ablations,
    query_attention,
)
from iclkit.circuits.edges import ablate_edges, all_edges, edge_patcher, nodes, patch_edges, path_patch
from iclkit.circuits.expansion import path_expansion, term_importance
from iclkit.circuits.factored import FactoredMatrix
from iclkit.circuits.forbidding import forbid_attention
from iclkit.circuits.grafting import frozen, graft
from iclkit.circuits.heads import label
from iclkit.circuits.patching import activation_patch
from iclkit.circuits.scores import (
    copying_score_logits,
    duplicate_token,
    duplicate_token_score,
    icl_score,
    induction_stripe,
    induction_stripe_score,
    per_token_loss,
    prefix_matching,
    prefix_matching_score,
    previous_token,
    previous_token_score,
    random_baseline,
    token_losses,
)
from iclkit.circuits.weights import (
    OV,
    QK,
    Baseline,
    composition_baseline,
    composition_scores,
    copying_score,
    direct_path,
    eigenvalue_score,
    full_OV,
    full_QK,
    matching_score,
)
