"""Virtual environments of the peers, made on demand: their versions of Python and zarr exclude one another."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

NEWEST_FIRST = ("3.13", "3.12", "3.11")
DEFAULT_FOLDER = Path("~/.cache/lindi_bridge/venvs").expanduser()


class Environment(NamedTuple):
    """What a peer needs: versions of Python in order of preference, requirements, and packages to name in reports."""

    title: str
    pythons: tuple[str, ...]
    requirements: tuple[str, ...]
    named: tuple[str, ...]


ENVIRONMENTS = {
    "lindi": Environment(
        "LINDI", ("3.11",), ("lindi==0.4.6", "zarr<3", "pandas<3", "hdf5plugin"), ("lindi", "zarr", "h5py")
    ),
    "kerchunk": Environment(
        "kerchunk",
        NEWEST_FIRST,
        ("kerchunk==0.2.10", "zarr>=3.1", "h5py", "aiohttp", "pandas<3", "hdf5plugin"),
        ("kerchunk", "zarr", "fsspec", "h5py"),
    ),
    "virtualizarr": Environment(
        "VirtualiZarr",
        NEWEST_FIRST,
        ("virtualizarr==2.8.0", "obstore", "obspec-utils", "h5py", "aiohttp", "hdf5plugin"),
        ("virtualizarr", "zarr", "obstore", "h5py"),
    ),
    "remfile": Environment(
        "remfile",
        NEWEST_FIRST,
        ("remfile>=0.1.13", "h5py", "fsspec", "aiohttp", "pandas<3"),
        ("remfile", "fsspec", "h5py"),
    ),
}


def interpreter(name: str, folder: Path, base: str | None = None) -> Path:
    """Python of an environment below ``folder``, made at its first use (with the interpreter ``base``)."""
    environment = ENVIRONMENTS[name]
    home = folder / name
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join(environment.requirements)
    if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
        base = base or find_python(environment.pythons)
        print(f"making the environment of {name} in {home} with {base} (once; takes a minute)", file=sys.stderr)
        subprocess.run([base, "-m", "venv", "--clear", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", *environment.requirements], check=True)
        stamp.write_text(wanted)
    return python


def find_python(versions: tuple[str, ...]) -> str:
    """The first interpreter of these versions that runs: this one, on the path, or below ~/.pyenv."""
    for version in versions:
        installed = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"), reverse=True)
        for candidate in (sys.executable, shutil.which(f"python{version}"), *installed):
            if candidate is not None and version_of(candidate) == version:
                return str(candidate)
    raise SystemExit(f"none of Python {', '.join(versions)} is found; a peer needs it")


def version_of(python: str | Path) -> str | None:
    """``3.11`` and so on, or None where it does not run or cannot make environments."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    process = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return process.stdout.strip() if process.returncode == 0 else None


def versions(python: str | Path, packages: tuple[str, ...]) -> str:
    """Versions in an environment, for people to read."""
    code = (
        "import json, platform, sys; from importlib.metadata import version; "
        "print(json.dumps([platform.python_version(), *map(version, sys.argv[1:])]))"
    )
    process = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, check=True)
    number, *found = json.loads(process.stdout)
    return ", ".join(f"{name} {text}" for name, text in zip(packages, found, strict=True)) + f", Python {number}"
