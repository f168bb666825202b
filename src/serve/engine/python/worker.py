# SPDX-License-Identifier: Apache-2.0
# The process of one instance of a Python model. Talks with the server over SOCKET (and RING, see worker_ring.h) in frames:
# kind and size of the head as 4 bytes each, size of the data as 8, the head padded to 16 bytes, the data padded to 64
# behind each tensor; all little-endian. Heads are JSON texts, in which tensors are described by name n, type t, shape s,
# offset o and size z, or the executions and answers of python_frames.h.
import asyncio
import collections
import importlib.util
import inspect
import json
import mmap
import os
import select
import struct
import sys
import threading
import time
import traceback
import types

import numpy as np

FRAME = struct.Struct("<IIQ")
JSON, EXECUTE, EXECUTED, WAKE = range(4)
BATCH, REQUEST, TENSOR = struct.Struct("<QII"), struct.Struct("<QQQIIII"), struct.Struct("<BBHIQQ")
ANSWER, RESPONSE = struct.Struct("<QIIQQ"), struct.Struct("<IIII")
DIMS = [struct.Struct(f"<{n}q") for n in range(256)]
PAD = bytes(64)
PAGE, RING_SIZE = 4096, 1 << 20
AT_ONCE_NS = 100_000  # an execution that takes longer tells the server of its answer at once


