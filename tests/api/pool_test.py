# SPDX-License-Identifier: Apache-2.0
"""The process's one pool behind plans: how many threads run for eight callers, what a pool at rest costs, runs after fork.
benchmarks/cpu/pool.py has what needs a minute, another framework or a cgroup."""
import ctypes as c
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from binding import Plan, call, lib, output, tensor
from pool_model import INPUT, write_model

THREADS, CALLERS = 2, 8


def runnable():
    """Threads of this process that run or wait for a CPU."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/stat") as f:
                count += f.read().rpartition(") ")[2].startswith("R")
        except FileNotFoundError:
            pass
    return count


@pytest.fixture
def busy(tmp_path):
    write_model(tmp_path / "busy.plt")
    call("pelton_set_threads", c.c_int32(THREADS))
    plan = Plan(tmp_path / "busy.plt")
    yield plan
    plan.close()
    call("pelton_set_threads", c.c_int32(0))


def test_eight_callers_of_one_plan_run_no_more_threads_than_the_pool_and_the_callers(busy):
    x = np.ones(INPUT, np.float32)
    stop, runs, failed = threading.Event(), [0] * CALLERS, []

    def work(k):
        context = busy.context()
        call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 1)
        while not stop.is_set():
            try:
                call("pelton_context_run", context, None)
                runs[k] += 1
            except Exception as e:
                failed.append(e)
                return
        lib.pelton_context_free(context)

    before = len(os.listdir("/proc/self/task"))
    callers = [threading.Thread(target=work, args=(k,)) for k in range(CALLERS)]
    for t in callers:
        t.start()
    most, threads = 0, 0
    for _ in range(300):
        most = max(most, runnable())
        threads = max(threads, len(os.listdir("/proc/self/task")))
        time.sleep(0.003)
    stop.set()
    for t in callers:
        t.join()
    assert not failed and min(runs) > 0, (failed, runs)
    # One more for the thread that looks. The pool's own threads exist once, whatever the number of callers.
    assert 2 <= most <= THREADS + CALLERS + 1, most
    assert threads <= before + CALLERS + THREADS, (threads, before)


def test_a_pool_at_rest_costs_at_most_a_millisecond_a_second(busy):
    context = busy.context()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(np.ones(INPUT, np.float32))), 1)
    for _ in range(5):
        call("pelton_context_run", context, None)
    # On a busy machine the workers need a while to notice that nothing is left; a pool that spins has no quiet second.
    for _ in range(8):
        before = time.process_time()
        time.sleep(1)
        cost = time.process_time() - before
        if cost <= 1e-3:
            break
    lib.pelton_context_free(context)
    assert cost <= 1e-3, cost


AFTER_FORK = """
import ctypes as c, os, pathlib, sys
import numpy as np
sys.path.insert(0, sys.argv[2])
from binding import Plan, call, lib, output, tensor
from pool_model import INPUT

def run():
    plan = Plan(sys.argv[1])
    context = plan.context()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(np.ones(INPUT, np.float32))), 1)
    call("pelton_context_run", context, None)
    return float(output(context, 0).sum())

def in_child():
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, repr(run()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        return float(f.read())

first = in_child()          # the library is loaded, its pool was never used
own = run()
print(first == own, in_child() == own)  # and with threads that the child has not
"""


def test_forks_before_and_after_the_first_use(tmp_path):
    write_model(tmp_path / "busy.plt")
    done = subprocess.run([sys.executable, "-c", AFTER_FORK, tmp_path / "busy.plt", os.path.dirname(__file__)], capture_output=True,
                          text=True, timeout=120)
    assert done.stdout.split() == ["True", "True"], done.stdout + done.stderr
