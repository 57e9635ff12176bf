"""A user's own inputs in place of a model's usual inputs, checked against the model; and variations of a few inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core import store
from harness.core.errors import ExportError, UsageError
from harness.core.padding import MASK, Mask, mask_of
from harness.core.schemas import GivenInputs
from harness.core.text import unknown_name
from harness.core.units import count
from harness.zoo.batch_axes import Axes
from harness.zoo.input_files import FORM, MIN_SAMPLES, Arrays, read_inputs, read_texts
from harness.zoo.loaded import Inputs, Loaded, PadTexts

_SEED = 7


def with_own_inputs(loaded: Loaded, given: Sequence[GivenInputs]) -> Loaded:
    """The model with the files' samples in place of its usual inputs.

    Raises UsageError for a file that changed since it was planned, for names, types and shapes that do not fit, and for
    texts where the model reads no padded texts.
    """
    if any(file.holds_texts for file in given):
        return _with_texts(loaded, given[0])
    files = {path.sequence_length: _fitting(loaded, path) for path in given}
    shared = frozenset(name for name in loaded.input_names if loaded.input_axes.get(name, 0) is None)
    sources = {path.sequence_length: Path(path.path).name for path in given}

    def make_inputs(samples: int, length: int | None) -> Inputs:
        return rotating_samples(files[length], samples, f"of {sources[length]}", shared)

    return dataclasses.replace(
        loaded,
        make_inputs=make_inputs,
        make_raw=None,
        lengths=tuple(files) if len(files) > 1 else (),
        own_inputs=True,
        free_axes=_free_axes(list(files.values()), loaded.input_axes) or loaded.free_axes,
    )


def _with_texts(loaded: Loaded, given: GivenInputs) -> Loaded:
    path = Path(given.path)
    if loaded.pad_texts is None:
        raise UsageError(
            f"{path} holds texts, and the model has no tokenizer here or gives no answer to a padded text.", _ARRAYS
        )
    _require_planned_state(path, given)
    texts, pad = read_texts(path), loaded.pad_texts

    def make_inputs(samples: int, length: int | None) -> Inputs:
        arrays, whose = _padded(pad, texts, samples, length)
        found = len(arrays[MASK])
        if found < min(samples, MIN_SAMPLES):
            raise UsageError(
                f"{path} gives {count(found, 'different sample')} of {length} tokens, and {MIN_SAMPLES} are the least.",
                _MORE_TEXTS if arrays[MASK][:, -1].any() else _OTHER_TEXTS,
            )
        which = f"{found} of {len(texts):,} texts" if found < len(texts) else f"{found} texts"
        return Inputs(arrays, f"{which} of {path.name}, cut or padded to {length} tokens; {whose}")

    return dataclasses.replace(loaded, make_inputs=make_inputs, make_raw=None)


_ARRAYS = "Give ids as arrays: INPUTS=<file>.npz."
_MORE_TEXTS = "Write texts that differ in their first words, or plan a larger sequence length."
_OTHER_TEXTS = "No text was cut: the tokenizer gives them the same tokens. Write texts with words that it knows."


def _padded(pad: PadTexts, texts: Sequence[str], samples: int, length: int | None) -> tuple[Arrays, str]:
    """The first texts that differ from each other within the length, at most `samples`; and whose tokenizer it is."""
    made = pad(texts[:samples], length)
    arrays = made.arrays
    for start in range(samples, len(texts), samples):
        if len(_different(arrays)) >= samples:
            break
        more = pad(texts[start : start + samples], length).arrays
        arrays = {name: np.concatenate([values, more[name]]) for name, values in arrays.items()}
    places = _different(arrays)[:samples]
    return {name: values[places] for name, values in arrays.items()}, made.source


def rotating_samples(
    given: Mapping[str, NDArray[np.generic]],
    samples: int,
    which: str = "handed over",
    shared: frozenset[str] = frozenset(),
) -> Inputs:
    """The different samples among those given, sample axis first; where there are fewer than eight, variations too.

    which: whose samples they are, in words. shared: names of inputs that are the same for all samples, and stay so.
    """
    places = _different(given)[:samples]
    more = samples - len(places) if len(places) < MIN_SAMPLES else 0
    random = np.random.default_rng(_SEED)
    mask = mask_of(given)
    arrays: Arrays = {}
    for name, values in given.items():
        chosen = [values[place] for place in places]
        chosen += [
            values[place] if name in shared else _variation(name, values, place, mask, random)
            for place in (places[index % len(places)] for index in range(more))
        ]
        arrays[name] = np.stack(chosen)
    source = f"{count(len(places), 'different sample')} {which}"
    if more:
        source += f" and {count(more, 'variation')}: floats with 10% seeded noise, integers shuffled, "
        source += "within their range"
        constant = [
            name
            for name, values in given.items()
            if name not in shared
            and np.issubdtype(values.dtype, np.floating)
            and _is_constant(values[np.isfinite(values)])
        ]
        source += f"; noise of 0.1 on the constant {', '.join(constant)}" if constant else ""
    return Inputs(arrays, source)


def _is_constant(finite: NDArray[np.generic]) -> bool:
    """Whether these numbers are one number, which has no spread to take a tenth of."""
    return bool(finite.size) and bool(finite.min() == finite.max())


def varied_samples(given: Arrays, count: int) -> Arrays:
    """That many variations of the given samples."""
    random, mask = np.random.default_rng(_SEED), mask_of(given)
    return {
        name: np.stack([_variation(name, values, index % len(values), mask, random) for index in range(count)])
        for name, values in given.items()
    }


def _variation(
    name: str, values: NDArray[np.generic], place: int, mask: Mask | None, random: np.random.Generator
) -> NDArray[np.generic]:
    """A variation of one sample. Where texts are padded, its mask and its padding stay."""
    if mask is None or values.shape != mask.shape:
        return vary(values[place], values, random)
    made = np.array(values[place])
    if name != MASK:
        made[mask[place]] = vary(made[mask[place]], values[mask], random)
    return made


def vary(example: NDArray[np.generic], others: NDArray[np.generic], random: np.random.Generator) -> NDArray[np.generic]:
    """A variation of one example, within the range of all.

    Floats gain noise of a tenth of their spread; other elements change places, so that ids stay valid; a single
    element is drawn from the range of the others.
    """
    if np.issubdtype(example.dtype, np.floating):
        floats, usual = example.astype(np.float64), others.astype(np.float64)
        finite = usual[np.isfinite(usual)]
        if not finite.size:
            return example
        noise = random.normal(0.0, 0.1 * (float(finite.std()) or 1.0), example.shape)
        near = floats + noise if _is_constant(finite) else np.clip(floats + noise, finite.min(), finite.max())
        return np.where(np.isfinite(floats), near, floats).astype(example.dtype)
    if example.size > 1:
        return random.permutation(example.ravel()).reshape(example.shape)
    if np.issubdtype(example.dtype, np.integer):
        drawn = random.integers(others.min(), others.max(), example.shape, dtype=example.dtype, endpoint=True)
        return np.asarray(drawn, dtype=example.dtype)
    return random.choice(others.ravel(), example.shape)


def _different(given: Mapping[str, NDArray[np.generic]]) -> list[int]:
    """Places of the samples that differ from all before them."""
    seen: dict[bytes, int] = {}
    for place in range(len(next(iter(given.values())))):
        seen.setdefault(b"".join(np.ascontiguousarray(values[place]).tobytes() for values in given.values()), place)
    return list(seen.values())


def check_different(name: str, arrays: Arrays) -> None:
    """Raise ExportError where too few samples differ. An input without a finite value has no variations."""
    samples, different = len(next(iter(arrays.values()))), len(_different(arrays))
    if different >= min(samples, MIN_SAMPLES):
        return
    if not any(values.size for values in arrays.values()):
        raise ExportError(
            f"The inputs of {name} have no values: an axis of each is 0.",
            "Export it again with these axes dynamic, or with the extents to measure.",
        )
    hint = f"Give {MIN_SAMPLES} different samples or more: as example inputs, or as INPUTS=<file>.npz."
    empty = [
        key
        for key, values in arrays.items()
        if values.dtype.kind == "f" and values.size and not np.isfinite(values).any()
    ]
    if empty:
        raise ExportError(f"Input `{empty[0]}` of {name} has no finite value: it is NaN or infinite throughout.", hint)
    raise ExportError(f"Only {different} of {samples} inputs of {name} differ, and {MIN_SAMPLES} have to.", hint)


def _fitting(loaded: Loaded, inputs: GivenInputs) -> Arrays:
    """The arrays of a file in the model's order and types, sample axis first."""
    path = Path(inputs.path)
    _require_planned_state(path, inputs)
    arrays = _arrays_by_name(loaded.input_names, read_inputs(path), path)
    types = dict(loaded.input_types)
    if not set(loaded.input_names) <= set(types):
        usual = loaded.make_inputs(MIN_SAMPLES, inputs.sequence_length).arrays
        types = {name: values.dtype for name, values in usual.items()}
    own = [name for name in loaded.input_names if loaded.input_axes.get(name, 0) is not None]
    counts = {name: len(arrays[name]) for name in own if arrays[name].ndim}
    if len(set(counts.values())) != 1:
        sizes = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise UsageError(f"The inputs in {path} have no number of samples in common: {sizes}.", FORM)
    count = next(iter(counts.values()))
    if not count:
        raise UsageError(f"{path} has no sample.", FORM)
    return {
        name: _as_type(name, _repeated(name, arrays[name], loaded, count, path), types[name], path) for name in arrays
    }


