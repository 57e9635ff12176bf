"""To which group a part of a model belongs: by what it is, then by what it stands in (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.core.schemas.profile_parts import Group

_LAYOUT = re.compile("reorder|memcpy|reformat|copynode", re.IGNORECASE)
_CONVOLUTION = re.compile("conv(?!1D|ert)", re.IGNORECASE)
"""transformers' Conv1D is a linear layer, and OpenVINO's Convert a cast."""
_NORMALISATION = re.compile("norm|^MVN$", re.IGNORECASE)
_EMBEDDING = re.compile("embed", re.IGNORECASE)
_ATTENTION = re.compile("attention|attn", re.IGNORECASE)
_MLP = re.compile(
    r"mlp|ffn|feed_?forward|intermediate|LayerFF|DenseAct|^[A-Z][A-Za-z]+Output$|^layer\.\d+\.output$", re.IGNORECASE
)
"""BertOutput closes BERT's MLP, `layer.0.output` by its name; BertSelfOutput stands in BertAttention, which is asked
for before."""
_ACTIVATION = re.compile("relu|gelu|silu|swish|sigmoid|softmax|tanh|elu$|clip", re.IGNORECASE)
_POOLING = re.compile("pool|^Global", re.IGNORECASE)
_LINEAR = re.compile("(?<!quantize)linear|gemm|matmul|fullyconnected|conv1d", re.IGNORECASE)
"""QuantizeLinear only scales."""

_BY_KIND: tuple[tuple[re.Pattern[str], Group], ...] = (
    (_LAYOUT, "layout"),
    (_CONVOLUTION, "convolution"),
    (_NORMALISATION, "normalisation"),
    (_EMBEDDING, "embedding"),
)
_BY_PLACE: tuple[tuple[re.Pattern[str], Group], ...] = (
    (_ATTENTION, "attention"),
    (_MLP, "mlp"),
    (_EMBEDDING, "embedding"),
)
_REST: tuple[tuple[re.Pattern[str], Group], ...] = (
    (_ACTIVATION, "activation"),
    (_POOLING, "pooling"),
    (_LINEAR, "linear"),
)


def group_of(kinds: Sequence[str], around: Sequence[str] = ()) -> Group:
    """The group of one part.

    kinds: what the part is: its module's class, its operator, or both. around: names and classes of the modules that
    it stands in, any order. Normalisations, convolutions and embeddings are told by what they are, wherever they
    stand; attention and MLP by what stands around a part; the others again by what they are.
    """
    for words, rules in ((kinds, _BY_KIND), ((*kinds, *around), _BY_PLACE), (kinds, _REST)):
        for pattern, group in rules:
            if any(pattern.search(word) for word in words):
                return group
    return "other"
