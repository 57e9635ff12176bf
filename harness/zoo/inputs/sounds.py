"""Sounds like speech: voiced syllables with formants, breath and pauses, each different, and the same every time. No
recording of a person is part of this project."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core.layout import ModelFolder
from harness.core.safe_files import SizeLimit, read

SECONDS = 3
SOURCE = f"{SECONDS} s of synthetic speech-like sound (harness/zoo/inputs/sounds.py), 16 bits, one channel"
_SEED = 7
_FORMANTS = ((730, 1090), (270, 2290), (300, 870), (530, 1840), (570, 840))
"""Hz, of five vowels (Peterson and Barney 1952, averages of men)."""


def wav_files(samples: int, rate: int) -> list[bytes]:
    """That many different WAV files of SECONDS each; rate in samples a second."""
    random = np.random.default_rng(_SEED)
    return [_wav(_utterance(random, rate), rate) for _ in range(samples)]


def decode_wav(file: bytes) -> NDArray[np.float32]:
    """A WAV file of 16 bits and one channel as floats from -1 to 1, (samples,)."""
    with wave.open(io.BytesIO(file)) as sound:
        frames = sound.readframes(sound.getnframes())
    return np.frombuffer(frames, dtype="<i2").astype(np.float32) / np.float32(32768)


def rate_of(folder: Path) -> int:
    """Samples a second that the saved processor of a model asks for."""
    from harness.zoo.model_files import PROCESSOR  # noqa: PLC0415

    content = json.loads(read(ModelFolder(folder).processor / PROCESSOR, SizeLimit.TEXT))
    return int(content.get("sampling_rate", 16_000))


def _utterance(random: np.random.Generator, rate: int) -> NDArray[np.float64]:
    """Syllables of 0.1 to 0.3 s with pauses between them, from -1 to 1."""
    sound = 0.003 * random.standard_normal(SECONDS * rate)
    start = 0.0
    while start < SECONDS - 0.3:
        length = float(random.uniform(0.1, 0.3))
        syllable = _syllable(random, np.arange(int(length * rate)) / rate)
        first = int(start * rate)
        sound[first : first + len(syllable)] += syllable
        start += length + float(random.uniform(0.0, 0.15))
    return sound / (1.05 * float(np.abs(sound).max()))


def _syllable(random: np.random.Generator, time: NDArray[np.float64]) -> NDArray[np.float64]:
    """Harmonics of a falling voice, loud near the formants of a vowel, with an attack and a decay."""
    pitch = float(random.uniform(90, 240))
    formants = _FORMANTS[int(random.integers(len(_FORMANTS)))]
    phase = 2 * np.pi * pitch * (time - 0.2 * time**2)
    sound = np.zeros_like(time)
    for harmonic in range(1, int(3500 / pitch)):
        loudness = sum(1 / (1 + ((harmonic * pitch - formant) / 90) ** 2) for formant in formants)
        sound += loudness * np.sin(harmonic * phase)
    return sound * np.hanning(len(time))


def _wav(sound: NDArray[np.float64], rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as target:
        target.setnchannels(1)
        target.setsampwidth(2)
        target.setframerate(rate)
        target.writeframes(np.round(sound * 32767).astype("<i2").tobytes())
    return file.getvalue()
