#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make dist`: a relocatable pelton-VERSION-linux-x86_64.tar.gz and a .deb from a release build.

  tools/make_dist.py BUILD_FOLDER [-o dist]

Everything the programs need beyond the C and C++ run-time libraries of the system is put into lib/pelton and
found from there ($ORIGIN), with the licence of each. The same commit gives the same bytes of tar.
"""
import argparse
import gzip
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Of the base system of every distribution meant here; a second copy of them in a process is harmful.
SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so")


def run(*words, cwd: pathlib.Path = ROOT) -> str:
    return subprocess.run([str(w) for w in words], cwd=cwd, check=True, capture_output=True, text=True).stdout


def needed(binary: pathlib.Path) -> dict[str, pathlib.Path]:
    """Shared libraries of the whole closure, by soname, less those of the system."""
    found = {}
    for line in run("ldd", binary).splitlines():
        match = re.match(r"\s*(\S+) => (\S+) \(", line)
        if match and not SYSTEM.match(match.group(1)):
            found[match.group(1)] = pathlib.Path(match.group(2)).resolve()
        elif "not found" in line:
            raise SystemExit(f"error: {binary.name}: {line.strip()}")
    return found


def debian_package(file: pathlib.Path) -> str | None:
    for name in (file, pathlib.Path(str(file).removeprefix("/usr"))):
        result = subprocess.run(["dpkg", "-S", str(name)], capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout.split(":")[0]
    return None


def copy_licences(libraries: list[pathlib.Path], prefix: pathlib.Path) -> None:
    folder = prefix / "share" / "licenses" / "pelton"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "LICENSE", folder / "LICENSE")
    packages = {debian_package(library) for library in libraries}
    for line in (ROOT / "tools" / "debian_packages.txt").read_text().splitlines():
        words = line.split()
        if "build" in words and words[0].endswith("-dev"):
            packages.add(words[0])  # headers that are compiled in
    for package in sorted(p for p in packages if p):
        source = pathlib.Path("/usr/share/doc") / package / "copyright"
        if source.exists():
            shutil.copy(source, folder / f"{package}.txt")
    own = ROOT / ".deps" / "share" / "licenses"
    if own.exists():
        shutil.copytree(own, folder, dirs_exist_ok=True)


def bundle(prefix: pathlib.Path) -> None:
    """Copies libraries in and points every program and library at them."""
    programs = [f for f in [*(prefix / "bin").iterdir(), *(prefix / "lib").glob("*.so*")] if not f.is_symlink()]
    libraries: dict[str, pathlib.Path] = {}
    for program in programs:
        libraries |= {name: path for name, path in needed(program).items() if not name.startswith("libpelton.so")}
    inner = prefix / "lib" / "pelton"
    inner.mkdir(parents=True, exist_ok=True)
    for name, path in sorted(libraries.items()):
        shutil.copy(path, inner / name)
        (inner / name).chmod(0o755)
        # Not stripped: they come stripped, and stripping what patchelf has moved breaks its alignment.
        if run("patchelf", "--print-rpath", inner / name).strip() != "$ORIGIN":
            run("patchelf", "--set-rpath", "$ORIGIN", inner / name)
    for program in programs:
        run("strip", "--strip-unneeded", program)
        run("patchelf", "--set-rpath", "$ORIGIN/../lib/pelton:$ORIGIN/../lib" if program.parent.name == "bin"
            else "$ORIGIN/pelton", program)
    copy_licences(list(libraries.values()), prefix)


def make_tar(prefix: pathlib.Path, target: pathlib.Path, commit_time: int) -> None:
    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname = commit_time, 0, 0, "root", "root"
        return info

    with gzip.GzipFile(target, "wb", mtime=commit_time) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for file in [prefix, *sorted(prefix.rglob("*"))]:
            tar.add(file, file.relative_to(prefix.parent).as_posix(), recursive=False, filter=plain)


def make_deb(prefix: pathlib.Path, target: pathlib.Path, version: str) -> None:
    tree = prefix.parent / "deb"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(prefix, tree / "usr", symlinks=True)
    control = tree / "DEBIAN" / "control"
    control.parent.mkdir()
    size_kib = sum(f.stat().st_size for f in tree.rglob("*") if f.is_file()) // 1024
    control.write_text(f"""Package: pelton
Version: {version}
Architecture: amd64
Maintainer: Pelton maintainers
Section: science
Priority: optional
Installed-Size: {size_kib}
Depends: libc6 (>= 2.36), libstdc++6 (>= 12), libgcc-s1
Description: compiler, runtime and server for deep-learning models
 Takes a model or a training recipe to a plan that runs on the CPU, and serves it.
""")
    run("dpkg-deb", "--build", "--root-owner-group", "-Zxz", tree, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "dist")
    args = parser.parse_args()
    version = re.search(r"project\(pelton VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    name = f"pelton-{version}-linux-x86_64"
    args.output.mkdir(parents=True, exist_ok=True)
    prefix = args.output / name
    shutil.rmtree(prefix, ignore_errors=True)
    run("cmake", "--install", args.build.resolve(), "--prefix", prefix.resolve())
    bundle(prefix)
    tar, deb = args.output / f"{name}.tar.gz", args.output / f"pelton_{version}_amd64.deb"
    make_tar(prefix, tar, int(run("git", "log", "-1", "--format=%ct")))
    make_deb(prefix, deb, version)
    for file in (tar, deb):
        print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
