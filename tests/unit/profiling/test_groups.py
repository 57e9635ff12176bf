"""Groups of real modules and operators, by class, operator and path as the libraries name them."""

from __future__ import annotations

import pytest

from harness.profiling.layers import group_of

IN_BERT = ("model", "encoder", "layer", "0", "BertModel", "BertEncoder", "BertLayer")


@pytest.mark.parametrize(
    ("kinds", "around", "group"),
    [
        (("Linear",), (*IN_BERT, "attention", "self", "query", "BertAttention", "BertSelfAttention"), "attention"),
        (("BertSelfOutput",), (*IN_BERT, "attention", "output", "BertAttention"), "attention"),
        (("LayerNorm",), (*IN_BERT, "attention", "output", "BertAttention", "BertSelfOutput"), "normalisation"),
        (("Linear",), (*IN_BERT, "intermediate", "dense", "BertIntermediate"), "mlp"),
        (("GELUActivation",), (*IN_BERT, "intermediate", "BertIntermediate"), "mlp"),
        (("BertOutput",), (*IN_BERT, "output"), "mlp"),
        (("Dropout",), ("model", "embeddings", "dropout", "BertModel", "BertEmbeddings"), "embedding"),
        (("Embedding",), ("model", "embeddings", "word_embeddings"), "embedding"),
        (("BertLayer",), ("model", "encoder", "layer", "0", "BertModel", "BertEncoder"), "other"),
        (("Conv1D",), ("transformer", "h", "0", "attn", "c_attn", "GPT2Attention"), "attention"),
        (("Conv1D",), ("transformer", "h", "0", "mlp", "c_fc", "GPT2MLP"), "mlp"),
        (("Conv1D",), (), "linear"),
        (("FFN",), ("distilbert", "transformer", "layer", "0", "ffn"), "mlp"),
        (("T5LayerFF",), ("encoder", "block", "0", "layer", "1"), "mlp"),
        (("MultiheadAttention",), ("encoder", "layers", "self_attention"), "attention"),
        (("Conv2d",), ("layer1", "0", "conv1", "Sequential", "BasicBlock"), "convolution"),
        (("BatchNorm2d",), ("layer1", "0", "bn1"), "normalisation"),
        (("Conv", "BatchNorm2d"), ("bn1",), "convolution"),
        (("ReLU",), ("layer1", "0", "relu"), "activation"),
        (("MaxPool2d",), ("maxpool",), "pooling"),
        (("Linear",), ("fc",), "linear"),
        (("BasicBlock",), ("layer1", "0", "Sequential"), "other"),
        (("ReorderOutput",), (), "layout"),
        (("MemcpyFromHost",), (), "layout"),
        (("Convert",), (), "other"),
        (("MVN",), (), "normalisation"),
        (("DynamicQuantizeLinear",), (), "other"),
        (("DynamicQuantizeMatMul",), (), "linear"),
        (("Reduce",), (), "other"),
        (("ReduceMean", "AdaptiveAvgPool2d"), ("avgpool",), "pooling"),
        (("SkipLayerNormalization",), ("attention",), "normalisation"),
    ],
)
def test_group(kinds: tuple[str, ...], around: tuple[str, ...], group: str) -> None:
    assert group_of(kinds, around) == group
