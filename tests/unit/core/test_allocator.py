"""Settings of the memory allocator from outside are recorded; paths and other preloaded libraries are not."""

from __future__ import annotations

import pytest

from harness.core.host.environment import ALLOCATOR, allocator_settings


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"PATH": "/bin", "LD_PRELOAD": "/usr/lib/libcuda.so.1", "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}, None),
        ({"MALLOC_TRIM_THRESHOLD_": "1", "MALLOC_ARENA_MAX": "2"}, "MALLOC_ARENA_MAX=2, MALLOC_TRIM_THRESHOLD_=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
        ({"LD_PRELOAD": "/home/me/libjemalloc.so.2:/usr/lib/libcuda.so.1"}, "LD_PRELOAD=libjemalloc.so.2"),
    ],
)
def test_allocator_variables_are_recorded(variables: dict[str, str], shown: str | None) -> None:
    assert allocator_settings(variables) == ({} if shown is None else {ALLOCATOR: shown})
