"""A folder of the user's with a damaged file in it: two lines that name the file's part, not a library's exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import HubError
from harness.zoo import model_info
from harness.zoo.families.transformer import load
from harness.zoo.loaded import Request

CONFIG = '{"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9}'


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"config.json": CONFIG, "model.safetensors": b"\x10\0\0\0\0\0\0\0{}"}, "weights"),
        ({"config.json": CONFIG, "model.safetensors": b""}, "weights"),
        ({"config.json": CONFIG, "pytorch_model.bin": b"\x80\x02."}, "weights"),
        ({"config.json": CONFIG[:20]}, "configuration"),
    ],
    ids=["torn safetensors", "empty safetensors", "torn pickle", "torn configuration"],
)
def test_a_damaged_file_of_a_folder_is_told(files: dict[str, str | bytes], what: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HubError) as raised:
        load(Request(model_info(f"hf:{folder}"), "pretrained", 0, None, tmp_path / "export"))
    assert raised.value.problem.startswith(f"The {what} of hf:{folder} could not be read: ")
    assert "save_pretrained" in raised.value.hint
