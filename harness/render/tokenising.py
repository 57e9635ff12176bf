"""What a text costs before the model's layers see it, beside what its embeddings cost (pure)."""

from __future__ import annotations

from harness.core.schemas.profile_parts import PartsProfile
from harness.measure.layer_sums import by_group
from harness.render import units


def tokenising_line(parts: PartsProfile) -> str:
    """One sentence each; empty where the inputs are no text."""
    found = parts.tokenising
    if found is None:
        return ""
    length = "" if found.tokens_a_text is None else f" of {found.tokens_a_text} tokens"
    batch = f"{units.count(found.texts, 'text')}{length}"
    told = f"takes {units.duration(found.time_ns)} on the host" if found.time_ns is not None else "has no figure"
    return f"Tokenising {batch} {told}, apart from the latency ({found.by}). {_embedding(parts)}"


def _embedding(parts: PartsProfile) -> str:
    if not parts.layers:
        return "Embedding: unknown, without a per-layer profile."
    spent = by_group(parts.layers).get("embedding")
    if spent is None:
        return "Embedding: no layer of its own here."
    return f"Embedding takes {units.duration(spent)}, as part of it."
