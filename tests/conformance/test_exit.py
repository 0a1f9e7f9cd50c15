"""Programs that end without closing anything end with their own exit code, and never by a signal.

libhdf5 closes what is still open when the interpreter is gone; over a file object written in Python that is a
segmentation fault. Processes that are forked or spawned read, and end, like their parents.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from servers.range_server import RangeServer

import lindi_bridge as lb

LIMIT = 15

PRELUDE = """
import gc, io, os, pickle, sys, threading
import h5py, numpy as np
import lindi_bridge as lb

document, source, path, ending = sys.argv[1:]
expected = np.arange(60_000)

def check(dataset):
    assert (dataset[10_000:50_000:7] == expected[10_000:50_000:7]).all()

def end():
    if ending == "sys.exit":
        sys.exit(3)
    if ending == "exception":
        raise RuntimeError("the program's own")
"""

ENDINGS = {"end": 0, "sys.exit": 3, "exception": 1}

OPEN = {
    "lb.open": """
file = lb.open(document, source=source)
check(file["values"])
""",
    "objects of it": """
dataset = lb.open(document, source=source)["group/deep"]
group = dataset.parent
check(group.file["values"])
""",
    "nothing read": """
file = lb.open(document, source=source)
""",
    "an HDF5 file itself": """
file = lb.open(source)
check(file["values"])
""",
    "plain h5py": """
file = h5py.File(lb.hdf5_file(document, source=source))
check(file["values"])
""",
    "a file object": """
opened = lb.hdf5_file(document, source=source)
opened.read(100)
""",
    "cyclic garbage": """
class Knot: pass
knot = Knot()
knot.file = lb.open(document, source=source)
knot.dataset = knot.file["values"]
check(knot.dataset)
knot.me = [knot, knot.dataset.parent]
del knot
""",
    "in a module that is torn down late": """
import atexit
sys.modules["json"].kept = lb.open(document, source=source)
atexit.register(lambda: check(sys.modules["json"].kept["values"]) if sys.modules["json"].kept else None)
check(sys.modules["json"].kept["values"])
""",
    "an iterator half way": """
file = lb.open(document, source=source)
rows, items = iter(file["values"]), iter(file.items())
next(rows), next(items)
""",
    "the index of a file object": """
stream = open(path, "rb")
index = lb.index(stream, url=path)
file = lb.open(stream)
check(file["values"])
""",
    "a failing index": """
class Broken(io.BytesIO):
    def read(self, *size):
        data = super().read(*size)
        if self.tell() > 5000 and size and size[0] < 100_000:
            raise OSError("broken")
        return data
try:
    lb.index(Broken(open(path, "rb").read()))
except OSError:
    pass
""",
    "pickled copies": """
file = lb.open(document)
copies = [pickle.loads(pickle.dumps(thing)) for thing in (file, file["group"], file["values"])]
check(copies[0]["values"])
check(copies[2])
""",
    "many files": """
files = [lb.open(document, source=source) for _ in range(20)]
plain = [h5py.File(lb.hdf5_file(document, source=source)) for _ in range(20)]
for file in files + plain:
    check(file["values"])
""",
    "a companion": """
file = lb.open(document, source=source)
check(file["elsewhere"])
""",
    "threads that waited": """
file = lb.open(document, source=source)
def read():
    for _ in range(20):
        check(file["values"])
for _ in range(3):
    threading.Thread(target=read).start()
