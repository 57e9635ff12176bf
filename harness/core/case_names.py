"""The readable ids of cases (pure)."""

from __future__ import annotations

from harness.core.schemas import Boundary, Mode


def case_id(
    slug: str,
    backend: str,
    device: str,
    precision: str,
    batch_size: int,
    sequence_length: int | None,
    boundary: Boundary,
    mode: Mode,
    setting: str,
) -> str:
    """The readable id of a case, such as `minilm-l6-openvino-cpu-fp32-b8-s128-offline`; also its folder's name.

    `setting`: its name where it is not the usual one of the backend.
    """
    sequence = "" if sequence_length is None else f"-s{sequence_length}"
    # The usual boundary, mode and setting are left out: most ids stay short.
    kind = ("" if boundary == "compute" else f"-{boundary}") + ("" if mode == "sync" else f"-{mode}")
    way = f"-{setting}" if setting else ""
    return f"{slug}-{backend}-{device}-{precision}-b{batch_size}{sequence}{kind}{way}"