def encode(message):
    """As JSON in UTF-8, whatever texts a model brings; ValueError for numbers that JSON lacks."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


class Ring:
    """Answers in shared memory. The server is woken if it sleeps, once for the answers of several quick executions."""

    def __init__(self, fd, wake):
        self.memory = mmap.mmap(fd, PAGE + RING_SIZE)
        self.words = memoryview(self.memory)[:PAGE].cast("Q")
        self.fence, self.wake, self.head, self.since = threading.Lock(), wake, 0, 0
        os.close(fd)

    def begin(self, batch):
        self.words[2] = batch

    def put(self, frame, begun, ended):
        """False if there is no room."""
        size, head = len(frame), self.head
        if size > RING_SIZE - (head - self.words[1]):
            return False
        at = PAGE + head % RING_SIZE
        first = min(size, PAGE + RING_SIZE - at)
        if first == size:
            self.memory[at:at + size] = frame
        else:
            self.memory[at:at + first] = frame[:first]
            self.memory[PAGE:PAGE + size - first] = frame[first:]
        self.head = self.words[0] = head + size
        if not self.since:
            self.since = ended
        if ended - begun > AT_ONCE_NS or ended - self.since > AT_ONCE_NS:
            self.tell()
        return True

    def tell(self):
        self.since = 0
        with self.fence:  # the store of the head before the load of the flag: x86 needs a locked instruction between
            pass
        if self.words[3]:
            self.wake()


class Link:
    """Several threads may wait for answers; whichever comes first reads for all."""

    def __init__(self, sock, ring_fd):
        self.sock, self.decoupled = sock, False
        self.write_lock, self.changed = threading.Lock(), threading.Condition()
        self.reading, self.inbox, self.next_id, self.utils = False, {0: collections.deque()}, 0, None
        self.todo = self.inbox[0]
        self.scratch = bytearray(1 << 18)
        self.ring = Ring(ring_fd, lambda: self._send(FRAME.pack(WAKE, 0, 0)))

    def _receive_into(self, view):
        got = self.sock.recv_into(view)
        if got == 0:
            os._exit(0)  # the server has gone
        return got

    def _receive(self):
        """Whole frames as (kind, buffer, place of the head, its size, place of the data): what there is, one at least."""
        got = self._receive_into(self.scratch)
        buffer, at, frames = self.scratch[:got], 0, []  # a copy: arrays look into it
        while at < got:
            if got - at < FRAME.size:
                head = bytearray(FRAME.size)
                head[:got - at] = buffer[at:]
                view, n = memoryview(head), got - at
                while n < FRAME.size:
                    n += self._receive_into(view[n:])
                buffer, at, got = head, 0, FRAME.size
            kind, head_size, data_size = FRAME.unpack_from(buffer, at)
            data = FRAME.size + head_size + -head_size % 16
            if at + data + data_size > got:
                whole = bytearray(data + data_size)
                n = got - at
                whole[:n] = buffer[at:got]
                view = memoryview(whole)
                while n < len(whole):
                    n += self._receive_into(view[n:])
                buffer, at, got = whole, 0, len(whole)
            frames.append((kind, buffer, at + FRAME.size, head_size, at + data))
            at += data + data_size
        return frames

    def wait_for(self, key):
        """The next message with this id; 0: what the server wants done."""
        while True:
            with self.changed:
                while not self.inbox.get(key) and self.reading:
                    self.changed.wait()
                if self.inbox.get(key):
                    return self.inbox[key].popleft() if key == 0 else self.inbox.pop(key)[0]
                self.reading = True
            frames = self._receive()
            with self.changed:
                self.reading = False
                for frame in frames:
                    if frame[0] == EXECUTE:
                        self.todo.append(frame)
                        continue
                    _, buffer, head, size, data = frame
                    message = json.loads(buffer[head:head + size])
                    message["data"] = (buffer, data)
                    self.inbox.setdefault(message.get("id", 0), collections.deque()).append(message)
                self.changed.notify_all()

    def _send(self, *parts):
        with self.write_lock:
            for p in parts:
                self.sock.sendall(p)

    @staticmethod
    def frame(kind, head, blobs):
        """Its parts, and whether they are small enough to be joined."""
        parts, size = [b"", head, PAD[:-len(head) % 16]], 0
        for b in blobs:
            n = len(b)
            parts += (b, PAD[:-n % 64])
            size += n + -n % 64
        parts[0] = FRAME.pack(kind, len(head), size)
        return parts, size + len(head) < 1 << 16

    def tell(self, message, blobs=()):
        parts, small = self.frame(JSON, encode(message), blobs)
        self._send(*([b"".join(parts)] if small else parts))

    def ask(self, message, blobs=()):
        with self.changed:
            self.next_id += 1
            message["id"] = self.next_id
        self.ring.tell()
        self.tell(message, blobs)
        return self.wait_for(message["id"])

    @staticmethod
    def describe(tensors, blobs):
        out, at = [], sum(len(b) + -len(b) % 64 for b in blobs)
        for t in tensors:
            kind, data = t._wire()
            out.append({"n": t.name(), "t": kind, "s": t.shape(), "o": at, "z": len(data)})
            blobs.append(data)
            at += len(data) + -len(data) % 64
        return out

    def response(self, r, blobs):
        if r is None:
            return None
        if not isinstance(r, self.utils.InferenceResponse):
            return {"error": f"execute returned {type(r).__name__} where an InferenceResponse belongs", "code": 1}
        if r.has_error():
            return {"error": r.error().message(), "code": r.error().code()}
        return {"outputs": self.describe(r.output_tensors(), blobs), "parameters": r._parameters}

    def send_response(self, key, r, final, begun):
        """`begun`: when the execution of the request began."""
        blobs, now = [], time.monotonic_ns()
        self.tell({"op": "response", "key": key, "response": self.response(r, blobs), "final": final,
                   "begun": begun, "ended": now}, blobs)

    def infer(self, request, decoupled):
        blobs = []
        answer = self.ask({"op": "infer", "model": request.model_name, "version": request.model_version,
                           "request_id": request._id, "correlation": request._correlation, "flags": request._flags,
                           "timeout": request._timeout, "parameters": request._parameters,
                           "outputs": request._outputs, "decoupled": decoupled,
                           "inputs": self.describe(request._inputs, blobs)}, blobs)
        u = self.utils
        out = []
        for r in answer["responses"]:
            if "error" in r:
                out.append(u.InferenceResponse(error=u.TritonError(r["error"], r.get("code", 1))))
            else:
                out.append(u.InferenceResponse([u.Tensor._from_wire(d, *answer["data"]) for d in r["outputs"]],
                                               parameters=r.get("parameters")))
        return out


def load_class(start):
    folder = os.path.dirname(start["file"])
    sys.path.insert(0, start["folder"])
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("model", start["file"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["model"] = module
    spec.loader.exec_module(module)
    if not hasattr(module, "TritonPythonModel"):
        raise AttributeError("the file has no class TritonPythonModel")
    return module.TritonPythonModel


class Executions:
    """Reads executions, runs them and writes their answers."""

    def __init__(self, link, start):
        self.link, self.u, self.decoupled = link, link.utils, link.decoupled
        self.outputs, self.model = start["outputs"], start["args"]["model_name"]
        self.version = int(start["args"]["model_version"])
        self.names, self.types = {}, {}  # names as they are sent; (type, rank, name) of outputs
        numpy_of = {k: np.dtype(v) for k, v in self.u._NUMPY.items() if k != "BYTES"} | {"BF16": np.dtype(np.uint16)}
        self.kinds = [(name, numpy_of.get(name)) for name in start["types"]]
        self.codes = {name: i for i, name in enumerate(start["types"]) if name}

    def text(self, raw):
        text = self.names.get(raw)
        if text is None:
            text = raw.decode()
            if len(self.names) < 4096:
                self.names[raw] = text
        return text

    def tensor(self, buffer, at, data):
        """A tensor and the place behind its description."""
        kind, rank, name, _, offset, size = TENSOR.unpack_from(buffer, at)
        at += TENSOR.size
        shape = DIMS[rank].unpack_from(buffer, at)
        at += 8 * rank
        t = self.u.Tensor.__new__(self.u.Tensor)
        t._name = self.text(bytes(buffer[at:at + name]))
        wire, dtype = self.kinds[kind]
        t._bf16 = wire == "BF16"
        offset += data
        if dtype is None:
            t._values = self.u.deserialize_bytes_tensor(buffer[offset:offset + size]).reshape(shape)
        elif size:
            values = np.frombuffer(buffer, dtype, size // dtype.itemsize, offset)
            t._values = values if rank == 1 else values.reshape(shape)
        else:
            t._values = np.empty(shape, dtype)
        return t, at + name + -name % 8

    def requests(self, buffer, at, data):
        u, out = self.u, []
        batch, count, _ = BATCH.unpack_from(buffer, at)
        at += BATCH.size
        for _ in range(count):
            key, timeout, correlation, flags, id_size, more_size, inputs = REQUEST.unpack_from(buffer, at)
            at += REQUEST.size
            r = u.InferenceRequest.__new__(u.InferenceRequest)
            r._id = buffer[at:at + id_size].decode() if id_size else ""
            at += id_size + -id_size % 8
            more = json.loads(buffer[at:at + more_size]) if more_size else None
            at += more_size + -more_size % 8
            r._key, r._timeout, r._flags, r._correlation = key, timeout, flags, correlation
            r.model_name, r.model_version = self.model, self.version
            r._outputs, r._parameters = self.outputs, {}
            if more:
                r._outputs, r._parameters = more.get("outputs", self.outputs), more.get("parameters", {})
                r._correlation = more.get("correlation", correlation)
            r._inputs = []
            for _ in range(inputs):
                t, at = self.tensor(buffer, at, data)
                r._inputs.append(t)
            out.append(r)
        return batch, out

    def put_response(self, r, again, heads, blobs, at):
        """Adds a response; the offset behind its data."""
        if r is None:
            heads.append(RESPONSE.pack(1 | again, 0, 0, 0))
            return at
        if not isinstance(r, self.u.InferenceResponse):
            r = self.u.InferenceResponse(
                error=f"execute returned {type(r).__name__} where an InferenceResponse belongs")
        more, outputs = b"", r._outputs
        if r._error is not None:
            more, outputs = encode({"error": r._error.message(), "code": r._error.code()}), ()
        elif r._parameters:
            more = encode({"parameters": r._parameters})
        heads.append(RESPONSE.pack(again, len(more), len(outputs), 0))
        if more:
            heads += (more, PAD[:-len(more) % 8])
        for t in outputs:
            wire, data = t._wire()
            shape, size = t._values.shape, len(data)
            known = self.types.get((wire, t._name))
            if known is None:
                name = t._name.encode()
                known = self.codes[wire], len(name), name + PAD[:-len(name) % 8]
                self.types[(wire, t._name)] = known
            heads += (TENSOR.pack(known[0], len(shape), known[1], 0, at, size), DIMS[len(shape)].pack(*shape), known[2])
            blobs.append(data)
            at += size + -size % 64
        return at

    def run(self, model, frame):
        link, u, ring = self.link, self.u, self.link.ring
        _, buffer, head, _, data = frame
        batch, requests = self.requests(buffer, head, data)
        ring.begin(batch)
        begun = time.monotonic_ns()
        for r in requests if self.decoupled else ():
            r._begun = begun
        try:
            result = model.execute(requests)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            if self.decoupled:
                if result is not None:
                    raise TypeError("execute of a decoupled model returns None and answers through response senders")
                result = [None] * len(requests)
            elif result is None or len(result) != len(requests):
                raise TypeError(f"execute returned {'None' if result is None else len(result)} responses for "
                                f"{len(requests)} requests")
            ended = time.monotonic_ns()
            heads, blobs, at = [ANSWER.pack(batch, len(requests), 0, begun, ended)], [], 0
            for request, response in zip(requests, result):
                again = 2 if request._release == u.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE else 0
                at = self.put_response(response, again, heads, blobs, at)
        except Exception as e:  # noqa: BLE001 - whatever the model raises is the answer
            return link.tell({"op": "failed", "batch": batch, "error": f"{type(e).__name__}: {e}",
                              "trace": traceback.format_exc()})
        parts, small = link.frame(EXECUTED, b"".join(heads), blobs)
        if not small:
            link._send(*parts)
        elif not ring.put(b"".join(parts), begun, ended):
            link._send(b"".join(parts))
        if not link.todo:
            ring.tell()


def leave_with_the_server(sock):
    """Ends the process once the server has gone, whatever the model does: initialize() may take for ever."""
    end = select.poll()
    end.register(sock, 0)  # the end is reported without being asked for
    end.poll()
    os._exit(0)


def main():
    threading.Thread(target=leave_with_the_server, args=(SOCKET,), daemon=True).start()  # noqa: F821
    link = Link(SOCKET, RING)  # noqa: F821 - set by the starter
    start = link.wait_for(0)
    u = types.ModuleType("triton_python_backend_utils")
    sys.modules["triton_python_backend_utils"] = u
    try:
        exec(compile(start["utils"], "triton_python_backend_utils", "exec"), u.__dict__)
        u._link, link.utils, link.decoupled = link, u, start["decoupled"]
        cls = load_class(start)
        if start["task"] == "complete":
            config = json.loads(start["config"])
            if hasattr(cls, "auto_complete_config"):
                result = cls.auto_complete_config(u.ModelConfig(config))
                config = result.as_dict() if result is not None else config
            return link.tell({"op": "completed", "config": json.dumps(config)})
        model = cls()
        if hasattr(model, "initialize"):
            model.initialize(start["args"])
    except BaseException as e:  # noqa: BLE001
        return link.tell({"op": "failed", "batch": 0, "error": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()})
    executions = Executions(link, start)
    link.tell({"op": "ready"})
    while True:
        message = link.wait_for(0)
        if type(message) is tuple:
            executions.run(model, message)
        elif message["op"] == "finalize":
            try:
                if hasattr(model, "finalize"):
                    model.finalize()
            finally:
                link.tell({"op": "finalized"})
                os._exit(0)


main()
