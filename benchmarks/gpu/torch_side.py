# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of run.py: a process for one model in one precision. It makes ready all cases that it is given (eager, captured by
hand in a CUDA graph, torch.compile with mode reduce-overhead), then measures what it is asked for by lines on its standard input."""
import contextlib
import copy
import fcntl
import itertools
import json
import pathlib
import statistics
import sys
import time

import numpy

from cases import FOUR, ROTATED

START = time.perf_counter()
WARM_UP = 5


@contextlib.contextmanager
def alone(folder):
    """Nobody else who asks for it runs on the GPU meanwhile."""
    with open(folder / "gpu.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say(**what):
    print(json.dumps(what), flush=True)


def captured(torch, model, x):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)

    def call(_=None):
        graph.replay()
        return out

    return call


def first_tensor(out):
    return out if hasattr(out, "detach") else out[0]


def measured(torch, calls, seconds):
    """Milliseconds of a call to the end of its work, the median; the calls in turn."""
    times = []
    for call in calls * WARM_UP:
        call()
    torch.cuda.synchronize()
    turn, end = itertools.cycle(calls), time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 10:
        start = time.perf_counter()
        next(turn)()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


class Ready:
    """A case in all its modes."""

    def __init__(self, torch, source, case, shape, dtype, folder, precision, modes):
        self.calls, self.facts = {}, {"errors": {}}  # calls: by mode, one for each input
        generator = torch.Generator().manual_seed(case["batch"])
        dims = (case["batch"], *shape)
        tokens = dtype == torch.int64

        def drawn():
            return torch.randint(0, 1000, dims, generator=generator) if tokens else torch.randn(dims, generator=generator)

        def placed(x):
            x = x.cuda() if tokens else x.cuda().to(memory_format=torch.channels_last)
            return x.to(half) if half and not tokens else x

        x = drawn()
        half = torch.float16 if precision == "fp16" else None
        # Of large batches the first two, which no model here lets the others change.
        some = x if case["batch"] <= 8 else x[:2]
        wide = copy.deepcopy(source).double()
        truth = first_tensor(wide(some.cuda() if tokens else some.cuda().double())).cpu()
        del wide
        if case["truth"]:
            numpy.save(folder / f"{case['onnx']}.b{case['batch']}.input.npy", x.numpy())
            numpy.save(folder / f"{case['onnx']}.b{case['batch']}.truth.npy", truth.numpy())
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        self.model = source_in(torch, source, half, tokens)
        self.inputs = [placed(x)]
        # Convolutions are timed by the library at the first call.
        with contextlib.nullcontext() if tokens else alone(folder):
            self.model(self.inputs[0])
        self.facts["peak_bytes"] = self.peak(torch) - before
        self.inputs += [placed(drawn()) for _ in range(ROTATED - 1)]
        self.prepare("eager", lambda: [lambda x=x: self.model(x) for x in self.inputs], truth)
        out = first_tensor(self.model(self.inputs[0]))
        self.facts["result_bytes"] = out.numel() * out.element_size()
        del out
        if half and case["batch"] == 1 and case["model"] in FOUR:
            torch.save(self.model, folder / f"{case['onnx']}.b1.pt")  # for torch_once.py
        if "cudagraph" in modes:
            self.prepare("cudagraph", lambda: [captured(torch, self.model, x) for x in self.inputs], truth)
        if "compile" in modes:
            start = time.perf_counter()
            compiled = torch.compile(self.model, mode="reduce-overhead", dynamic=False)
            self.prepare("compile", lambda: [lambda x=x: compiled(x) for x in self.inputs], truth)
            self.facts["compile_s"] = time.perf_counter() - start

    def peak(self, torch):
        """Of a call, without what timing of algorithms took."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.model(self.inputs[0])
        return torch.cuda.max_memory_allocated()

    def prepare(self, mode, make, truth):
        import torch

        try:
            calls = make()
            for call in calls * WARM_UP:
                call()
            got = first_tensor(calls[0]())[:len(truth)].double().cpu()
            self.facts["errors"][mode] = float((got - truth).norm() / truth.norm())
            self.calls[mode] = calls
        except Exception as error:  # a mode that a model cannot take is left out, with its reason
            self.facts[f"{mode}_error"] = repr(error)[:200]

    def measure(self, mode, seconds):
        import torch

        return measured(torch, self.calls[mode], seconds)


def source_in(torch, source, half, tokens):
    model = copy.deepcopy(source)
    if half:
        model = model.to(half)
    return model if tokens else model.to(memory_format=torch.channels_last)


def ceilings(torch):
    """Rates of this machine now: products of 8192^3, a copy on the device, copies between host and device."""

    def seconds(call, runs):
        call()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e-3 / runs

    out, n = {}, 8192
    for name, dtype, tf32, runs in (("fp16", torch.float16, False, 20), ("tf32", torch.float32, True, 10), ("fp32", torch.float32, False, 3)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = torch.randn(n, n, device="cuda").to(dtype), torch.randn(n, n, device="cuda").to(dtype)
        out[f"{name}_tflops"] = 2 * n**3 / seconds(lambda: a @ b, runs) * 1e-12
    a, b = torch.randn(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
    out["copy_gb_per_s"] = 2 * a.numel() * 4 / seconds(lambda: b.copy_(a), 10) * 1e-9
    host = torch.randn(1 << 26).pin_memory()
    out["host_to_device_gb_per_s"] = host.numel() * 4 / seconds(lambda: b[: 1 << 26].copy_(host, non_blocking=True), 5) * 1e-9
    out["device_to_host_gb_per_s"] = host.numel() * 4 / seconds(lambda: host.copy_(b[: 1 << 26], non_blocking=True), 5) * 1e-9
    return out


def main(model, precision, jobs, folder, modes, exports):
    """jobs: cases as dicts. exports: the ONNX files to write, by tokens."""
    import torch

    import cases
    import export

    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 64
    exported, shape_of, dtype = cases.build(model)
    for tokens, name in exports:
        part = folder / f"{name}.part"
        export.to_onnx(exported, shape_of(tokens), dtype, part)
        part.rename(folder / f"{name}.onnx")
    source = cases.peer(model, exported).cuda()
    ready = {}
    for job in jobs:
        case = Ready(torch, source, job, shape_of(job["tokens"]), dtype, folder, precision, modes)
        ready[job["name"]] = case
        say(ready=job["name"], modes=list(case.calls), seconds=time.perf_counter() - START, **case.facts)
    say(all_ready=True, torch=torch.__version__, cudnn=torch.backends.cudnn.version(), cuda=torch.version.cuda)
    for line in sys.stdin:
        what = json.loads(line)
        if what.get("ceilings"):
            say(**ceilings(torch))
        elif what.get("drop"):
            ready.pop(what["drop"], None)
            say(dropped=True)
        else:
            say(ms=ready[what["name"]].measure(what["mode"], what["seconds"]))


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    request["folder"] = pathlib.Path(request["folder"])
    main(**request)
