# SPDX-License-Identifier: Apache-2.0
"""Waiting for a state instead of for a time, so that a busy machine makes tests slow and not red."""
import os
import pathlib
import re
import time


def until(condition, seconds=60):
    """The condition's value once it is true. Who is not there yet (OSError) is asked again."""
    end = time.monotonic() + seconds
    while True:
        try:
            if value := condition():
                return value
        except OSError:
            pass
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def has_signal(process, mask, number):
    """Whether the signal is in this mask of /proc/PID/status."""
    assert process.poll() is None, "the process has ended"
    bits = re.search(rf"{mask}:\s*(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text()).group(1)
    return int(bits, 16) >> (number - 1) & 1


def until_caught(process, number):
    """Until the process has a handler for this signal."""
    until(lambda: has_signal(process, "SigCgt", number))


def until_taken(process, number):
    """Until a signal that was sent has reached its handler."""
    until(lambda: not has_signal(process, "ShdPnd", number))


def cpu_seconds(process):
    """Processor time that the process has taken."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
