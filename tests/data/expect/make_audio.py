# SPDX-License-Identifier: Apache-2.0
"""Writes audio.json: audio features computed from their definitions with NumPy. usage: make_audio.py > audio.json"""
import json

import numpy as np


def tone(n, hz=440.0, rate=8000.0):
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(n) / rate)).astype(np.float32).astype(np.float64)


def spectrum(x, fft, hop, window, power=2, centre=True):
    w = np.zeros(fft)
    w[(fft - window) // 2:(fft - window) // 2 + window] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    if centre:
        x = np.pad(x, fft // 2, mode="reflect")
    frames = [x[s:s + fft] * w for s in range(0, len(x) - fft + 1, hop)]
    return np.abs(np.fft.rfft(frames, axis=1)).T ** power


def mel(mels, fft, rate, low, high, slaney):
    if slaney:
        to = lambda f: np.where(f < 1000, f * 3 / 200, 15 + np.log(np.maximum(f, 1e-9) / 1000) * 27 / np.log(6.4))
        back = lambda m: np.where(m < 15, m * 200 / 3, 1000 * np.exp((m - 15) * np.log(6.4) / 27))
    else:
        to, back = lambda f: 2595 * np.log10(1 + f / 700), lambda m: 700 * (10 ** (m / 2595) - 1)
    edges = back(np.linspace(to(np.float64(low)), to(np.float64(high)), mels + 2))
    hz = np.arange(fft // 2 + 1) * rate / fft
    rows = []
    for l, c, r in zip(edges, edges[1:], edges[2:]):
        rows.append(np.maximum(0, np.minimum((hz - l) / (c - l), (r - hz) / (r - c))) * (2 / (r - l) if slaney else 1))
    return np.array(rows)


x = tone(1000)
bands = mel(20, 256, 8000, 0, 4000, True) @ spectrum(x, 256, 100, 256)
db = 10 * np.log10(np.maximum(bands, 1e-10))
db = np.maximum(db, db.max() - 80)
k, i = np.arange(8)[:, None], np.arange(20)[None, :]
dct = np.sqrt(np.where(k == 0, 1, 2) / 20) * np.cos(np.pi * k * (i + 0.5) / 20)
y = tone(20)
out = {"power": spectrum(x, 256, 100, 200), "magnitude": spectrum(x, 128, 64, 128, 1, False), "mel_slaney": mel(6, 128, 8000, 0, 4000, True),
       "mel_htk": mel(6, 128, 8000, 100, 3000, False), "preemphasis": y - 0.97 * np.concatenate([y[:1], y[:-1]]), "decibels": db, "mfcc": dct @ db}
print(json.dumps({name: [float(f"{v:.9g}") for v in np.ravel(a)] for name, a in out.items()}))
