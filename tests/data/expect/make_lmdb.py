# SPDX-License-Identifier: Apache-2.0
"""Writes records.mdb.gz: an LMDB file of 80 records over several leaf pages, with values of their own pages. Needs the lmdb package.

Record i has the key "%05d" and the value bytes([i]) * length, where length is 20 * i, and 9000 for i = 7 and 5000 for i = 40.
"""
import gzip
import pathlib
import tempfile

import lmdb

with tempfile.TemporaryDirectory() as folder:
    env = lmdb.open(folder, map_size=1 << 20)
    with env.begin(write=True) as txn:
        for i in reversed(range(80)):
            txn.put(b"%05d" % i, bytes([i]) * {7: 9000, 40: 5000}.get(i, 20 * i))
    with env.begin(write=True) as txn:  # a second transaction: the other meta page is the newer one
        txn.delete(b"00079")
    env.close()
    content = pathlib.Path(folder, "data.mdb").read_bytes()
pathlib.Path(__file__).with_name("records.mdb.gz").write_bytes(gzip.compress(content, 9, mtime=0))
