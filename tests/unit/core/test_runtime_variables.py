"""What tunes thread pools and kernels from outside is recorded; what the harness sets itself is not."""

from __future__ import annotations

import pytest

from harness.backends import BACKENDS
from harness.core.host.environment import VARIABLES, runtime_variables
from harness.processes.launcher import process_environment


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "2"}, None),
        ({"OMP_WAIT_POLICY": "passive", "OMP_THREAD_LIMIT": "1"}, "OMP_THREAD_LIMIT=1, OMP_WAIT_POLICY=passive"),
        ({"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}, "ONEDNN_DEFAULT_FPMATH_MODE=BF16"),
        ({"NVIDIA_TF32_OVERRIDE": "1"}, "NVIDIA_TF32_OVERRIDE=1"),
    ],
)
def test_runtime_variables_are_recorded(variables: dict[str, str], shown: str | None) -> None:
    assert runtime_variables(variables) == ({} if shown is None else {VARIABLES: shown})


def test_a_worker_s_own_variables_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in runtime_variables().get(VARIABLES, "").split(", "):
        monkeypatch.delenv(name.partition("=")[0], raising=False)
    own = {name: value for info in BACKENDS.values() for name, value in info.environment.items()}
    assert runtime_variables({**process_environment(2, own=True), **own}) == {}