def _require_planned_state(path: Path, given: GivenInputs) -> None:
    if path.is_file() and store.sha256_file(path) != given.sha256:
        raise UsageError(f"{path} has changed since it was planned.", "Run `make plan` again.")


def _arrays_by_name(names: Sequence[str], arrays: Arrays, path: Path) -> Arrays:
    """By the model's names; arrays with numpy.savez's default names are taken in their order."""
    if set(arrays) == {f"arr_{index}" for index in range(len(arrays))} and not set(arrays) & set(names):
        if len(arrays) != len(names):
            raise UsageError(
                f"{path} holds {len(arrays)} arrays without names, and the model has {len(names)} inputs: "
                f"{', '.join(names)}.",
                FORM,
            )
        return {name: arrays[f"arr_{index}"] for index, name in enumerate(names)}
    for name in arrays:
        if name not in names:
            problem, hint = unknown_name("input", name, names)
            raise UsageError(f"{path}: {problem}", hint)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise UsageError(f"{path} lacks the input `{missing[0]}`.", f"The model takes: {', '.join(names)}.")
    return {name: arrays[name] for name in names}


def _repeated(name: str, values: NDArray[np.generic], loaded: Loaded, count: int, path: Path) -> NDArray[np.generic]:
    """A shared input, given as the model takes it, repeated for each sample."""
    if loaded.input_axes.get(name, 0) is None:
        return np.stack([values] * count)
    if not values.ndim:
        raise UsageError(f"Input `{name}` in {path} is a scalar, and the model takes one value a sample.", FORM)
    return values


