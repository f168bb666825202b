# SPDX-License-Identifier: Apache-2.0
"""Real inputs for the demo's models: a photograph with a caption, the caption itself, recorded speech."""
import pathlib
import wave

import numpy as np
from PIL import Image, ImageDraw, ImageFont

CAPTION = "PELTON 2026"
CAPTION_BOX = (150, 330, 500, 390)  # left, top, right, bottom in pixels of the photograph
SPEECH = pathlib.Path("/usr/share/sounds/alsa/Front_Center.wav")  # from Debian's alsa-utils: "front, center"
SPEECH_HZ, CHUNK, CONTEXT = 16000, 512, 64


def captioned_photo(path: pathlib.Path) -> Image.Image:
    image = Image.open(path).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.rectangle(CAPTION_BOX, fill="white")
    draw.text((CAPTION_BOX[0] + 15, CAPTION_BOX[1] + 5), CAPTION, fill="black", font=ImageFont.load_default(44))
    return image


def detector_input(image: Image.Image) -> np.ndarray:
    """[1,3,H,W] f32, H and W multiples of 32, normalised as the detector was trained."""
    size = tuple(v // 32 * 32 for v in image.size)
    pixels = np.asarray(image.resize(size), np.float32) / 255
    pixels = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)


def found_box(score: np.ndarray, image: Image.Image) -> tuple[int, int, int, int] | None:
    """Bounding box, in pixels of the image, of what the detector calls text; score is [1,1,H,W]."""
    rows, columns = np.where(score[0, 0] > 0.3)
    if len(rows) == 0:
        return None
    sx, sy = image.width / score.shape[3], image.height / score.shape[2]
    margin = 12  # the network shrinks what it marks
    return (max(0, round(columns.min() * sx) - margin), max(0, round(rows.min() * sy) - margin),
            min(image.width, round(columns.max() * sx) + margin), min(image.height, round(rows.max() * sy) + margin))


def recogniser_input(image: Image.Image, box: tuple[int, int, int, int]) -> np.ndarray:
    """[1,3,48,320] f32 in [-1, 1], channels in the order blue, green, red."""
    pixels = np.asarray(image.crop(box).resize((320, 48)), np.float32) / 127.5 - 1
    return np.ascontiguousarray(pixels[:, :, ::-1].transpose(2, 0, 1)[None])


def decode_text(probabilities: np.ndarray, characters: str) -> str:
    """Best class a step, repeats and blanks removed; probabilities are [1,T,classes]."""
    table = ["", *characters.split("\n"), " "]
    best = probabilities[0].argmax(axis=1)
    return "".join(table[c] for i, c in enumerate(best) if c and (i == 0 or best[i - 1] != c))


def speech_chunks() -> list[np.ndarray]:
    """Chunks of [1, CONTEXT + CHUNK] f32 at 16 kHz, each with the end of the one before in front."""
    with wave.open(str(SPEECH)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        factor = file.getframerate() // SPEECH_HZ
    samples = samples[: len(samples) // factor * factor].reshape(-1, factor).mean(axis=1)
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), samples])
    return [padded[None, i : i + CONTEXT + CHUNK] for i in range(0, len(samples) - CHUNK + 1, CHUNK)]


def speech_segments(probability: list[float]) -> list[tuple[float, float]]:
    """Start and end in seconds of runs above one half."""
    step = CHUNK / SPEECH_HZ
    segments, start = [], None
    for i, p in enumerate([*probability, 0.0]):
        if p > 0.5 and start is None:
            start = i
        elif p <= 0.5 and start is not None:
            segments.append((start * step, i * step))
            start = None
    return segments
