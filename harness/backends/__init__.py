"""The table of backends: everything that must be known before a backend's libraries are imported.

Adding a backend: its file with one class (its duties: base.py), an entry here, a test, a line in a config. An
installed package may provide a backend as well (plugins.py).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial

from harness.backends import settings
from harness.backends.info import BackendInfo
from harness.backends.plugins import PluginTable
from harness.core.errors import ConfigError
from harness.core.schemas import Device, Precision
from harness.core.text import unknown_name

__all__ = ["BACKENDS", "BUILT_IN", "BackendInfo", "backend_info"]

_MODEL_CODE = ("torchvision", "transformers.modeling_utils", "transformers.models.auto.modeling_auto")
"""Libraries that models are written with. If each case imported them, that would add seconds to its load time."""

_CUDA_FLOATS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16")
_TF32_CPU = "TF32 is a GPU's way to multiply"
_TORCH_INT8 = "int8 is measured through quantised ONNX files, which PyTorch does not run"
_FP8_CPU = "PyTorch converts fp8 to fp32 on a CPU and multiplies that, so it would be a slower fp32"
_NO_FP8 = "fp8 is measured through torch-eager, torch-compile and torch-aoti"
_FP16_CPU = "CPU kernels compute fp16 by way of fp32 on most processors; use bf16"

UNKNOWN_TO_GENAI = ("gpt2", "gptj", "gpt_neo", "gpt_neox", "opt", "bloom")
"""Types of causal models that onnxruntime-genai 0.18 builds no graph of."""

_ASK_NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""A library that looks for a GPU at import must not start CUDA in the case server: CUDA does not survive a fork."""

_TORCH_NOT: Mapping[Precision, str] = {"fp16": _FP16_CPU, "tf32": _TF32_CPU, "fp8": _FP8_CPU, "int8": _TORCH_INT8}
_TORCH_FLOATS: Mapping[Device, tuple[Precision, ...]] = {"cpu": ("fp32", "bf16"), "cuda": _CUDA_FLOATS}

_torch = partial(
    BackendInfo,
    requires=("torch",),
    precisions={**_TORCH_FLOATS, "cuda": (*_CUDA_FLOATS, "fp8")},
    artifact="module",
    not_offered=_TORCH_NOT,
    decoder_precisions=_TORCH_FLOATS,
    decoder_not_offered={"fp8": "fp8 linear layers are not written for decoders"},
    environment=_ASK_NVML,
    transfers=True,
    one_stream=None,
    allocations="harness.backends.torch.profile_memory:memory_profile",
)
"""Common fields of PyTorch's backends."""

