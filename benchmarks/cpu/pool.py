#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the process's one pool costs its neighbours: PELTON_BINARY_DIR=BUILD python3 benchmarks/cpu/pool.py [-o RESULT.json]

  rest    CPU time of a process in the minute after a run (at most 60 ms)
  beside  times of a plan and of a PyTorch network alone, and of each with the other imported and used in the same process,
          runs of both in turn (at most 10% slower; needs torch)
  quota   a process in a cgroup of 1.5 CPUs, forked before the first use: its threads and its result (needs the right to make a
          cgroup of version 1)

Fails if a bound is missed; a part that cannot run here says why. tests/api/pool_test.py has the rest.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/api"))
ROUNDS, RUNS, THREADS = 7, 20, 2
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


def least_ms(runs):
    """The least time of each runner, taken in turn: other work on the machine only ever adds to it."""
    least = [float("inf")] * len(runs)
    for _ in range(RUNS):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            least[i] = min(least[i], time.perf_counter() - start)
    return [1e3 * t for t in least]


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
    runs = {"plan": lambda: [plan_runner(path)], "torch": lambda: [torch_runner()], "both": lambda: [plan_runner(path), torch_runner()]}
    times = runs[mode]()
    for _ in sys.stdin:  # a line asks for a round
        print(json.dumps(least_ms(times)), flush=True)
    return {}


def ask(mode, path, *more):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", mode, path, *more], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{mode}: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def beside(path):
    """Three processes, which stay and measure in turn: a plan alone, torch alone, both."""
    children = {mode: subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", mode, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True) for mode in ("plan", "torch", "both")}
    rounds = {"plan": [], "torch": [], "plan_beside": [], "torch_beside": []}
    for _ in range(ROUNDS):
        for mode, child_process in children.items():
            child_process.stdin.write("\n")
            child_process.stdin.flush()
            ms = json.loads(child_process.stdout.readline())
            for name, t in zip(("plan_beside", "torch_beside") if mode == "both" else (mode,), ms):
                rounds[name].append(t)
    for child_process in children.values():
        child_process.stdin.close()
        child_process.wait()
    least = {name: min(times) for name, times in rounds.items()}
    return {"rounds_ms": rounds, "plan_slower": least["plan_beside"] / least["plan"] - 1,
            "torch_slower": least["torch_beside"] / least["torch"] - 1}


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
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    from pool_model import write_model
    out, missed = {"load_average": os.getloadavg(), "cpus": os.cpu_count()}, []

    def must(holds, what):
        if not holds:
            missed.append(what)

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/busy.plt"
        write_model(pathlib.Path(path))
        out["quota"] = quota(path)
        if "not_run" not in out["quota"]:
            q = out["quota"]
            must(q["quota_cpus"] == 1.5 and q["threads"] == 1, "one thread under a quota of 1.5 CPUs")
            must(q["new_threads"] == 0 and q["sum"] == q["expected_sum"], "the result of a fork under a quota, on one thread")
        try:
            import torch
            out["torch"] = torch.__version__
            out["beside"] = beside(path)
            must(out["beside"]["plan_slower"] <= 0.1, "the plan beside torch")
            must(out["beside"]["torch_slower"] <= 0.1, "torch beside the plan")
        except ImportError as e:
            out["beside"] = {"not_run": str(e)}
        out["rest"] = ask("rest", path)
        must(out["rest"]["cpu_ms"] <= 60, "60 ms of CPU in a minute at rest")
    out["missed"] = missed
    print(json.dumps(out, indent=1))
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(out, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