""",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("exit")
    path = folder / "a.h5"
    with h5py.File(folder / "b.h5", "w") as file:
        file["values"] = np.arange(60_000)
    with h5py.File(path, "w") as file:
        file.create_dataset("values", data=np.arange(60_000), chunks=(5000,), compression="gzip")
        file["group/deep"] = np.arange(40_000.0)
        file["elsewhere"] = h5py.ExternalLink("b.h5", "/values")
    # Plain h5py is not given files that lead elsewhere.
    plain = folder / "plain.h5"
    with h5py.File(path) as file, h5py.File(plain, "w") as copy:
        file.copy("values", copy)
        file.copy("group", copy)
    for name in (path, plain):
        lb.index(str(name)).save(name.with_suffix(".lindi.json"))
    with RangeServer() as server:
        server.add("b.h5", folder / "b.h5")
        yield {"folder": str(folder), "http": server.add("a.h5", path), "http plain": server.add("plain.h5", plain)}


def run(code: str, served: dict[str, str], over: str, ending: str = "end") -> subprocess.CompletedProcess[str]:
    """Run a program over the source on the server or on the disk."""
    stem = "a" if "elsewhere" in code else "plain"
    path = f"{served['folder']}/{stem}.h5"
    source = served["http" if stem == "a" else "http plain"] if over == "http" else path
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    program = Path(served["folder"], f"program-{abs(hash((code, over, ending)))}.py")
    program.write_text(PRELUDE + textwrap.dedent(code) + "\n")
    arguments = [sys.executable, str(program), f"{served['folder']}/{stem}.lindi.json", source, path, ending]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            out, error = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children too
            out, error = process.communicate()
            pytest.fail(f"it hangs\n{out}\n{error}")
        finally:
            program.unlink()
    return subprocess.CompletedProcess(arguments, process.returncode, out, error)


@pytest.mark.parametrize("over", ["http", "disk"])
@pytest.mark.parametrize("what", OPEN)
def test_ending_with_an_open_file(what: str, over: str, served: dict[str, str]) -> None:
    done = run(OPEN[what], served, over)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("ending", ["sys.exit", "exception"])
@pytest.mark.parametrize("what", ["lb.open", "plain h5py", "cyclic garbage", "threads that waited"])
def test_the_exit_code_is_the_programs_own(what: str, ending: str, served: dict[str, str]) -> None:
    done = run(OPEN[what] + "end()\n", served, "http", ending)
    assert done.returncode == ENDINGS[ending], done.stderr
    assert ("the program's own" in done.stderr) == (ending == "exception")


READING = """
{opened}
began = threading.Barrier(4)
def read():
    dataset = file["values"]
    for k in range(10**9):
        if k == 3:
            began.wait()
        dataset[k % 50_000]
        dataset[:20_000:3]
for _ in range(3):
    {start}
threading.excepthook = sys.unraisablehook = lambda hook: None      # what they say when the file is closed under them
began.wait()
end()
"""


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("opened", ["lb.open({})", "h5py.File(lb.hdf5_file({}))"])
def test_ending_while_daemon_threads_read(opened: str, ending: str, served: dict[str, str]) -> None:
    """A thread that dies with the interpreter takes h5py's lock along; freeing any h5py object then waits for ever.

    Plain h5py hangs here over a local file as well, unless the lock is taken for good before the interpreter ends.
    """
    start = "threading.Thread(target=read, daemon=True).start()"
    code = READING.format(opened=f"file = {opened.format('document, source=source')}", start=start)
    done = run(code, served, "http", ending)
    assert done.returncode == ENDINGS[ending], done.stderr


def test_ending_while_threads_read_that_threading_does_not_know(served: dict[str, str]) -> None:
    opened, start = "file = lb.open(document, source=source)", "import _thread; _thread.start_new_thread(read, ())"
    done = run(READING.format(opened=opened, start=start), served, "disk")
    assert done.returncode == 0, done.stderr


COLLECTED = """
# Garbage that the interpreter frees under a lock of its own, collected while the program ends.
from lindi_bridge.hdf5 import exit
waiting = threading.Event()
for _ in range(30):
    threading.Thread(target=waiting.wait, daemon=True).start()
def leave_garbage():
    gc.collect()
    garbage = threading.local()
    garbage.me = garbage
    gc.set_threshold(15)