BUILT_IN: Mapping[str, BackendInfo] = {
    "noop": BackendInfo(
        target="harness.backends.calibration.noop:Noop",
        summary="does nothing: the harness's own cost as a row",
        requires=(),
        preload=("numpy",),
        precisions={"cpu": ("fp32",), "cuda": ("fp32",)},
        artifact="none",
        not_offered=dict.fromkeys(("tf32", "fp16", "bf16", "fp8", "int8"), "noop computes nothing"),
        computes=False,
        decodes_not="it computes nothing; spin generates at a known speed",
    ),
    "spin": BackendInfo(
        target="harness.backends.calibration.spin:Spin",
        summary="waits a known time (models spin:50us, spin:1ms, …): the harness's own error as a row",
        requires=(),
        preload=("numpy",),
        precisions={"cpu": ("fp32",), "cuda": ("fp32",)},
        artifact="none",
        not_offered=dict.fromkeys(("tf32", "fp16", "bf16", "fp8", "int8"), "spin computes nothing"),
        computes=False,
        decoder="harness.backends.calibration.spin:SpinDecoder",
        decoder_precisions={"cpu": ("fp32",)},
        decoder_reads="none",
        decoder_pads=True,
        decoder_joins="harness.backends.calibration.spin:SpinDecoder",
    ),
    "endpoint": BackendInfo(
        target="harness.backends.endpoint:RunningService",
        summary="a running service, named by ENDPOINT=<address>: load scenarios only (docs/endpoints.md)",
        requires=(),
        preload=("numpy", "harness.endpoints.issuing"),
        precisions={"cpu": ("fp32", "tf32", "fp16", "bf16")},
        artifact="module",
        not_offered=dict.fromkeys(
            ("fp8", "int8"), "name the precision whose tolerance the answers of a quantised service shall meet"
        ),
        modes=("sync",),
        modes_not_offered=dict.fromkeys(("pipelined", "offline"), "the scenarios of load have their own"),
        remote=True,
    ),
    "torch-eager": _torch(
        target="harness.backends.torch.base:TorchEager",
        profiler="harness.backends.torch.profile:eager",
        summary="PyTorch, one operator at a time: the reference and the baseline",
        preload=("torch", *_MODEL_CODE, "harness.zoo.construct"),
        settings={"cuda": settings.EAGER_CUDA},
        decoder="harness.backends.torch.decoder:EagerDecoder",
        decoder_pads=True,
        decoder_joins="harness.backends.torch.decoder:SlotDecoder",
        decoder_profilers=dict.fromkeys(("cpu", "cuda"), "harness.backends.torch.profile:eager_decoder"),
    ),
    "torch-script": _torch(
        target="harness.backends.torch.script:TorchScript",
        profiler="harness.backends.torch.profile:script",
        summary="traced, frozen, torch.jit.optimize_for_inference",
        preload=("torch", *_MODEL_CODE, "harness.zoo.construct"),
        precisions=_TORCH_FLOATS,
        not_offered={**_TORCH_NOT, "fp8": _NO_FP8},
        settings={"cuda": settings.SCRIPT_CUDA},
        decodes_not="a traced step has no cache as an input",
    ),
    "torch-compile": _torch(
        target="harness.backends.torch.compile:TorchCompile",
        profiler="harness.backends.torch.profile:compiled",
        summary="torch.compile with the Inductor compiler",
        preload=("torch", "torch._inductor.compile_fx", *_MODEL_CODE, "harness.zoo.construct"),
        compile_cache=True,
        one_stream="its CUDA graphs write every answer over the one before, which is being copied then",
        settings={"cpu": settings.COMPILE_CPU, "cuda": settings.COMPILE_CUDA},
        decoder="harness.backends.torch.decoder_compile:CompiledDecoder",
        decoder_profilers=dict.fromkeys(("cpu", "cuda"), "harness.backends.torch.profile:compiled_decoder"),
        decoder_settings={"cuda": settings.DECODE_COMPILED_CUDA},
    ),
    "torch-aoti": _torch(
        target="harness.backends.torch.aoti:TorchAoti",
        summary="torch.export, compiled ahead of time by AOTInductor into a package (.pt2)",
        preload=("torch", "torch._inductor.compile_fx", *_MODEL_CODE, "harness.zoo.construct"),
        compile_cache=True,
        settings={"cuda": settings.AOTI_CUDA},
    ),
    "onnxruntime": BackendInfo(
        target="harness.backends.onnxruntime.cpu:OnnxRuntime",
        profiler="harness.backends.onnxruntime.profile_cpu:profile",
        peak="harness.backends.onnxruntime.profile_cpu:peak_bytes",
        summary="ONNX Runtime with IO binding, all graph optimisations",
        requires=("onnxruntime",),
        preload=("onnxruntime",),
        environment={"ORT_DISABLE_TELEMETRY": "1"},
        precisions={"cpu": ("fp32", "int8"), "cuda": ("fp32", "tf32", "fp16")},
        artifact="onnx",
        transfers=True,
        one_stream=None,
        asynchronous={"cpu": "run_async"},
        settings={"cuda": settings.ORT_CUDA},
        targets={"cuda": "harness.backends.onnxruntime.cuda:OnnxRuntimeOnGpu"},
        not_offered={
            "tf32": _TF32_CPU,
            "fp16": "ONNX Runtime's CPU provider has few fp16 kernels and casts to fp32 around the others",
            "int8": "measured on a CPU: with a GPU QLinearConv stays there (onnxruntime#24807), and QDQ runs in floats",
            "bf16": "ONNX Runtime has bf16 kernels for a few operators only",
            "fp8": _NO_FP8,
        },
        decoder="harness.backends.onnxruntime.decoder:OnnxDecoder",
        decoder_targets={"cuda": "harness.backends.onnxruntime.decoder_cuda:OnnxDecoderOnGpu"},
        decoder_settings={"cpu": settings.DECODE_ORT, "cuda": settings.DECODE_ORT},
        decoder_profilers={"cpu": "harness.backends.onnxruntime.profile_cpu:decoder"},
        decoder_reads="onnx",
    ),
    "ort-genai": BackendInfo(
        target="harness.backends.onnxruntime.genai_decoder:GenaiDecoder",
        summary="onnxruntime-genai: generates on the graph of its own builder",
        requires=("onnxruntime_genai",),
        preload=("numpy",),
        environment={"ORT_DISABLE_TELEMETRY": "1"},
        precisions={},
        artifact="module",
        compile_cache=True,
        decoder="harness.backends.onnxruntime.genai_decoder:GenaiDecoder",
        decoder_precisions={"cpu": ("fp32", "int8"), "cuda": ("fp16",)},
        decoder_not_offered={"fp16": "its builder writes fp16 graphs for GPUs", "fp32": "on a GPU it serves fp16"},
        decodes_no={
            "seq2seq": "onnxruntime-genai has no graph of T5 and its like",
            **dict.fromkeys(UNKNOWN_TO_GENAI, "onnxruntime-genai's builder knows no model of this type"),
        },
        extra="genai",
        distributions=("onnxruntime-genai", "onnxruntime-genai-cuda"),
    ),
    "llamacpp": BackendInfo(
        target="harness.backends.llamacpp:LlamaCppDecoder",
        summary="llama.cpp: generates from the quantised GGUF file itself",
        requires=("llama_cpp", "gguf"),
        preload=("numpy",),
        precisions={},
        artifact="module",
        decoder="harness.backends.llamacpp:LlamaCppDecoder",
        decoder_precisions={"cpu": ("int4",)},
        decoder_not_offered=dict.fromkeys(
            ("fp32", "tf32", "fp16", "bf16", "fp8", "int8"),
            "llama.cpp reads the weights of 4 bits that the GGUF file has",
        ),
        decoder_reads="gguf",
        decoder_joins="harness.backends.llamacpp:LlamaCppSlots",
        extra="llamacpp",
        distributions=("llama-cpp-python",),
    ),
    "onnxruntime-tensorrt": BackendInfo(
        target="harness.backends.onnxruntime.cuda:OnnxRuntimeTensorrt",
        summary="ONNX Runtime's TensorRT provider, its engines kept between processes",
        requires=("onnxruntime", "pycuda"),
        preload=("onnxruntime",),
        environment={"ORT_DISABLE_TELEMETRY": "1"},
        precisions={"cuda": ("fp32", "tf32", "fp16")},
        artifact="onnx",
        transfers=True,
        one_stream=None,
        compile_cache=True,
        not_offered={
            "bf16": "not measured through this provider yet",
            "int8": "not measured through it yet",
            "fp8": _NO_FP8,
        },
        decodes_not="its decoder files are of operator set 23, and TensorRT 8.6 reads up to 17",
    ),
    "tensorrt": BackendInfo(
        target="harness.backends.tensorrt.runtime:TensorRt",
        profiler="harness.backends.tensorrt.profile:profile",
        summary="TensorRT's own runtime with an engine built for this GPU",
        requires=("tensorrt", "pycuda"),
        preload=("numpy",),
        precisions={"cuda": ("fp32", "tf32", "fp16", "bf16", "int8")},
        artifact="engine",
        transfers=True,
        one_stream=None,
        not_offered={"fp8": _NO_FP8},
        settings={"cuda": settings.TENSORRT},
        not_quantised={"dynamic": "TensorRT runs no dynamically quantised ONNX: its scales must be fixed beforehand"},
        decodes_not="TensorRT 8.6 has no operator for a cache, and two engines for prefill and decode are not written",
    ),
    "cudnn": BackendInfo(
        target="harness.backends.cudnn.runtime:CuDnn",
        profiler="harness.backends.cudnn.profile:profile",
        summary="cuDNN's graph API: fused convolutions in NHWC, the fastest kernel of each layer by time on this GPU",
        requires=("cudnn", "onnx", "pycuda"),
        preload=("numpy",),
        precisions={"cuda": ("fp16",)},
        artifact="onnx",
        transfers=True,
        one_stream=None,
        compile_cache=True,
        not_offered={
            **dict.fromkeys(("fp32", "tf32", "bf16"), "cudnn runs in fp16 only, the one precision that was tried"),
            "int8": "its graphs hold no scales of a quantised file",
            "fp8": _NO_FP8,
        },
        settings={"cuda": settings.CUDNN},
        not_run={"text": "it runs convolutional networks with one picture as input"},
        decodes_not="it runs convolutional networks",
        extra="cudnn",
        distributions=("nvidia-cudnn-frontend", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    ),
    "openvino": BackendInfo(
        target="harness.backends.openvino.runtime:OpenVino",
        profiler="harness.backends.openvino.profile:profile",
        summary="OpenVINO, latency hint, inference precision set and read back",
        requires=("openvino",),
        preload=("openvino",),
        environment={"CI": "true"},
        precisions={"cpu": ("fp32", "bf16", "int8")},
        modes=("sync", "pipelined", "offline"),
        asynchronous={"cpu": "AsyncInferQueue"},
        artifact="onnx",
        not_offered={"tf32": _TF32_CPU, "fp16": _FP16_CPU, "fp8": _NO_FP8},
        not_quantised={
            "dynamic": "OpenVINO would run this dynamically quantised file in fp32, so it is not listed as int8"
        },
        decoder="harness.backends.openvino.decoder:OpenVinoDecoder",
        decoder_precisions={"cpu": ("fp32", "bf16")},
        decoder_not_offered={"int8": "OpenVINO compresses weights through NNCF, which is not part of it"},
        decoder_settings={"cpu": settings.DECODE_STATES},
        decoder_reads="onnx",
    ),
}


BACKENDS = PluginTable(BUILT_IN)


def backend_info(name: str) -> BackendInfo:
    """The entry of a backend. ConfigError with the nearest known name, or with the fault of its plugin."""
    try:
        return BACKENDS[name]
    except KeyError:
        for refused in BACKENDS.refused(name):
            raise ConfigError(refused.problem, refused.hint) from None
        problem, hint = unknown_name("backend", name, BACKENDS)
        raise ConfigError(problem, f"{hint} A plugin's backend has to be installed in {sys.executable}.") from None
