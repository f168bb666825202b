# SPDX-License-Identifier: Apache-2.0
"""Spectrograms on a GPU in two ways: products of windowed frames with a table of waves, as lowered pipelines do them (src/data/lower_audio.cc), and cuFFT. Both through
PyTorch, so that the libraries behind them (cuBLAS in f32, cuFFT) are all that differs; each is captured in a CUDA graph; milliseconds for a batch of 64 sounds
of 1 s and of 10 s at 16 kHz, hop 160.

usage: spectra.py [--out FILE.json]
"""
import argparse, datetime, json, math, pathlib, statistics

import torch


def captured(run):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    times = []
    for _ in range(15):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(5):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 5)
    return statistics.median(times), out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out")
    a = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    report = {"what": __doc__.split("\n\n")[0], "date": datetime.date.today().isoformat(), "torch": torch.__version__, "device": torch.cuda.get_device_name(), "rows": []}
    for seconds in (1, 10):
        x = torch.randn(64, 16000 * seconds, device="cuda")
        for n in (256, 400, 512, 1024, 2048, 4096):
            window = torch.hann_window(n, device="cuda")
            k, t = torch.arange(n // 2 + 1, dtype=torch.float64), torch.arange(n, dtype=torch.float64)
            angle = 2 * math.pi * k[None] * t[:, None] / n
            table = (torch.cat([angle.cos(), angle.sin()], 1).float().cuda() * window[:, None]).contiguous()

            def products():
                y = x.unfold(1, n, 160) @ table
                return y[..., : n // 2 + 1].square() + y[..., n // 2 + 1:].square()

            def fft():
                y = torch.fft.rfft(x.unfold(1, n, 160) * window)
                return y.real.square() + y.imag.square()

            one, a_out = captured(products)
            two, b_out = captured(fft)
            error = ((a_out - b_out).abs().max() / b_out.abs().max()).item()
            report["rows"].append({"seconds": seconds, "n_fft": n, "products_ms": round(one, 4), "cufft_ms": round(two, 4), "largest_relative_difference": error})
            print(json.dumps(report["rows"][-1]), flush=True)
            if a.out:
                pathlib.Path(a.out).write_text(json.dumps(report, indent=1) + "\n")
            del a_out, b_out


if __name__ == "__main__":
    main()