def _as_type(name: str, values: NDArray[np.generic], wanted: np.dtype[np.generic], path: Path) -> NDArray[np.generic]:
    if wanted.kind == "U" and values.dtype.kind == "U":
        return values
    if values.dtype.kind != "U" and np.can_cast(values.dtype, wanted, "same_kind"):
        with np.errstate(over="ignore"):
            cast = values.astype(wanted)
        if wanted.kind == "f" and (np.isinf(cast) & np.isfinite(values)).any():
            raise UsageError(
                f"Input `{name}` in {path} has values that are too large for {wanted}, which the model takes.",
                "Scale them: they would be infinite.",
            )
        if wanted.kind == "f" or np.array_equal(cast, values):
            return cast
    elif values.dtype.kind in "iu" and wanted.kind in "iu" and np.array_equal(values.astype(wanted), values):
        return values.astype(wanted)
    raise UsageError(
        f"Input `{name}` in {path} is {values.dtype}, and the model takes {wanted}.",
        f"Give it as that type: `array.astype('{wanted}')`, if you mean that.",
    )


def _free_axes(files: Sequence[Arrays], axes: Axes) -> dict[str, dict[int, str]]:
    """By input, the axes in which the files differ, as the model has them; axes that go together share a name."""
    names: dict[tuple[int, ...], str] = {}
    labels: dict[str, dict[int, str]] = {}
    for name, values in files[0].items():
        batch = axes.get(name, 0)
        rest = [axis for axis in range(values.ndim - 1 + (batch is not None)) if axis != batch]
        for place, axis in enumerate(rest, start=1):
            extents = tuple(arrays[name].shape[place] for arrays in files)
            if len(set(extents)) > 1:
                label = names.setdefault(extents, "sequence" if not names else f"extent_{len(names)}")
                labels.setdefault(name, {})[axis] = label
    return labels
