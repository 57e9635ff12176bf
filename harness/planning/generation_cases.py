"""Expands the blocks of `generation` into cases, and refuses what no model or backend can do (pure)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import get_args

from harness.backends import BackendInfo, backend_info
from harness.backends.precision import onnx_precision
from harness.core.errors import ConfigError
from harness.core.schemas import Device, GenerationCase, Plan, Precision, Weights
from harness.core.text import unknown_name
from harness.planning.config import Config, GenerationBlock, ModelEntry
from harness.planning.load_cases import decoder_case
from harness.zoo import ModelInfo
from harness.zoo.model_files import EXAMPLES, DecoderFacts, facts_of, too_long

KnownModels = Mapping[str, tuple[ModelEntry, ModelInfo]]
Pairs = Sequence[tuple[int, int]]
"""(prompt tokens, new tokens) of the user's file, in place of the block's lengths."""


def expand_generations(
    config: Config, models: KnownModels, source: str, merge: bool, pairs: Pairs
) -> list[GenerationCase]:
    """All cases, in the order of the blocks. With `merge`, equal cases of two blocks become one.

    Raises ConfigError for unknown names, duplicates, and blocks of which no case could run.
    """
    cases: dict[str, GenerationCase] = {}
    for index, block in enumerate(config.generation):
        where = f"{source}: generation[{index}]"
        selected = _selected(block, models, where)
        backends = [(name, backend_info(name)) for name in block.backends]
        _refuse(block, backends, config.device, where)
        lengths = list(pairs) or list(product(block.prompt_lengths, block.new_tokens))
        # Real text alone needs a tokenizer.
        texts = config.generating.prompts is not None
        own = {name: _usable_model(*models[name], lengths, texts) for name in selected}
        _refuse_models(own, where)
        for case in _block_cases(
            block, {name: models[name] for name in selected}, own, backends, config.device, lengths
        ):
            if case.case_id in cases and not merge:
                raise ConfigError(
                    f"{source}: duplicate case {case.case_id}.",
                    "Two blocks of `generation` overlap: take the combination out of one of them.",
                )
            cases[case.case_id] = case
    return list(cases.values())


@dataclass(frozen=True)
class GenerationNeeds:
    """The needs of one model's cases for its export.

    lengths: most new tokens by prompt length. batch_size: the largest. onnx: precisions of decoder files. forms: their
    further forms (Setting.variant). rounded: precisions of floats below fp32.
    """

    model: str
    slug: str
    weights: Weights
    lengths: Mapping[int, int]
    batch_size: int
    onnx: tuple[Precision, ...] = ()
    forms: tuple[str, ...] = ()
    rounded: tuple[Precision, ...] = ()


ROUNDED: tuple[Precision, ...] = ("fp16", "bf16")
"""Precisions whose distance from fp32 depends on the depth of a model and on its weights, so that it is measured."""

COMPLETIONS_BATCH = 16
"""Prompts with a reference where generation is loaded, here or by a running service; eight times as many are sent."""


def generation_needs(plan: Plan) -> dict[str, GenerationNeeds]:
    """Model → its needs, for models with cases that read files."""
    needs: dict[str, GenerationNeeds] = {}
    served = [
        decoder_case(load, COMPLETIONS_BATCH, *pair)
        for load in plan.loads
        if load.generates_here
        for pair in dict.fromkeys(load.pairs)
    ]
    cases = [case for case in (*plan.generations, *served) if case.skip_reason is None]
    for name in dict.fromkeys(case.model for case in cases):
        own = [case for case in cases if case.model == name]
        own = [case for case in own if backend_info(case.backend).decoder_reads != "none"]
        if not own:
            continue
        onnx = [case for case in own if backend_info(case.backend).decoder_reads == "onnx"]
        forms = [backend_info(case.backend).decoder_setting(case.device, case.setting).variant for case in onnx]
        needs[name] = GenerationNeeds(
            model=name,
            slug=own[0].slug,
            weights=own[0].weights,
            lengths=_most_tokens((case.prompt_length, case.new_tokens) for case in own),
            batch_size=max(case.batch_size for case in own),
            onnx=file_precisions(onnx),
            rounded=tuple(setting for setting in ROUNDED if any(case.precision == setting for case in own)),
            forms=tuple(dict.fromkeys(form for form in forms if form is not None)),
        )
    for load in plan.loads:
        if load.endpoint is None or not load.pairs:
            continue
        before = needs.get(load.model)
        lengths = _most_tokens((*(before.lengths.items() if before else ()), *load.pairs))
        needs[load.model] = (
            GenerationNeeds(load.model, load.slug, load.weights, lengths, COMPLETIONS_BATCH)
            if before is None
            else replace(before, lengths=lengths, batch_size=max(before.batch_size, COMPLETIONS_BATCH))
        )
    return needs


def _most_tokens(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """(prompt tokens, new tokens) → most new tokens by prompt length, ascending."""
    most: dict[int, int] = {}
    for prompt_length, new_tokens in pairs:
        most[prompt_length] = max(new_tokens, most.get(prompt_length, 0))
    return dict(sorted(most.items()))


def file_precisions(cases: Sequence[GenerationCase]) -> tuple[Precision, ...]:
    """Precisions of the decoder files. The int8 file is made from the fp32 file, which comes first."""
    needed = {onnx_precision(case.precision) for case in cases}
    if "int8" in needed:
        needed.add("fp32")
    return tuple(precision for precision in get_args(Precision) if precision in needed)


def generation_id(
    slug: str,
    backend: str,
    device: str,
    precision: str,
    batch_size: int,
    prompt_length: int,
    new_tokens: int,
    setting: str = "",
) -> str:
    """The readable id of a case, such as `gpt2-torch-eager-cpu-fp32-b1-p128-n64`; also its folder's name."""
    suffix = f"-{setting}" if setting else ""
    return f"{slug}-{backend}-{device}-{precision}-b{batch_size}-p{prompt_length}-n{new_tokens}{suffix}"


