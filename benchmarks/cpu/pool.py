#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the process's one pool costs its neighbours:
  PELTON_BINARY_DIR=BUILD python3 benchmarks/cpu/pool.py [rest] [beside] [quota] [--rounds N] [-o RESULT.json]

  rest    CPU time of a process in the minute after a run (at most 60 ms)
  beside  a plan and a PyTorch network, each alone in its process and each in a process that imported and used the other as
          well, which is then idle (at most 10% slower) and, for information, at work in turn; needs torch, takes a minute
  quota   a process in a cgroup of 1.5 CPUs, forked before the first use: its threads and its result (needs the right to make a
          cgroup of version 1)

All parts by default. Other work on the machine is met in three ways: the processes stay and measure in short blocks, one after
the other in changing order; a block counts by its best run; a block is only compared with that of the same round, and the
median over the rounds is the figure. The quartiles printed with it say whether it can be believed.
Fails if a bound is missed; a part that cannot run here says why. tests/api/pool_test.py has the rest.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/api"))
BLOCK_S, THREADS = 0.12, 2
CGROUP = pathlib.Path("/sys/fs/cgroup/cpu")


def plan_runner(path):
    import ctypes as c

    import numpy as np
    from binding import Plan, call, output, tensor
    from pool_model import INPUT
    call("pelton_set_threads", c.c_int32(0))
    context = Plan(path).context()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(np.ones(INPUT, np.float32))), 1)

    def run():
        call("pelton_context_run", context, None)
        return context
    run.result = lambda: float(output(run(), 0).sum())
    return run


def torch_runner():
    import torch
    torch.set_num_threads(THREADS)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.Tanh()]
    net, x = torch.nn.Sequential(*layers).eval(), torch.ones(1, 32, 56, 56)

    def run():
        with torch.inference_mode():
            net(x)
    return run


def best_ms(runs):
    """Runs all of them in turn for a block's length: the least time of each."""
    best, end = [float("inf")] * len(runs), time.perf_counter() + BLOCK_S
    while time.perf_counter() < end:
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    return [1e3 * t for t in best]


def child(mode, path):
    if mode == "rest":
        run = plan_runner(path)
        run()
        time.sleep(1)
        before = time.process_time()
        time.sleep(60)
        return {"cpu_ms": 1e3 * (time.process_time() - before)}
    if mode == "quota":
        import binding  # the library is loaded in this process, and used in the fork alone
        (CGROUP / sys.argv[4] / "cgroup.procs").write_text(str(os.getpid()))
        read, write = os.pipe()
        if os.fork() == 0:
            run = plan_runner(path)
            tasks = len(os.listdir("/proc/self/task"))
            os.write(write, json.dumps({"sum": run.result(), "new_threads": len(os.listdir("/proc/self/task")) - tasks}).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as f:
            said = json.load(f)
        doctor = json.loads(subprocess.run([binding.BUILD / "pelton", "doctor", "--json"], capture_output=True, text=True, check=True).stdout)
        return {**said, "quota_cpus": doctor["cpu"]["quota_cpus"], "threads": doctor["cpu"]["threads"]}
    if mode == "sum":
        return {"sum": plan_runner(path).result()}
    makers = {"plan": lambda: [plan_runner(path)], "torch": lambda: [torch_runner()], "both": lambda: [plan_runner(path), torch_runner()]}
    runs = makers[mode]()
    best_ms(runs)
    for line in sys.stdin:  # which of them to run in a block
        print(json.dumps(best_ms([runs[int(i)] for i in line.split()])), flush=True)
    return {}


def ask(mode, path, *more):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", mode, path, *more], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{mode}: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def beside(path, rounds):
    children = {mode: subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", mode, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True) for mode in ("plan", "torch", "both")}

    def block(mode, which):
        children[mode].stdin.write(which + "\n")
        children[mode].stdin.flush()
        return json.loads(children[mode].stdout.readline())

    blocks = {"plan": ("plan", "0"), "torch": ("torch", "0"), "plan_beside": ("both", "0"), "torch_beside": ("both", "1"), "in_turn": ("both", "0 1")}
    names, ms = list(blocks), {name: [] for name in blocks}
    for i in range(rounds):
        random.Random(i).shuffle(names)
        for name in names:
            ms[name].append(block(*blocks[name]))
    for process in children.values():
        process.stdin.close()
        process.wait()

    def slower(name, of, which=0):
        ratios = [b[which] / a[0] - 1 for a, b in zip(ms[of], ms[name])]
        low, median, high = statistics.quantiles(ratios, n=4)
        return {"median": median, "quartiles": [low, high], "best_ms": [min(t[0] for t in ms[of]), min(t[which] for t in ms[name])]}
    return {"rounds": rounds, "plan_slower": slower("plan_beside", "plan"), "torch_slower": slower("torch_beside", "torch"),
            "plan_slower_in_turn": slower("in_turn", "plan", 0), "torch_slower_in_turn": slower("in_turn", "torch", 1)}


def quota(path):
    group = CGROUP / f"pelton_pool_{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("150000")
    except OSError as e:
        return {"not_run": str(e)}
    try:
        return {**ask("quota", path, group.name), "expected_sum": ask("sum", path)["sum"]}
    finally:
        group.rmdir()


def main():
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2], sys.argv[3])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    parts = set(args.parts or ("rest", "beside", "quota"))
    if parts - {"rest", "beside", "quota"}:
        parser.error("parts are rest, beside and quota")
    from pool_model import write_model
    out, missed = {"load_average": os.getloadavg(), "cpus": os.cpu_count()}, []

    def must(holds, what):
        if not holds:
            missed.append(what)

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/busy.plt"
        write_model(pathlib.Path(path))
        if "quota" in parts:
            out["quota"] = q = quota(path)
            if "not_run" not in q:
                must(q["quota_cpus"] == 1.5 and q["threads"] == 1, "one thread under a quota of 1.5 CPUs")
                must(q["new_threads"] == 0 and q["sum"] == q["expected_sum"], "the result of a fork under a quota, on one thread")
        if "beside" in parts:
            try:
                import torch
                out["torch"] = torch.__version__
                out["beside"] = beside(path, args.rounds)
                must(out["beside"]["plan_slower"]["median"] <= 0.1, "the plan beside torch")
                must(out["beside"]["torch_slower"]["median"] <= 0.1, "torch beside the plan")
            except ImportError as e:
                out["beside"] = {"not_run": str(e)}
        if "rest" in parts:
            out["rest"] = ask("rest", path)
            must(out["rest"]["cpu_ms"] <= 60, "60 ms of CPU in a minute at rest")
    out["missed"] = missed
    print(json.dumps(out, indent=1))
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(out, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
