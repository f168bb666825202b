# SPDX-License-Identifier: Apache-2.0
"""A gRPC client made of HTTP/2 frames, for what no library's client does: messages that never end, answers that nobody reads."""
import socket
import struct

DATA, HEADERS, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def literal(text):
    data = text.encode()
    assert len(data) < 127
    return bytes([len(data)]) + data


def header_block(fields):
    """HPACK: every field as a literal that is not indexed."""
    return b"".join(b"\x00" + literal(name) + literal(value) for name, value in fields)


class Frames:
    """A connection. `answer_window`: bytes of an answer that the server may send before it has to wait."""

    def __init__(self, address, answer_window=65535):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=20)
        self.next, self.buffer = 1, b""
        self.room = {0: 65535}             # that the server leaves for what we send, by stream; 0: the connection
        self.initial, self.largest = 65535, 16384
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.send(SETTINGS, 0, 0, struct.pack(">HI", 4, answer_window))

    def send(self, kind, flags, stream, payload=b""):
        self.socket.sendall(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload)

    def receive(self):
        """The next frame as kind, flags, stream, payload; None at the end of the connection."""
        def exactly(n):
            while len(self.buffer) < n:
                piece = self.socket.recv(65536)
                if not piece:
                    return None
                self.buffer += piece
            taken, self.buffer = self.buffer[:n], self.buffer[n:]
            return taken
        head = exactly(9)
        if head is None:
            return None
        payload = exactly(int.from_bytes(head[:3], "big"))
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack_from(">HI", payload, at)
                if key == 4:
                    for s in self.room:
                        if s:
                            self.room[s] += value - self.initial
                    self.initial = value
                if key == 5:
                    self.largest = value
            self.send(SETTINGS, ACK, 0)
        if kind == WINDOW_UPDATE:
            self.room[stream] = self.room.get(stream, self.initial) + int.from_bytes(payload, "big")
        return kind, flags, stream, payload

    def call(self, method):
        """Begins a call; its stream."""
        stream, self.next = self.next, self.next + 2
        self.room[stream] = self.initial
        self.send(HEADERS, END_HEADERS, stream, header_block([
            (":method", "POST"), (":scheme", "http"), (":path", f"/inference.GRPCInferenceService/{method}"), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc")]))
        return stream

    def data(self, stream, payload, end=False):
        """Sends as the server's windows allow."""
        at = 0
        while at < len(payload):
            n = min(self.largest, len(payload) - at, self.room[0], self.room[stream])
            if n <= 0:
                if self.receive() is None:
                    raise ConnectionError("the server has closed the connection")
                continue
            last = end and at + n == len(payload)
            self.send(DATA, END_STREAM if last else 0, stream, payload[at:at + n])
            self.room[0] -= n
            self.room[stream] -= n
            at += n

    def message(self, stream, message, end=True):
        self.data(stream, b"\0" + struct.pack(">I", len(message)) + message, end)

    def close(self):
        self.socket.close()