Usable = DecoderFacts | str | None
"""As model_files.facts_of."""


def _usable_model(entry: ModelEntry, info: ModelInfo, lengths: Pairs, texts: bool) -> Usable:
    facts = facts_of(info, entry.weights or info.default_weights)
    if not isinstance(facts, DecoderFacts):
        return facts
    if texts and facts.tokenizer is False:
        return f"{info.name} has no tokenizer here, and the prompts are texts"
    long = [too_long(info.name, facts, *pair) for pair in lengths]
    return long[0] if long and all(long) else facts


def _refuse_models(own: Mapping[str, Usable], where: str) -> None:
    """Raise ConfigError where none of the models can do anything that is asked."""
    reasons = [models for models in own.values() if isinstance(models, str)]
    if len(reasons) < len(own):
        return
    hints = [
        ("positions", "Shorten it: PROMPTS=…, TOKENS=…."),
        ("`architectures`", "Save the model there again with `save_pretrained`: it writes the name of its class."),
        ("tokenizer", "Save its tokenizer into its folder, or give lengths: PROMPTS=128,1024."),
    ]
    hint = next((text for word, text in hints if word in reasons[0]), f"Choose a model that generates: {EXAMPLES}.")
    raise ConfigError(f"{where}: {reasons[0]}.", hint)


def _block_cases(
    block: GenerationBlock,
    models: KnownModels,
    own: Mapping[str, Usable],
    backends: Sequence[tuple[str, BackendInfo]],
    device: Device,
    lengths: Pairs,
) -> Iterator[GenerationCase]:
    for name, (entry, info) in models.items():
        for backend, table in backends:
            for precision, setting in product(block.precisions, _settings_of(block, table, device)):
                setting_in_id = table.decoder_setting_in_id(device, setting)
                for batch_size, (prompt_length, new_tokens) in product(block.batch_sizes, lengths):
                    shape = (batch_size, prompt_length, new_tokens)
                    yield GenerationCase(
                        case_id=generation_id(info.slug, backend, device, precision, *shape, setting_in_id),
                        model=name,
                        slug=info.slug,
                        backend=backend,
                        device=device,
                        precision=precision,
                        batch_size=batch_size,
                        prompt_length=prompt_length,
                        new_tokens=new_tokens,
                        weights=entry.weights or info.default_weights,
                        setting=setting,
                        skip_reason=reason_to_skip(
                            backend, table, info, own[name], device, precision, (prompt_length, new_tokens), setting
                        ),
                    )