exit.close_python_files = leave_garbage
exit._end()
gc.set_threshold(700)
assert h5py._objects.phil._is_owned()
"""


def test_a_collection_when_the_process_ends(served: dict[str, str]) -> None:
    done = run(COLLECTED, served, "http")
    assert (done.returncode, done.stderr) == (0, "")


FORK = """
file = lb.open(document, source=source)
plain = h5py.File(lb.hdf5_file(document, source=source))
check(file["values"])
child = os.fork()
if child == 0:
    check(file["values"])
    assert file["group/deep"][5] == plain["group/deep"][5] == 5
    check(plain["values"])
    check(lb.open(document, source=source)["values"])
    {leave}
_, status = os.waitpid(child, 0)
assert os.WIFEXITED(status), f"the child was ended by signal {{os.WTERMSIG(status)}}"
assert os.WEXITSTATUS(status) == 5, os.WEXITSTATUS(status)
assert file["group/deep"][30_000] == plain["group/deep"][30_000] == 30_000
check(file["values"])
end()
"""


@pytest.mark.parametrize("over", ["http", "disk"])
@pytest.mark.parametrize("leave", ["sys.exit(5)", "os._exit(5)"])
def test_a_forked_child(leave: str, over: str, served: dict[str, str]) -> None:
    done = run(FORK.format(leave=leave), served, over, "sys.exit")
    assert done.returncode == 3, done.stderr


FORK_WHILE_READING = """
# A child that is forked while threads of its parent read; they hold h5py's lock, and ours, most of the time.
file = lb.open(document, source=source)
stop, began = threading.Event(), threading.Barrier(3)
def read():
    began.wait()
    while not stop.is_set():
        with lb.open(document, source=source) as f:
            check(f["values"])
        file["group/deep"][::3]
threads = [threading.Thread(target=read) for _ in range(2)]
for thread in threads:
    thread.start()
began.wait()
statuses = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        check(file["values"])
        check(lb.open(document, source=source)["values"])
        os._exit(5)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
for thread in threads:
    thread.join()
assert statuses == [5] * 5, statuses
"""


@pytest.mark.parametrize("over", ["http", "disk"])
def test_a_child_forked_while_threads_read(over: str, served: dict[str, str]) -> None:
    done = run(FORK_WHILE_READING, served, over)
    assert done.returncode == 0, done.stderr


POOL = """
import multiprocessing, warnings
from concurrent.futures import ProcessPoolExecutor
warnings.simplefilter("ignore", DeprecationWarning)   # of fork in a process with threads

def read(dataset, start):
    return int(dataset[start : start + 100].sum())

def read_inherited(start):
    return int(file["values"][start : start + 100].sum())

if __name__ == "__main__":
    starts = range(0, 50_000, 5001)
    wanted = [int(expected[s : s + 100].sum()) for s in starts]
    file = lb.open(document{options})
    check(file["values"])
    context = multiprocessing.get_context("{method}")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert [*pool.map(read, [file["values"]] * len(starts), starts)] == wanted
        if "{method}" == "fork":
            assert [*pool.map(read_inherited, starts)] == wanted
    check(file["values"])
    end()
"""


@pytest.mark.parametrize("over", ["http", "disk"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method: str, over: str, served: dict[str, str]) -> None:
    """Datasets travel to the workers by pickle; with fork they are inherited as well."""
    done = run(POOL.format(method=method, options=", source=source"), served, over, "sys.exit")
    assert done.returncode == 3, done.stderr


def test_closing_at_exit_leaves_other_files_alone(served: dict[str, str], tmp_path: Path) -> None:
    """A file that is being written through h5py's own file object support is flushed as if we were not there."""
    code = f"""
kept = open({str(tmp_path / "out.h5")!r}, "w+b")
out = h5py.File(kept, "w")
out["x"] = expected
file = lb.open(document, source=source)
check(file["values"])
"""
    done = run(code, served, "disk")
    assert (done.returncode, done.stderr) == (0, "")
    with h5py.File(tmp_path / "out.h5") as file:
        assert (file["x"][()] == np.arange(60_000)).all()
