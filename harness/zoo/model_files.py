"""Facts from a model's own files before a library is imported: the kind of its input, and whether it can generate.
`plan` needs no more."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.core.errors import MalformedFileError
from harness.core.safe_files import SizeLimit, read, read_text
from harness.core.schemas import DecoderKind, Weights
from harness.zoo.families import known_duration

if TYPE_CHECKING:
    from harness.zoo import ModelInfo

Media = Literal["text", "image", "audio"]

PROCESSOR = "preprocessor_config.json"
_IMAGES = ("image_processor_type", "image_mean", "crop_size")
_OF_IMAGES = ("image_size", "num_channels")
_OF_SOUNDS = ("num_mel_bins", "feat_extract_norm", "feat_extract_activation", "sampling_rate")
_OF_TEXT = "max_position_embeddings"
"""Not vocab_size: BEiT has it too, for image patches."""


def media_of(reference: str) -> Media:
    """The kind of input of a folder, or of a hub id whose configuration is in the hub's cache; text where neither
    says."""
    folder = folder_of(reference)
    if folder is None:
        return "text"
    return media_of_config(_json(folder / "config.json"), _json(folder / PROCESSOR))


def media_of_config(config: Mapping[str, Any], processor: Mapping[str, Any]) -> Media:
    """The kind of input, from a model's configuration and its preprocessor's.

    >>> media_of_config({"architectures": ["ViTForImageClassification"], "image_size": 224, "num_channels": 3}, {})
    'image'
    >>> media_of_config({"vocab_size": 32, "feat_extract_norm": "group"}, {"sampling_rate": 16000})
    'audio'
    >>> media_of_config({"architectures": ["BeitModel"], "vocab_size": 8192, "image_size": 224}, {})
    'image'
    >>> media_of_config({"vocab_size": 30522, "max_position_embeddings": 512}, {})
    'text'
    """
    if "sampling_rate" in processor or any(key in config for key in _OF_SOUNDS):
        return "audio"
    pictures = any(key in processor for key in _IMAGES) or any(key in config for key in _OF_IMAGES)
    return "image" if pictures and _OF_TEXT not in config else "text"


def folder_of(reference: str) -> Path | None:
    """The folder itself, or the hub's cache of that id; None where there is neither."""
    if Path(reference).is_dir():
        return Path(reference)
    cached = hub_folder(reference)
    main = cached / "refs" / "main"
    try:
        return cached / "snapshots" / read_text(main, SizeLimit.TEXT).strip()
    except (OSError, UnicodeDecodeError, MalformedFileError):
        return None


def user_cache() -> Path:
    """The folder below which libraries keep what they download."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


def hub_folder(hub_id: str) -> Path:
    """The folder of a model in the Hugging Face hub's cache."""
    home = Path(os.environ.get("HF_HOME", user_cache() / "huggingface"))
    return Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{hub_id.replace('/', '--')}"


def _json(path: Path) -> Mapping[str, Any]:
    """Empty where the file is missing or damaged; the export reports that."""
    try:
        content = json.loads(read(path, SizeLimit.TEXT))
    except (OSError, ValueError, MalformedFileError):
        return {}
    return content if isinstance(content, dict) else {}


EXAMPLES = "smollm2-135m, gpt2, t5-small, llama-1b, or hf:<folder of a causal or sequence-to-sequence model>"


@dataclass(frozen=True)
class DecoderFacts:
    """kind: of the model. longest: most positions, None without a limit. tokenizer: None where it is not known.

    model_type: of transformers. gguf: whether its weights come from a GGUF file.
    """

    kind: DecoderKind
    longest: int | None
    tokenizer: bool | None = None
    model_type: str = ""
    gguf: bool = False


KNOWN: Mapping[str, DecoderFacts] = {
    "gpt2": DecoderFacts("causal", 1024, model_type="gpt2"),
    "smollm2-135m": DecoderFacts("causal", 8192, model_type="llama", gguf=True),
    "llama-1b": DecoderFacts("causal", 131_072, model_type="llama"),
    # Its positions are distances in buckets: no table ends.
    "t5-small": DecoderFacts("seq2seq", None, model_type="t5"),
}

_NO_CACHE = frozenset({"openai-gpt", "xlm", "flaubert", "bert", "roberta", "electra", "xlnet", "transfo-xl"})
"""Types of transformers whose language models keep no keys and values in its Cache classes."""
_RECURRENT = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "recurrent_gemma", "xlstm"})
"""Types that keep a state of fixed size instead."""


def facts_of(info: ModelInfo, weights: Weights) -> DecoderFacts | str | None:
    """The facts of a model, the reason why it cannot generate, or None where only its files on the hub say."""
    if info.name in KNOWN:
        own = weights != "seeded" or info.package is not None
        known = KNOWN[info.name]
        return replace(known, tokenizer=own, gguf=known.gguf and weights != "seeded")
    if known_duration.is_spin(info.name):
        return DecoderFacts("causal", None, False)
    if info.kind != "text":
        return f"{info.name} reads no text"
    if not info.name.startswith("hf:"):
        return f"{info.name} is an encoder: it gives one vector a text and no next token"
    folder = folder_of(info.reference)
    configuration = None if folder is None else _json(folder / "config.json")
    if folder is None or not configuration:
        return None
    has = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model"))
    facts = facts_of_config(info.name, configuration, tokenizer=has)
    gguf = weights != "seeded" and any(folder.glob("*.gguf"))
    return replace(facts, gguf=gguf) if isinstance(facts, DecoderFacts) else facts


def facts_of_config(name: str, config: Mapping[str, Any], tokenizer: bool | None = None) -> DecoderFacts | str:
    """As facts_of, from a config.json.

    >>> facts_of_config("x", {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 64})
    DecoderFacts(kind='causal', longest=64, tokenizer=None, model_type='gpt2', gguf=False)
    >>> facts_of_config("x", {"model_type": "bert", "architectures": ["BertModel"]})
    'x is a BertModel, which gives no next token'
    """
    architecture = str((config.get("architectures") or [""])[0])
    kind = str(config.get("model_type", ""))
    writes = architecture.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))
    if not architecture:
        return f"the config.json of {name} has no `architectures`, so that it is unknown whether it gives a next token"
    if not writes:
        return f"{name} is a {architecture}, which gives no next token"
    if kind in _RECURRENT:
        return f"{name} ({kind}) keeps a recurrent state and no key-value cache"
    if kind in _NO_CACHE or config.get("use_cache") is False:
        return f"{name} ({kind}) has no key-value cache"
    longest = next((config[key] for key in ("n_positions", "max_position_embeddings") if config.get(key)), None)
    seq2seq = bool(config.get("is_encoder_decoder"))
    if seq2seq and kind in ("t5", "mt5", "umt5", "longt5", "switch_transformers"):
        longest = None  # n_positions of T5 is what it was trained with, and no table
    return DecoderFacts("seq2seq" if seq2seq else "causal", longest, tokenizer, kind)


def too_long(name: str, facts: DecoderFacts, prompt_length: int, new_tokens: int) -> str | None:
    """Why a prompt and an output do not fit into the positions of a model; None where they do."""
    if facts.longest is None:
        return None
    if facts.kind == "seq2seq":
        need, subject = max(prompt_length, new_tokens), "prompt or output"
    else:
        need, subject = prompt_length + new_tokens, f"prompt and output of {prompt_length} + {new_tokens}"
    return f"{subject} need {need} positions, and {name} has {facts.longest}" if need > facts.longest else None
