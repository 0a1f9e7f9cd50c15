"""``lindi-bridge check``, ``relocate`` and ``diff``: what they print where, and their exit status."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from builders.lies import changed
from servers.range_server import RangeServer

from lindi_bridge.cli import main
from lindi_bridge.document import schema

FOREIGN = Path(__file__).resolve().parents[1] / "data" / "foreign"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with a file and its document."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("x", data=np.random.default_rng(0).random((600, 100)), chunks=(100, 100))
        file["number"] = 42
        file["nowhere\x1b[2J"] = h5py.SoftLink("/not/there")
        file["type"] = np.dtype("f4")
    assert main(["index", "a.h5", "-o", "a.json"]) == 0
    return tmp_path


def run(capsys, *arguments):
    capsys.readouterr()
    try:
        status = main(list(map(str, arguments)))
    except SystemExit as error:
        status = error.code
    return status, *capsys.readouterr()


def lines(out):
    return [line.split("\t") for line in out.splitlines()]


# -- check ------------------------------------------------------------------------------------------------------------


def test_check_of_a_sound_document(here, capsys):
    status, out, err = run(capsys, "check", "a.json")
    assert status == 0
    assert [line[:2] for line in lines(out)] == [["note", "/type"]]
    assert "0 faults, 1 note" in err


def test_check_tells_all_that_is_wrong_with_its_place(here, capsys):
    document = json.loads((here / "a.json").read_text())

    def lie(raw):
        raw["refs"]["number/0"] = "base64:KwAAAAAAAAA="
        raw["refs"]["x/0.0"] = ["{{u}}", -1, 5]
        raw["generationMetadata"]["problems"].append(5)

    (here / "a.json").write_bytes(changed(json.dumps(document), lie))
    status, out, err = run(capsys, "check", "a.json")
    assert status == 1
    faults = [line[1:] for line in lines(out) if line[0] == "fault"]
    assert [path for path, _ in faults] == ["/generationMetadata/problems/1", "/refs/x~10.0", "/x", "/number"]
    assert "42 by the embedded metadata, 43 by refs" in faults[-1][1]
    assert "4 faults" in err


def test_check_of_a_broken_document_is_one_fault(here, capsys):
    text = (here / "a.json").read_text()
    for broken in (text[: len(text) // 2], text.replace('"zlib"', '"zlob"', 1)):
        (here / "b.json").write_text(broken)
        status, out, err = run(capsys, "check", "b.json")
        assert status == 1
        assert all(line[0] in ("fault", "note") for line in lines(out))
        assert "Traceback" not in err


def test_check_says_that_a_document_was_edited(here, capsys):
    raw = json.loads((here / "a.json").read_text())
    raw["refs"]["new/.zgroup"] = {"zarr_format": 2}
    (here / "a.json").write_text(json.dumps(raw))
    status, out, _ = run(capsys, "check", "a.json")
    assert status == 0
    assert ["note", "/"] in [line[:2] for line in lines(out)]
    assert "edited" in out


def test_check_asks_for_the_sources_of_other_programs_documents(here, capsys):
    shutil.copy(FOREIGN / "source.kerchunk.json", "b.json")
    status, out, _ = run(capsys, "check", "b.json")
    assert status == 1
    assert "source.h5" in out
    data = (FOREIGN / "source.h5").read_bytes()
    (here / "source.h5").write_bytes(data[: len(data) // 2])
    status, out, _ = run(capsys, "check", "b.json")
    assert status == 1
    assert "chunks up to byte" in out
    (here / "source.h5").write_bytes(data)
    assert run(capsys, "check", "b.json")[:2] == (0, "")
    status, out, _ = run(capsys, "check", "--data", "b.json")
    assert (status, [line[:2] for line in lines(out)]) == (1, [["fault", "/title"]])  # which kerchunk leaves out


def test_check_without_jsonschema_says_what_it_leaves_out(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    schema._validator.cache_clear()
    try:
        status, out, _ = run(capsys, "check", "a.json")
        assert status == 0
        assert "lindi_bridge[check]" in out.splitlines()[0]
        (here / "a.json").write_bytes(changed((here / "a.json").read_text(), lambda raw: raw["refs"]["x/0.0"].pop()))
        assert run(capsys, "check", "a.json")[0] == 1
    finally:
        schema._validator.cache_clear()


def test_check_takes_few_requests_and_no_data(here, capsys):
    with RangeServer() as server:
        url = server.add("a.h5", here / "a.h5")
        assert run(capsys, "index", url, "-o", "b.json")[0] == 0
        server.reset()
        assert run(capsys, "check", "b.json")[0] == 0
        # Samples from all over the file tell whether it is the one that was indexed.
        assert server.requests <= 40
        assert server.nbytes < 10_000


# -- relocate ---------------------------------------------------------------------------------------------------------


def test_relocate(here, capsys):
    status, out, err = run(capsys, "relocate", "a.json", "https://host/b.h5", "-o", "b.json.zst")
    assert (status, out) == (0, "b.json.zst\n")
    assert err == "a.h5 -> https://host/b.h5\n"
    status, out, err = run(capsys, "relocate", "b.json.zst", "a.h5", "--verify", "-o", "c.json")
    assert (status, out) == (0, "c.json\n")
    assert run(capsys, "check", "--data", "c.json")[0] == 0
    assert run(capsys, "relocate", "c.json", "gone.h5", "--verify")[0] == 1
    assert json.loads((here / "c.json").read_text())["templates"] == {"u": "a.h5"}


def test_relocate_refuses(here, capsys):
    status, _, err = run(capsys, "relocate", "a.json", "https://host/b.h5?sig=s3cret")
    assert status == 1
    assert "source=" in err
    assert "s3cret" not in err
    assert run(capsys, "relocate", "a.h5", "https://host/b.h5")[0] == 1
    assert run(capsys, "relocate", "https://host/a.json", "https://host/b.h5")[0] == 2
    assert run(capsys, "relocate", "a.json")[0] == 2
    status, _, err = run(capsys, "relocate", "a.json", "https://host/b.h5", "--from", "https://host/none.h5")
    assert status == 1
    assert "a.h5" in err


# -- diff -------------------------------------------------------------------------------------------------------------


def test_diff_exits_like_diff(here, capsys):
    assert run(capsys, "diff", "a.json", "a.h5") == (0, "", "0 differences\n")
    with h5py.File("a.h5", "r+") as file:
        file["number"][()] = 43
        file["new\x1b[2J"] = 1
    status, out, err = run(capsys, "diff", "a.json", "a.h5")
    assert status == 1
    assert ["/number", "value", "42", "43"] in lines(out)
    assert ["/new\\x1b[2J", "object", "not there", "dataset"] in lines(out)
    assert "\x1b" not in out
    assert "differences" in err
    assert run(capsys, "diff", "a.json", "gone.json")[0] == 2
    assert run(capsys, "diff", "a.json")[0] == 2