def reason_to_skip(
    backend: str,
    table: BackendInfo,
    info: ModelInfo,
    usable: Usable,
    device: Device,
    precision: Precision,
    lengths: tuple[int, int],
    setting: str,
) -> str | None:
    """Why a combination of the block is not measured; None where it is. lengths: prompt tokens, new tokens."""
    long = None if usable is None or isinstance(usable, str) else too_long(info.name, usable, *lengths)
    if isinstance(usable, str) or long is not None:
        return usable if isinstance(usable, str) else long
    if table.decoder_target_on(device) is None:
        return f"{backend} does not generate: {table.decodes_not}"
    offered = table.decoder_precisions_on(device)
    if (table.decoder_reads == "none") != (not info.exportable):
        return f"{backend} generates from work of known duration alone, and no other backend does"
    if precision not in offered:
        reasons = {**table.not_offered, **table.decoder_not_offered}
        return reasons.get(precision, f"{backend} does not generate in {precision} on {device}")
    variant = table.decoder_setting(device, setting).variant
    cannot = _unsuitable(backend, table, info, usable, variant) if isinstance(usable, DecoderFacts) else None
    return cannot or _absent(table)


def _absent(table: BackendInfo) -> str | None:
    """The optional libraries of a backend that are not here, and how to install them; None where all are."""
    absent = [name for name in table.requires if importlib.util.find_spec(name) is None]
    if table.extra is None or not absent:
        return None
    return f"{', '.join(absent)} is not installed: pip install 'inferometer[{table.extra}]'"


def _unsuitable(
    backend: str, table: BackendInfo, info: ModelInfo, facts: DecoderFacts, variant: str | None
) -> str | None:
    """Why a backend cannot generate with this model, or not in this form; None where it can."""
    if facts.kind == "seq2seq" and variant == "in-place":
        return "in-place attention is written for causal models; SETTINGS=binding runs"
    if table.decoder_reads == "gguf" and not facts.gguf:
        return f"{backend} reads GGUF files, and the weights of {info.name} come from none"
    return next((table.decodes_no[name] for name in (facts.kind, facts.model_type) if name in table.decodes_no), None)


def _settings_of(block: GenerationBlock, table: BackendInfo, device: Device) -> tuple[str, ...]:
    """Names of the settings that a backend is measured with; a block that names only others leaves it its usual one."""
    known = table.decoder_settings_on(device)
    return tuple(name for name in block.settings or () if name in known) or (next(iter(known)),)


def _selected(block: GenerationBlock, models: KnownModels, where: str) -> Sequence[str]:
    for name in block.models or ():
        if name not in models:
            raise ConfigError(
                f"{where}.models: {name} is not among the models of this configuration.",
                f"Add it under `models:`, or name one of: {', '.join(models)}.",
            )
    return list(models) if block.models is None else block.models


def _refuse(block: GenerationBlock, backends: Sequence[tuple[str, BackendInfo]], device: Device, where: str) -> None:
    """Raise ConfigError for a list entry that no combination can use."""
    able = [(name, table) for name, table in backends if table.decoder_target_on(device)]
    if not able:
        name, table = backends[0]
        raise ConfigError(
            f"{where}.backends: {name} does not generate: {table.decodes_not}.", "Use torch-eager or torch-compile."
        )
    for precision in block.precisions:
        if not any(precision in table.decoder_precisions_on(device) for _, table in able):
            reasons = {table.not_offered.get(precision, "not offered") for _, table in able}
            raise ConfigError(
                f"{where}.precisions: none of these backends generates in {precision} on {device}.",
                f"{'; '.join(sorted(reasons))}.".capitalize(),
            )
    known = list(dict.fromkeys(name for _, table in able for name in table.decoder_settings_on(device)))
    for setting in block.settings or ():
        if setting not in known:
            problem, hint = unknown_name("setting", setting, known)
            raise ConfigError(f"{where}.settings: {problem}", hint)
