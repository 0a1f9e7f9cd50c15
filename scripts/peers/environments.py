"""Virtual environments of the peers, which need versions of Python and zarr that exclude one another."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Environment(NamedTuple):
    """What one peer needs."""

    title: str
    python: str | None
    requirements: tuple[str, ...]


PEERS = {
    "lindi": Environment("LINDI", "3.11", ("lindi==0.4.6", "zarr<3", "hdf5plugin")),
    "kerchunk": Environment("kerchunk", None, ("kerchunk==0.2.10", "zarr>=3", "h5py", "fsspec", "hdf5plugin")),
}


def interpreter(name: str, folder: Path, base: str | None = None) -> Path:
    """Python of a peer's environment below `folder`, made on first use with the interpreter `base`."""
    environment = PEERS[name]
    home = folder / name
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join(environment.requirements)
    if not (stamp.exists() and stamp.read_text() == wanted):
        print(f"making an environment for {environment.title} in {home}", file=sys.stderr)
        base = base or find_python(environment.python)
        subprocess.run([base, "-m", "venv", "--clear", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *environment.requirements], check=True)
        stamp.write_text(wanted)
    return python


def find_python(version: str | None) -> str:
    """An interpreter of the version asked for: this one, or the first on the path."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version in (None, running):
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        raise SystemExit(f"Python {version} is needed; name one with an option --python-of")
    return found
