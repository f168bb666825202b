# SPDX-License-Identifier: Apache-2.0
# The process of one instance of a Python model. Talks with the server over SOCKET in frames: 4 bytes length of a
# JSON text, 8 bytes length of tensor data, both little-endian, then the two. Tensors are described in the JSON by
# name n, type t, shape s, offset o and size z of their bytes.
import asyncio
import importlib.util
import inspect
import json
import os
import struct
import sys
import threading
import traceback
import types

HEAD = struct.Struct("<IQ")


class Link:
    """Several threads may wait for answers; whichever comes first reads for all."""

    def __init__(self, sock):
        self.sock, self.decoupled = sock, False
        self.write_lock, self.changed = threading.Lock(), threading.Condition()
        self.reading, self.inbox, self.next_id, self.utils = False, {}, 0, None

    def _read(self, n):
        out = bytearray(n)
        view, at = memoryview(out), 0
        while at < n:
            got = self.sock.recv_into(view[at:])
            if got == 0:
                os._exit(0)  # the server has gone
            at += got
        return out

    def _receive(self):
        size, data_size = HEAD.unpack(self._read(HEAD.size))
        message = json.loads(self._read(size))
        message["data"] = memoryview(self._read(data_size)) if data_size else memoryview(b"")
        return message

    def wait_for(self, key):
        while True:
            with self.changed:
                while not self.inbox.get(key) and self.reading:
                    self.changed.wait()
                if self.inbox.get(key):
                    message = self.inbox[key].pop(0)
                    if not self.inbox[key]:
                        del self.inbox[key]
                    return message
                self.reading = True
            message = self._receive()
            with self.changed:
                self.reading = False
                self.inbox.setdefault(message.get("id", 0), []).append(message)
                self.changed.notify_all()

    def tell(self, message, blobs=()):
        text = json.dumps(message).encode()
        parts, size = [], 0
        for b in blobs:
            parts.append(b)
            pad = -len(b) % 64
            if pad:
                parts.append(bytes(pad))
            size += len(b) + pad
        with self.write_lock:
            self.sock.sendall(HEAD.pack(len(text), size) + text)
            for p in parts:
                self.sock.sendall(p)

    def ask(self, message, blobs=()):
        with self.changed:
            self.next_id += 1
            message["id"] = self.next_id
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

    def send_response(self, key, r, final):
        blobs = []
        self.tell({"op": "response", "key": key, "response": self.response(r, blobs), "final": final}, blobs)

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
                out.append(u.InferenceResponse([u.Tensor._from_wire(d, answer["data"]) for d in r["outputs"]],
                                               parameters=r.get("parameters")))
        return out


def read_request(u, d, data):
    r = u.InferenceRequest(d["id"], d["correlation"], [u.Tensor._from_wire(t, data) for t in d["inputs"]],
                           d["outputs"], d["model"], d["version"], d["flags"], d["timeout"], None,
                           u.InferenceTrace(d.get("trace")), d["parameters"])
    r._key = d["key"]
    return r


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


def run(link, model, message):
    u = link.utils
    requests = [read_request(u, d, message["data"]) for d in message["requests"]]
    blobs, answer = [], {"op": "executed", "id": message["id"]}
    try:
        result = model.execute(requests)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        if link.decoupled:
            if result is not None:
                raise TypeError("execute of a decoupled model returns None and answers through response senders")
        else:
            if result is None or len(result) != len(requests):
                raise TypeError(f"execute returned {'None' if result is None else len(result)} responses for "
                                f"{len(requests)} requests")
            answer["responses"] = [link.response(r, blobs) for r in result]
        answer["again"] = [r._release == u.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE for r in requests]
    except Exception as e:  # noqa: BLE001 - whatever the model raises is the answer
        answer["error"] = f"{type(e).__name__}: {e}"
        answer["trace"] = traceback.format_exc()
        blobs = []
    link.tell(answer, blobs)


def main():
    link = Link(SOCKET)  # noqa: F821 - set by the starter
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
        return link.tell({"op": "failed", "error": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()})
    link.tell({"op": "ready"})
    while True:
        message = link.wait_for(0)
        if message["op"] == "execute":
            message["id"] = message["batch"]
            run(link, model, message)
        elif message["op"] == "finalize":
            try:
                if hasattr(model, "finalize"):
                    model.finalize()
            finally:
                link.tell({"op": "finalized"})
                os._exit(0)


main()
