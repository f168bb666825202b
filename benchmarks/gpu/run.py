#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Pelton against PyTorch on one GPU, in the same run, and writes JSON after every case.

    python3 benchmarks/gpu/run.py PELTON -o RESULT.json [--only WORD,WORD] [--seconds 0.1] [--rounds 5] [--modes eager,cudagraph,compile]
        [--prepare-seconds 150] [--stop-after SECONDS] [--work FOLDER]

First everything is made ready: a PyTorch process for each model and precision builds its models, exports them and compiles them;
then Pelton compiles plan files, one after the other. Then, with the GPU to itself, each case is measured: Pelton (through its C interface) and the modes of PyTorch
in turn, both in Python processes with the same loop and clock. Inputs and results stay in device memory, calls take three random inputs
in turn (PyTorch's graph is captured once for each), a call is timed by the wall clock to the end of its work; the figure is the median of the rounds' medians, of the best mode of PyTorch. Of the four models
at batch 1 in fp16 a whole process on each side is timed too: started, loaded from disk, run once, result on disk. Cases that
RESULT.json holds already are not run again. Random weights (the same on both sides) and inputs.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy

from cases import FOUR, table

TOKEN_MODELS = ("bert", "gpt2", "t5_small_encoder")
HERE = pathlib.Path(__file__).resolve().parent
LAUNCH_US = 0.9  # of a node of a CUDA graph, as measured with dependent empty kernels


class Side:
    """A process that answers lines of JSON with lines of JSON."""

    def __init__(self, command, environment, log):
        self.log = open(log, "w+")
        self.process = subprocess.Popen([sys.executable, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=environment)
        self.answers = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def take(self, said):
        self.answers.put(said)

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.take(json.loads(line))
        self.answers.put(None)

    def ask(self, timeout=60, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        answer = self.answers.get(timeout=timeout)
        if answer is None:
            raise RuntimeError(f"{self.log.name} ended: {self.last_words()}")
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer

    def last_words(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read().strip()[-300:]


class Peer(Side):
    """A process of torch_side.py."""

    def __init__(self, model, precision, cases, folder, modes, exports):
        self.ready, self.versions = {}, None
        jobs = [dataclasses.asdict(c) | {"name": c.name, "onnx": c.onnx, "truth": precision == c.peer_precisions[-1]} for c in cases]
        request = {"model": model, "precision": precision, "jobs": jobs, "folder": str(folder), "modes": modes, "exports": exports}
        environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="1", OMP_NUM_THREADS="2",
                           TORCHINDUCTOR_CACHE_DIR=str(folder / "torch_cache"), TRITON_CACHE_DIR=str(folder / "torch_cache" / "triton"))
        environment.pop("LD_LIBRARY_PATH", None)
        super().__init__([HERE / "torch_side.py", json.dumps(request)], environment, folder / f"{model}.{precision}.{cases[0].batch}.log")

    def take(self, said):
        if "ready" in said:
            self.ready[said.pop("ready")] = said
        elif "all_ready" in said:
            self.versions = said
        else:
            self.answers.put(said)


class Pelton:
    def __init__(self, binary, folder, seconds):
        self.binary, self.folder, self.seconds = str(pathlib.Path(binary).resolve()), folder, seconds
        self.environment = dict(os.environ, PELTON_CACHE_DIR=str(folder / "cache"))
        self.environment.setdefault("PELTON_LIBRARY", str(pathlib.Path(self.binary).with_name("libpelton.so")))
        self.side = Side([HERE / "pelton_side.py"], self.environment, folder / "pelton_side.log")

    def call(self, *arguments, timeout=90):
        start = time.perf_counter()
        done = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                              env=self.environment, cwd=self.folder)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-300:] or f"ended with status {done.returncode}")
        return done.stdout, time.perf_counter() - start

    def plan_of(self, case):
        return self.folder / f"{case.name.replace(' ', '.')}.pelton"

    def compile(self, case, shape):
        """The plan file, its size, and the error of a run of it against the truth that PyTorch's side left."""
        model, plan = self.folder / f"{case.onnx}.onnx", self.plan_of(case)
        _, seconds = self.call("--threads", 4, "compile", model, "--device", "cuda", "--precision", case.precision, "--shape", f"input={shape}", "-o", plan)
        return {"compile_s": seconds, "onnx_bytes": model.stat().st_size, "plan_bytes": plan.stat().st_size}

    def second_compile(self, case, shape):
        _, seconds = self.call("compile", f"{case.onnx}.onnx", "--device", "cuda", "--precision", case.precision, "--shape",
                               f"input={shape}", "-o", "again.pelton")
        return {"second_compile_s": seconds}

    def error(self, case):
        stem = self.folder / f"{case.onnx}.b{case.batch}"
        if not stem.with_name(stem.name + ".truth.npy").exists():
            return {}
        out = self.folder / f"{case.name.replace(' ', '.')}.out"
        self.call("run", self.plan_of(case), "--device", "cuda", "--input", f"input={stem}.input.npy", "--output-dir", out)
        got = next(iter(sorted(out.glob("*.npy"))))
        truth = numpy.load(f"{stem}.truth.npy")
        difference = numpy.load(got, mmap_mode="r")[:len(truth)].astype(numpy.float64) - truth
        return {"error": float(numpy.linalg.norm(difference) / numpy.linalg.norm(truth))}

    def bench(self, case, *more, seconds=None):
        out, wall = self.call("--json", "bench", self.plan_of(case), "--device", "cuda", "--seconds", seconds or self.seconds,
                              "--warm-up", 0.1, *more)
        return json.loads([line for line in out.splitlines() if line.startswith("{")][-1]), wall

    def load(self, case, shape):
        """Into the process that is measured; what `bench` knows of the plan, its layers and the bytes of its weights on the device."""
        report, _ = self.bench(case, "--device-buffers", "--layers")
        results = self.side.ask(load=case.name, path=str(self.plan_of(case)), shape=shape,
                                dtype="int64" if case.model in TOKEN_MODELS else "float32")
        layers, kinds = report.pop("layers"), {}
        for layer in layers:
            kinds[layer["implementation"]] = kinds.get(layer["implementation"], 0) + layer["ms"]
        phases = report["phases_ms"]
        kept = {"compute_ms": phases["compute"], "host_us": phases["host"] * 1e3, "load_ms": report["load_ms"], "peak_bytes": report["device_peak_bytes"], "memory": report["memory"], **results,
                "stable": report["stable"], "nodes": len(layers), "ms_by_implementation_one_by_one": kinds,
                "energy": report.get("energy"), "product": report["product"]}
        return kept, layers, report["memory"]["device_weights"]

    def time(self, case, seconds):
        return self.side.ask(name=case.name, seconds=seconds)["ms"]

    def whole_process(self, case):
        """Wall-clock of a process that loads a plan and runs it once, and times of the copies around a run."""
        output = self.folder / "once.out"
        _, wall = self.call("run", self.plan_of(case), "--device", "cuda", "--input",
                            f"input={self.folder / case.onnx}.b{case.batch}.input.npy", "--output-dir", output)
        report, _ = self.bench(case)
        return {"process_s": wall, "phases_ms": report["phases_ms"]}


