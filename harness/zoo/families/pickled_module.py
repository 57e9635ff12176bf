"""A module that harness.api was given: `pickle:<class>-<digits>`, read back from the file that the API wrote.

Reading a pickle runs code. So a name holds no path: the file is always models/<slug>/module.pkl, and it is read only
where the first digits of its sha256 are those of its name.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import torch
from torch import nn

from harness.core.errors import ConfigError, MalformedFileError, MissingInputError
from harness.core.layout import ModelFolder
from harness.core.safe_files import SizeLimit, path_inside, read
from harness.zoo import ModelInfo
from harness.zoo.batch_axes import axes_of_examples, sample_first
from harness.zoo.families.own_module import initialised_module, load_module, uncompiled_module, without_compiling
from harness.zoo.input_files import Arrays
from harness.zoo.inputs.own import rotating_samples
from harness.zoo.loaded import Inputs, Loaded, Request

_AGAIN = "Make the profiler again: harness.api.ModelProfiler writes the file."


def load(request: Request) -> Loaded:
    """The module and its inputs. Raises MissingInputError, MalformedFileError or ConfigError as _read does."""
    module, given = _read(request.info, request.folder)
    axes = axes_of_examples({name: values.shape for name, values in given.items()})
    samples_first, shared = sample_first(given, axes), frozenset(axes)  # the API takes a batch in the first axis alone

    def make_inputs(samples: int, sequence: int | None) -> Inputs:
        del sequence
        return rotating_samples(samples_first, samples, shared=shared)

    return load_module(request.info, module, _tensors(given), tuple(given), make_inputs, axes)


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The module as it was handed over; the exported weights, which are the same, are loaded over."""
    module, given = _read(info, folder)
    return initialised_module(module, _tensors(given))


def _tensors(given: Arrays) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(np.asarray(values)) for values in given.values())


def _read(info: ModelInfo, folder: Path) -> tuple[nn.Module, Arrays]:
    path = path_inside(folder, ModelFolder(folder).pickled.name)
    if not path.is_file():
        raise MissingInputError(f"{info.name}: there is no file {path}.", _AGAIN)
    content = read(path, SizeLimit.MODULE)  # once: the bytes that are checked are the bytes that are run
    if not hashlib.sha256(content).hexdigest().startswith(info.reference.rpartition("-")[2]):
        raise MalformedFileError(f"{path} is not the file that {info.name} names: its sha256 differs.", _AGAIN)
    try:
        with without_compiling():
            pair: tuple[nn.Module, Arrays] = pickle.loads(content)  # noqa: S301 - its digest was checked against its name
    except Exception as error:  # whatever the module's own code raises while it is built
        raise ConfigError(
            f"{info.name} could not be read back: {type(error).__name__}: {error}",
            "Give a module that pickles, or a function that builds it: `module:<python path>:<function>`.",
        ) from error
    return uncompiled_module(pair[0]), pair[1]
