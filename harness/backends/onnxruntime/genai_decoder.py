"""ort-genai: onnxruntime-genai's own loop on the graph of its own builder, the strongest way of ONNX Runtime.

The builder runs once in a process of its own, because it needs PyTorch, which the measured process must not load. The
pass over the prompts is part of append_tokens, not of the first generate_next_token: prefill() calls both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime_genai as genai
from numpy.typing import NDArray

from harness.backends import UNKNOWN_TO_GENAI
from harness.backends.decoder import Decoder, DecoderJob
from harness.backends.onnxruntime.decoder import count_products
from harness.backends.precision import floating_precision, precision_of
from harness.core.errors import CaseError
from harness.core.safe_files import SizeLimit, read_text
from harness.core.schemas import Placement

_TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"unknown": 0}, "unk_token": "unknown"},
}
"""The builder copies a tokenizer, and generation on ids does not use one."""
_CHOSEN = 1e4
"""A logit above all others."""


class GenaiDecoder(Decoder):
    """Greedy search of fixed length, in buffers that past and present share. Built graphs are kept in the job's cache.

    With several sequences its generator takes back all tokens or none. After force() it begins again, and gets every
    token by logits of our own (`set_logits`), so that the forced steps run as the measured ones do.
    """

    compiles = True

    def __init__(self, job: DecoderJob) -> None:
        super().__init__(job)
        kind = str(json.loads(read_text(job.folder / "config.json", SizeLimit.TEXT))["model_type"])
        if kind in UNKNOWN_TO_GENAI or job.shape.kind == "seq2seq":
            raise CaseError(
                f"onnxruntime-genai builds no graph of {kind} models.", "Leave ort-genai out of this model's backends."
            )
        self._graph = (job.cache / f"{job.folder.name}-{job.precision}-{job.device}").resolve()
        self._end = job.shape.vocabulary - 1
        """The token that ends a sequence: the last one, which a tokenizer hardly uses."""
        self._generator: Any = None
        self._history: list[NDArray[Any]] = []
        self._forced = False
        self._tokens: NDArray[Any] = np.zeros(job.batch_size, np.int64)

    def load(self) -> None:
        """Everything that takes time is building."""

    def compile_cached(self) -> bool:
        """Whether an earlier process built the graph."""
        return (self._graph / "genai_config.json").is_file()

    def compile(self) -> None:
        """Build the graph, if no earlier process did, and open it."""
        if not self.compile_cached():
            self._build()
        config = genai.Config(str(self._graph))
        threads = {"intra_op_num_threads": self.job.threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self._model = genai.Model(config)
        self._parameters = genai.GeneratorParams(self._model)
        self._parameters.set_search_options(
            do_sample=False,
            batch_size=self.job.batch_size,
            max_length=self.job.prompt_length + self.job.new_tokens,
            past_present_share_buffer=True,
        )
        # Made once: making one takes tens of milliseconds, whatever the model.
        self._generator = genai.Generator(self._model, self._parameters)

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Take every token back; the pass over the prompts, and its tokens."""
        self._begin(ids)
        self._forced = False
        self._choose()

    def step(self) -> None:
        """One pass over the latest tokens, and their successors."""
        if self._forced:
            self._give(self._tokens)
            self._tokens = self._generator.get_logits()[:, -1].argmax(-1)  # runs the pass over the tokens given
            self._history.append(self._tokens)
        else:
            self._choose()

    def tokens(self) -> NDArray[np.int64]:
        """The tokens of the latest call. CaseError where one of them ends its sequence."""
        if self._end in self._tokens:
            raise CaseError(
                f"The model chose token {self._end}, after which onnxruntime-genai appends padding.",
                "Leave ort-genai out of this model's backends, or choose other prompts.",
            )
        ids: NDArray[np.int64] = self._tokens.astype(np.int64)
        return ids

    def logits(self) -> NDArray[np.float32]:
        """The graph's output in the latest pass."""
        logits: NDArray[np.float32] = self._generator.get_output("logits")[:, -1].astype(np.float32)
        return logits

    def force(self, ids: NDArray[np.int64]) -> None:
        """Replace the latest tokens; the steps before are repeated once, with the tokens that they had."""
        if not self._forced:
            before = self._history[:-1]
            self._begin(self._prompt)
            for own in before:
                self._give(own)
                self._generator.get_logits()
            self._history = [*before, ids]
            self._forced = True
        self._tokens = self._history[-1] = np.array(ids)

    def cache_bytes(self) -> int:
        """Bytes of the outputs of keys and values, which share the buffers of the inputs."""
        return sum(int(self._generator.get_output(name).nbytes) for name in self._present())

    def placement(self) -> Placement:
        """The model's device, and the operators and types of the graph that it opened."""
        nodes = onnx.load(self._graph / "model.onnx", load_external_data=False).graph.node
        operators = [node.op_type for node in nodes]
        counted = count_products(operators, nodes)
        cached = floating_precision({str(self._generator.get_output(self._present()[0]).dtype): 1})
        if "fp32" in counted:
            counted[cached] = counted.pop("fp32")
        return Placement(
            device=str(self._model.device_type).lower(),
            precision=precision_of(counted),
            provider="onnxruntime-genai",
            settings={
                "threads": self.job.threads,
                "attention": "+".join(sorted({name for name in operators if name.endswith("Attention")})),
                "cache_precision": cached,
                **{f"{name}_products": number for name, number in sorted(counted.items())},
            },
            dtype_census=counted,
        )

    def build_facts(self) -> dict[str, str]:
        """The version of onnxruntime-genai."""
        return {"onnxruntime_genai": str(genai.__version__)}

    def close(self) -> None:
        """The generator first: it holds the model."""
        self._generator = None
        vars(self).pop("_parameters", None)
        vars(self).pop("_model", None)

    def _begin(self, ids: NDArray[np.int64]) -> None:
        self._prompt, self._history = ids, []
        self._generator.rewind_to(0)
        self._generator.append_tokens(ids.astype(np.int32))

    def _choose(self) -> None:
        self._generator.generate_next_token()
        self._tokens = self._generator.get_next_tokens()
        self._history.append(self._tokens)

    def _give(self, ids: NDArray[Any]) -> None:
        """Let the search choose these tokens."""
        logits = np.zeros((self.job.batch_size, 1, self.job.shape.vocabulary), np.float32)
        logits[np.arange(len(ids)), 0, ids] = _CHOSEN
        self._generator.set_logits(logits)
        self._generator.generate_next_token()

    def _present(self) -> list[str]:
        return [f"present.{layer}.{part}" for layer in range(self.job.shape.layers) for part in ("key", "value")]

    def _build(self) -> None:
        """Write the graph into the cache; a build that stops leaves nothing there."""
        self._graph.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._graph.parent, prefix=".building-") as scratch:
            source, target = Path(scratch, "source"), Path(scratch, "graph")
            source.mkdir()
            _as_checkpoint(self.job.folder, source)
            command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(source), "-o", str(target)]
            command += ["-p", self.job.precision, "-e", self.job.device, "-c", str(Path(scratch, "cache"))]
            offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
            ended = subprocess.run(command, capture_output=True, text=True, env=offline, check=False)  # noqa: S603
            if ended.returncode or not (target / "genai_config.json").is_file():
                words = (ended.stderr.strip() or ended.stdout.strip() or "it gave no reason").splitlines()[-1]
                raise CaseError(
                    f"The builder of onnxruntime-genai failed: {words}", "Leave ort-genai out of this model's backends."
                )
            _rename_end(target / "genai_config.json", self._end)
            shutil.rmtree(self._graph, ignore_errors=True)
            target.rename(self._graph)


def _rename_end(file: Path, end: int) -> None:
    """Let another token end a sequence: after its end the library appends padding and not what the model chooses, and
    without an end token it takes the padding's."""
    config = json.loads(read_text(file, SizeLimit.TEXT))
    config["model"].update(eos_token_id=end, pad_token_id=end)
    file.write_text(json.dumps(config))


def _as_checkpoint(folder: Path, target: Path) -> None:
    """A folder as the builder reads it, of an export's files."""
    config = json.loads(read_text(folder / "config.json", SizeLimit.TEXT))
    config.pop("quantization_config", None)  # of the file that the weights come from; these are in fp32
    (target / "config.json").write_text(json.dumps(config))
    (target / "model.safetensors").symlink_to((folder / "weights.safetensors").resolve())
    (target / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "unknown"}
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