def floor(layers, weights, ceilings, precision):
    """Least times in ms: of the model, its operations or its weights alone; of the plan's nodes one by one, launches included."""
    rate, copy = ceilings[f"{precision}_tflops"] * 1e3, ceilings["copy_gb_per_s"]
    nodes = sum(max(layer["gflop"] / rate, layer["gbyte"] / copy) for layer in layers) * 1e3
    model = max(sum(layer["gflop"] for layer in layers) / rate, weights * 1e-9 / copy) * 1e3
    return {"floor_model_ms": model, "floor_ms": nodes + len(layers) * LAUNCH_US * 1e-3}


class Run:
    def __init__(self, options, folder):
        self.o, self.folder = options, folder
        self.result = {"cases": {}}
        if options.output and options.output.exists():
            self.result = json.loads(options.output.read_text())
        wanted = [w for w in options.only.split(",") if w]
        self.cases = [c for c in table() if c.name not in self.result["cases"] and (not wanted or any(w in c.name for w in wanted))]
        self.start = time.perf_counter()
        self.pelton = Pelton(options.pelton, folder, options.seconds)
        self.compiled, self.peers = {}, {}

    def left(self, until):
        return until - (time.perf_counter() - self.start)

    def say(self, text):
        print(f"{time.perf_counter() - self.start:6.1f} {text}", flush=True)

    def start_peers(self):
        groups = {}
        for case in self.cases:
            for precision in case.peer_precisions:
                groups.setdefault((case.model, precision, case.batch in (3, 8)), []).append(case)
        exported = set()
        for (model, precision, few), cases in groups.items():
            exports = sorted({(c.tokens, c.onnx) for c in cases if c.onnx not in exported})
            exported |= {name for _, name in exports}
            self.peers[model, precision, few] = Peer(model, precision, cases, self.folder, self.o.modes.split(","), exports)

    def shape_of(self, case):
        if case.model in TOKEN_MODELS:
            return f"{case.batch}x{case.tokens}"
        size = {"plain6": 128, "plain20": 128, "unet": 256, "detector": 640}.get(case.model, 224)
        return f"{case.batch}x3x{size}x{size}"

    def prepare(self):
        """PyTorch's side of all cases at once; then, with the GPU to itself since it chooses by timing, Pelton case by case."""
        self.start_peers()
        for key, peer in self.peers.items():
            while peer.versions is None and peer.process.poll() is None and self.left(self.o.prepare_seconds) > 0:
                time.sleep(0.2)
            if peer.versions is None:
                self.say(f"PyTorch's side of {key[0]} {key[1]} is not ready ({len(peer.ready)} cases are): {peer.last_words()[-200:]}")
                peer.process.kill()
                peer.ready = {}
        self.say("PyTorch is ready")
        for case in self.cases:
            try:
                self.compiled[case.name] = self.pelton.compile(case, self.shape_of(case))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                self.compiled[case.name] = {"failed": str(error)[-300:]}
                self.say(f"{case.name}: {str(error)[-200:]}")
        self.say(f"plans: {sum('failed' not in c for c in self.compiled.values())} of {len(self.cases)}")

    def whole_peer_process(self, case):
        """Wall-clock of a process that loads what PyTorch saved of the same model and runs it once."""
        stem = self.folder / f"{case.onnx}.b{case.batch}"
        environment = dict(os.environ)
        environment.pop("LD_LIBRARY_PATH", None)
        start = time.perf_counter()
        done = subprocess.run([sys.executable, HERE / "torch_once.py", f"{stem}.pt", f"{stem}.input.npy", f"{stem}.once.npy"],
                              capture_output=True, text=True, timeout=90, env=environment)
        if done.returncode != 0:
            return {"process_error": done.stderr.strip()[-200:]}
        return {"process_s": time.perf_counter() - start}

    def measure(self, case):
        entry = {"pelton": dict(self.compiled.get(case.name, {"failed": "was not compiled"})), "torch": {}}
        entry["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        ours = entry["pelton"]
        peers = {p: self.peers[case.model, p, case.batch in (3, 8)] for p in case.peer_precisions}
        times = {p: {m: [] for m in peers[p].ready.get(case.name, {}).get("modes", [])} for p in peers}
        own = []
        if "failed" not in ours:
            try:
                facts, layers, weights = self.pelton.load(case, [int(n) for n in self.shape_of(case).split("x")])
                ours |= facts | floor(layers, weights, self.result["ceilings"], case.precision)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                ours["failed"] = str(error)[-300:]
        for turn in range(self.o.rounds):  # each side begins every other round
            if turn % 2 == 0 and "failed" not in ours:
                own.append(self.pelton.time(case, self.o.seconds))
            for p, peer in peers.items():
                for mode in times[p]:
                    times[p][mode].append(peer.ask(name=case.name, mode=mode, seconds=self.o.seconds)["ms"])
            if turn % 2 and "failed" not in ours:
                own.append(self.pelton.time(case, self.o.seconds))
        if own:
            self.pelton.side.ask(drop=case.name)
        for p, peer in peers.items():
            facts = peer.ready.get(case.name, {"failed": "was not ready in time"})
            entry["torch"][p] = {k: v for k, v in facts.items() if k != "modes"}
            entry["torch"][p] |= {m: statistics.median(t) for m, t in times[p].items()}
            entry["torch"][p]["spread"] = {m: [min(t), max(t)] for m, t in times[p].items()}
            if peer.versions:
                peer.ask(drop=case.name)
        if own:
            ours |= {"ms": statistics.median(own), "spread": [min(own), max(own)]}
            ours["share_of_floor"] = ours["floor_ms"] / ours["ms"]
            best = min(((statistics.median(t), f"{p} {m}", p, m) for p in times for m, t in times[p].items() if t), default=None)
            if best:
                entry |= {"best_peer": best[1], "best_peer_ms": best[0], "faster": best[0] / ours["ms"]}
            try:
                ours |= self.pelton.error(case)
                if best and "error" in ours and best[3] in peers[best[2]].ready[case.name]["errors"]:
                    entry["error_against_peer"] = ours["error"] / peers[best[2]].ready[case.name]["errors"][best[3]]
                if case.model in FOUR and case.batch == 1 and case.precision == "fp16":
                    ours |= self.pelton.whole_process(case) | self.pelton.second_compile(case, self.shape_of(case))
                    entry["torch"][case.precision] |= self.whole_peer_process(case)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                ours["not_all_measured"] = str(error)[-300:]
        self.result["cases"][case.name] = entry
        self.save()
        peer_text = ", ".join(f"{p} {m} {statistics.median(t):.3f}" for p in times for m, t in times[p].items() if t)
        self.say(f"{case.name}: {ours.get('ms', ours.get('failed'))} | {peer_text} | {entry.get('faster', 0):.2f}x "
                 f"error {ours.get('error', 0):.1e} ({entry.get('error_against_peer', 0):.2f})")

    def save(self):
        if self.o.output:
            self.o.output.write_text(json.dumps(self.result, indent=1) + "\n")

    def run(self):
        self.prepare()
        living = [p for p in self.peers.values() if p.versions]
        if not living:
            raise SystemExit("no PyTorch process came up")
        self.result["what"] = f"benchmarks/gpu/run.py, seconds {self.o.seconds}, rounds {self.o.rounds}"
        self.result["versions"] = {k: v for k, v in living[0].versions.items() if k != "all_ready"}
        self.result["versions"]["pelton"] = self.pelton.call("--version")[0].strip()
        self.result["ceilings"] = living[0].ask(ceilings=True)
        self.say(f"ceilings {self.result['ceilings']}")
        for case in self.cases:
            if self.o.stop_after and self.left(self.o.stop_after) < 0:
                self.say("time is up")
                break
            try:
                self.measure(case)
            except (queue.Empty, RuntimeError, OSError) as error:
                self.say(f"{case.name}: {error!r}"[:300])
        self.save()
        for peer in self.peers.values():
            peer.process.kill()
        self.pelton.side.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--only", default="", help="words, one of which is in a case's name")
    parser.add_argument("--modes", default="eager,cudagraph,compile")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prepare-seconds", type=float, default=150)
    parser.add_argument("--stop-after", type=float, default=0)
    parser.add_argument("--work", type=pathlib.Path, help="folder for models and plans; a temporary one without")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        Run(options, folder.resolve()).run()


if __name__ == "__main__":
    main()
