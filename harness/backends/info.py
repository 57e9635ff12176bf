"""An entry of the table of backends: everything that must be known before the backend's libraries are imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from harness.backends import settings
from harness.backends.settings import Setting
from harness.core.errors import ConfigError
from harness.core.schemas import Device, Kind, ModeName, Precision, Quantisation

ArtifactKind = Literal["module", "onnx", "engine", "none"]
ImportTarget = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""`module:name`."""
TopLevel = Annotated[str, StringConstraints(pattern=r"^\w+$")]
"""A module without a dot: to check that a dotted module exists, its parents would have to be imported."""
Line = Annotated[str, StringConstraints(min_length=1, pattern=r"^.*$")]


def import_target(target: ImportTarget) -> Any:
    """The class or function of a `module:name`; imports its libraries."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class BackendInfo:
    """One backend.

    target: `module:Class`, imported only in the process that runs it; targets: by device, where there are several.
    requires: importable modules whose absence makes the backend unavailable (said, never hidden).
    preload: modules that the case server imports once, where they are installed, before it forks a process per case.
    precisions: the precisions that can truly run, by device.
    artifact: its files: "module" (weights and Python code), "onnx", "engine" (built from ONNX on this GPU), or "none".
    not_offered: why a precision is missing, shown in the report of a plan that asks for it.
    not_quantised: why int8 files of one kind of quantisation are not run.
    not_run: why no model of a kind is run, shown in the report of a plan that asks for it. What only the exported file
        shows, the backend refuses itself (NotSupportedError).
    computes: False for a backend that only measures the harness; such rows are never ranked.
    environment: variables set before its libraries are imported. Both telemetry switches are here: ONNX Runtime from
        1.29 and OpenVINO start a thread at import that reports over the network, in the process that measures.
    modes: how it can run; each mode needs its calls of base.py.
    modes_not_offered: why a mode is missing, shown in the report of a plan that asks for it.
    asynchronous: by device, the function of its library that computes several batches asynchronously; it must implement
        issue() and issued() of base.py. Elsewhere load cases with IN_FLIGHT are skipped, for the reason
        `not_asynchronous`. Nothing is declared for a GPU, where infer() only enqueues: a setting may refuse (one_pass).
    compile_cache: True when compiling takes so long that later processes reuse the work of the first process.
    settings: named ways to run it, by device; the first is the default of a case whose configuration names none.
    transfers: True where it can copy inputs and outputs as part of a sample on a GPU: the transfer boundary.
    one_stream: why these copies cannot run beside the passes of other batches (that boundary in pipelined mode), shown
        in the report of a plan that asks for it; None where they can.
    profiler: `module:function` that measures the time of each layer or operator of a case; called
        `(job, batches, folder, runs)` in a process of its own, returns a PartsProfile. None where that is unknown.
    allocations: `module:function` that lists what one pass allocates and frees, as reported by its library; called
        `(job, make, folder)`, returns a MemoryProfile. None where the library reports nothing.
    peak: `module:function` of a library that reports only the peak memory of a pass; called `(job)`, returns (bytes,
        how), UnavailableError where it reports nothing. None where it never does.
    distributions: whose versions decide its numbers, besides those that every environment records.
    decoder: `module:Class` of harness/backends/decoder.py that generates; None where it does not, for the reason
        `decodes_not`. decoder_targets: by device, where there are several. decoder_precisions: None: as `precisions`.
        decoder_not_offered, decoder_settings: as not_offered and settings. decoder_reads: its files. decoder_pads:
        whether a causal decoder has prefill_padded(). decoder_joins: `module:Class`, a JoiningDecoder of causal models
        that requests may join while it decodes; None where it has none. decodes_no: why it generates with no model of
        a type of transformers, or with none of a kind (`seq2seq`).
    decoder_profilers: by device, `module:function` that measures the layers or operators of one phase of its decoder;
        called `(job, prompts, phase, folder, runs)` as profiler is, job a DecoderJob.
    extra: the optional part of our package that installs its libraries; its cases are skipped where these are missing.
        None: `cpu` or `cuda` does, and their absence is a failure.
    remote: True for a running service, which is reached by its address and only loaded, never run as a case.
    plugin: distribution that provides it, filled in when the plugin is read; None for a built-in backend.
    """

    target: ImportTarget
    summary: Line
    requires: tuple[TopLevel, ...]
    preload: tuple[str, ...]
    precisions: Mapping[Device, tuple[Precision, ...]]
    artifact: ArtifactKind
    not_offered: Mapping[Precision, str] = field(default_factory=dict)
    not_quantised: Mapping[Quantisation, str] = field(default_factory=dict)
    not_run: Mapping[Kind, Line] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    computes: bool = True
    modes: tuple[ModeName, ...] = ("sync", "offline")
    modes_not_offered: Mapping[ModeName, str] = field(
        default_factory=lambda: {"pipelined": "a call of it runs one request at a time"}
    )
    asynchronous: Mapping[Device, Line] = field(default_factory=dict)
    not_asynchronous: Line = "a call of it returns when its batch is computed"
    compile_cache: bool = False
    settings: Mapping[Device, Mapping[str, Setting]] = field(default_factory=dict)
    transfers: bool = False
    one_stream: Line | None = "its copies wait in one queue with its passes"
    targets: Mapping[Device, ImportTarget] = field(default_factory=dict)
    profiler: ImportTarget | None = None
    allocations: ImportTarget | None = None
    peak: ImportTarget | None = None
    distributions: tuple[str, ...] = ()
    remote: bool = False
    plugin: str | None = None
    decoder: ImportTarget | None = None
    decoder_targets: Mapping[Device, ImportTarget] = field(default_factory=dict)
    decodes_not: Line = "it has no way to generate with a cache here"
    decoder_precisions: Mapping[Device, tuple[Precision, ...]] | None = None
    decoder_not_offered: Mapping[Precision, str] = field(default_factory=dict)
    decoder_settings: Mapping[Device, Mapping[str, Setting]] = field(default_factory=dict)
    decoder_reads: Literal["module", "onnx", "gguf", "none"] = "module"
    decoder_pads: bool = False
    decoder_joins: ImportTarget | None = None
    decodes_no: Mapping[str, Line] = field(default_factory=dict)
    decoder_profilers: Mapping[Device, ImportTarget] = field(default_factory=dict)
    extra: str | None = None

    @property
    def recorded(self) -> tuple[str, ...]:
        """Distributions whose versions its samples' environment records, besides those of every environment."""
        return self.distributions if self.plugin is None else (self.plugin, *self.distributions)

    def target_on(self, device: Device) -> str:
        """Its class for a device."""
        return self.targets.get(device, self.target)

    def settings_on(self, device: Device) -> Mapping[str, Setting]:
        """Its named settings on a device, the default first."""
        return self.settings.get(device, settings.PLAIN)

    def setting_in_id(self, device: Device, name: str) -> str:
        """The setting's part of a case id: empty for the default."""
        return "" if name == next(iter(self.settings_on(device))) else name

    def has_setting(self, device: Device, name: str) -> bool:
        """Whether it has a setting of that name there."""
        return self._setting(device, name) is not None

    def setting(self, device: Device, name: str) -> Setting:
        """Its setting of that name there. Raises ConfigError where it has no such setting."""
        setting = self._setting(device, name)
        if setting is None:
            raise ConfigError(f"No setting `{name}` of this backend on {device}.", "Write the plan again: `make plan`.")
        return setting

    def _setting(self, device: Device, name: str) -> Setting | None:
        """On a CPU numbers of threads are settings too."""
        threads = settings.of_threads(name) if device == "cpu" and self.computes else None
        return self.settings_on(device).get(name, threads)

    def decoder_target_on(self, device: Device) -> str | None:
        """Its decoder class for a device; None where it does not generate."""
        return self.decoder_targets.get(device, self.decoder)

    def decoder_precisions_on(self, device: Device) -> tuple[Precision, ...]:
        """The precisions that it generates in."""
        known = self.precisions if self.decoder_precisions is None else self.decoder_precisions
        return known.get(device, ())

    def decoder_settings_on(self, device: Device) -> Mapping[str, Setting]:
        """Named ways to generate there, the default first."""
        return self.decoder_settings.get(device, settings.PLAIN)

    def decoder_setting_in_id(self, device: Device, name: str) -> str:
        """The setting's part of the id of a case of generation: empty for the default."""
        return "" if name == next(iter(self.decoder_settings_on(device))) else name

    def decoder_setting(self, device: Device, name: str) -> Setting:
        """The setting of that name there. Raises ConfigError where it has no such setting."""
        threads = settings.of_threads(name) if device == "cpu" and self.computes else None
        setting = self.decoder_settings_on(device).get(name, threads)
        if setting is None:
            raise ConfigError(
                f"No setting `{name}` of this backend's decoder on {device}.", "Write the plan again: `make plan`."
            )
        return setting

    def no_issuing_on(self, device: Device, setting: str) -> str | None:
        """Why one thread cannot issue several batches to it there; None where it can."""
        if device == "cuda":
            return self.setting(device, setting).one_pass
        return None if device in self.asynchronous else self.not_asynchronous

    def modes_on(self, device: Device) -> tuple[ModeName, ...]:
        """How it can run there. A GPU's stream is a queue: every backend can have two passes in flight on it."""
        return ("sync", "pipelined", "offline") if device == "cuda" else self.modes
