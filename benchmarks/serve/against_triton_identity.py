# SPDX-License-Identifier: Apache-2.0
"""Triton's public C++ identity backend under tritonserver against our identity engine, in alternating rounds with the same
client: CPU time of the server a request, throughput, latency. Servers run on core 0, the client on core 1.

    against_triton_identity.py BUILD TRITON BACKEND [--rounds N] [--requests N] [-o FILE]

TRITON is the unpacked wheel of nvidia-pytriton; BACKEND is libtriton_identity.so, built from the sources identity_backend,
backend, core and common of the project triton-inference-server.
"""
import argparse
import os
import pathlib
import shutil
import sysconfig
import tempfile

from against_triton_python import Server, compare

CONFIG = """backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("triton", type=pathlib.Path)
    parser.add_argument("backend", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    pelton, root = str(args.build / "pelton"), args.triton.resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "models/echo/1"
        model.mkdir(parents=True)
        (model.parent / "config.pbtxt").write_text(CONFIG)
        backends = pathlib.Path(folder) / "backends/identity"
        backends.mkdir(parents=True)
        shutil.copy(args.backend, backends / "libtriton_identity.so")
        triton = root / "pytriton/tritonserver/bin/tritonserver"
        triton.chmod(0o755)
        env = os.environ | {"LD_LIBRARY_PATH": f"{root / 'nvidia_pytriton.libs'}:{sysconfig.get_config_var('LIBDIR')}"}
        repository = ["--model-repository", str(model.parents[1])]
        servers = {"triton": Server([str(triton), *repository, "--backend-directory", str(backends.parent)], env),
                   "pelton": Server([pelton, "serve", *repository])}
        compare("tritonserver of nvidia-pytriton 0.7.0, C++ identity backend built here", servers, pelton, args)


if __name__ == "__main__":
    main()
