"""The parts of scripts/bench, on tiny data and without peers: what it counts, replays and writes is right."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from benchmark import (  # noqa: E402
    data,
    decode_bench,
    documents,
    floor,
    index_bench,
    needs,
    read_bench,
    read_report,
    report,
    runner,
    tasks,
    warm_bench,
)
from benchmark.server import Server, Traffic, longest_chain  # noqa: E402
from benchmark.session import Session, Settings, middle  # noqa: E402
from peers.environments import ENVIRONMENTS  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark is for Linux")


@pytest.fixture(scope="module")
def content():
    return np.random.default_rng(0).bytes(1_000_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("served")
    (folder / "a file.bin").write_bytes(content)
    with Server(folder, latency=0.01) as server:
        yield server


def connect(server):
    return closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30))


def ask(connection, method="GET", name="/a%20file.bin", **headers):
    connection.request(method, name, headers=headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


# -- the server ----------------------------------------------------------------------------------------------------


def test_ranges_are_answered_as_http_wants(server, content):
    with connect(server) as connection:
        status, headers, body = ask(connection, Range="bytes=100-299")
        assert (status, body, headers["Content-Range"]) == (206, content[100:300], "bytes 100-299/1000000")
        assert headers["ETag"]
        assert ask(connection, Range="bytes=-7")[2] == content[-7:]
        assert ask(connection, Range="bytes=999000-")[2] == content[999000:]
        assert ask(connection, Range="bytes=999000-9999999")[2] == content[999000:]
        assert ask(connection)[::2] == (200, content)
        assert ask(connection, "HEAD")[1]["Content-Length"] == "1000000"
        assert ask(connection, Range="bytes=1000000-")[0] == 416
        assert ask(connection, name="/../secret")[0] == ask(connection, name="/none")[0] == 404


def test_one_after_the_other_is_one_wave_each(server):
    server.reset()
    with connect(server) as first, connect(server) as second:
        for number in range(5):
            ask((first, second)[number % 2], Range="bytes=0-999")
    traffic = server.count()
    assert (traffic.requests, traffic.waves, traffic.connections, traffic.nbytes) == (5, 5, 2, 5000)
    server.reset()
    assert server.count().requests == 0


def test_requests_at_the_same_time_are_one_wave(tmp_path):
    (tmp_path / "x").write_bytes(bytes(100))

    def one(port):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            return len(ask(connection, name="/x", Range="bytes=0-9")[2])

    with Server(tmp_path, latency=1.0) as server, ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, [server.port] * 8)) == 80
        traffic = server.count()
    assert (traffic.requests, traffic.waves, traffic.connections, traffic.nbytes) == (8, 1, 8, 80)


def test_a_bandwidth_changes_no_byte(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with Server(tmp_path, bandwidth=100e6) as server, connect(server) as connection:
        assert ask(connection, name="/x")[2] == content
        assert server.count().nbytes == len(content)


def test_the_longest_chain():
    assert longest_chain([]) == 0
    assert longest_chain([(0, 1), (0, 1), (0.5, 2), (1, 3), (3, 4)]) == 3
    assert longest_chain([(0, float("inf")), (0, 1)]) == 1


# -- the floor -----------------------------------------------------------------------------------------------------


def test_spans():
    assert floor.merge([(5, 6), (0, 2), (2, 3), (8, 8)]) == [(0, 3), (5, 6)]
    assert floor.merge([(0, 2), (4, 6)], gap=2) == [(0, 6)]
    assert floor.subtract([(0, 10), (20, 30)], [(2, 3), (5, 22), (29, 40)]) == [(0, 2), (3, 5), (22, 29)]
    assert floor.subtract([(0, 10), (11, 12)], [(0, 100)]) == []


def test_subtracting_is_what_sets_do():
    rng = np.random.default_rng(1)
    for _ in range(200):
        spans, known = ([tuple(sorted(rng.integers(0, 60, 2).tolist())) for _ in range(n)] for n in (5, 4))
        expected = {b for s in spans for b in range(*s)} - {b for s in known for b in range(*s)}
        left = floor.subtract(spans, known)
        assert {b for s in left for b in range(*s)} == expected
        assert sum(stop - start for start, stop in left) == len(expected)


def test_a_plan_covers_whole_blocks_and_cuts_them():
    requests = floor.plan([(10, 20), (130, 140), (150, 250)], size=200, block=64, limit=40)
    assert floor.merge(requests) == [(0, 64), (128, 200)]
    assert max(stop - start for start, stop in requests) == 40
    assert floor.plan([], 200, 64, 40) == []


def test_a_replay_asks_for_the_plan_and_nothing_else(server):
    spans = [(k * 70_000, k * 70_000 + 10) for k in range(12)]
    server.reset()
    found = floor.measure(server.url("a file.bin"), spans, 1_000_000, [1], repeat=1)
    traffic = server.count()
    assert found.requests == traffic.requests == 12
    assert found.nbytes == traffic.nbytes == 120
    assert found.wall >= server.latency
    assert traffic.connections == 12
    assert floor.measure(server.url("a file.bin"), [], 1_000_000, [1]) == floor.Floor()


def test_a_replay_that_is_answered_wrongly_fails(server):
    with pytest.raises(subprocess.CalledProcessError):
        floor.measure_plan(server.url("none"), [(0, 10)])


# -- one measurement -----------------------------------------------------------------------------------------------

CHILD = """
import os, sys, time, urllib.request
from benchmark.dialog import Dialog
dialog = Dialog()
print("what tools print is not taken for an answer")
urllib.request.urlopen(sys.argv[1]).read()  # before the phase: not counted
with dialog.phase("index"):
    urllib.request.urlopen(sys.argv[1]).read()
    if sys.argv[2] == "fail":
        raise ValueError("no\\ngood")
    if sys.argv[2] == "hang":
        time.sleep(1000)
    if sys.argv[2] == "crash":
        os._exit(3)
    sum(range(3_000_000))
    memory = bytearray(50_000_000)
dialog.finish(digest="d")
"""


@pytest.fixture
def child(tmp_path, monkeypatch, server):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "tiny_child.py").write_text(CHILD)
    (tmp_path / "scripts" / "benchmark").symlink_to(ROOT / "scripts" / "benchmark")
    monkeypatch.setattr(runner, "ROOT", tmp_path)

    def run(how, seconds=60):
        return runner.run(sys.executable, "tiny_child", [server.url("a file.bin"), how], server, seconds)

    return run


def test_a_measurement_counts_its_phase_alone(child):
    outcome = child("well")
    assert outcome.error == ""
    assert outcome.result["digest"] == "d"
    phase = outcome.phases["index"]
    assert (phase.traffic.requests, phase.traffic.nbytes) == (1, 1_000_000)
    assert 0 < phase.cpu <= phase.wall * os.cpu_count() * 1.5
    assert 50e6 < phase.rss < 200e6


def test_what_fails_hangs_or_crashes_is_a_result(child):
    failed = child("fail")
    assert (failed.error, failed.hung, failed.result) == ("ValueError: no good", False, {})
    hung = child("hang", seconds=3)
    assert hung.hung
    assert "killed" in hung.error
    crashed = child("crash")
    assert crashed.error
    assert not crashed.hung


# -- the files -----------------------------------------------------------------------------------------------------


def test_names_of_files():
    assert [data.chunk_count(name) for name in ("C10k", "C1M", "C7", "M", "C")] == [10_000, 1_000_000, 7, 0, 0]
    assert data.file_name("C10k") == "C10k.h5"
    assert data.file_name("M") == "M.h5ad"
    with pytest.raises(SystemExit, match="no file 'X'"):
        data.make("X", Path("."))


def test_a_file_of_many_chunks_has_them_all(tmp_path):
    path = data.make("C100", tmp_path)
    with h5py.File(path) as file:
        assert file["many"].id.get_num_chunks() == 100
    written = path.stat().st_mtime_ns
    assert data.make("C100", tmp_path).stat().st_mtime_ns == written


def test_counts_are_distinct_genes_in_order():
    matrix = data.counts(50, 30, 12, np.random.default_rng(0))
    assert matrix.has_canonical_format
    assert matrix.indices.max() < 30
    assert 8 < matrix.nnz / 50 < 16


def test_the_nwb_like_file_has_every_kind_of_member(tmp_path):
    data.make_nwb(tmp_path / "N.h5", samples=100, chunks=70, series=20)
    with h5py.File(tmp_path / "N.h5") as file:
        assert file["processing/ophys/ImageSegmentation/many_chunks"].id.get_num_chunks() == 70
        assert file[file["intervals/epochs/timeseries"]["timeseries"][0]].name == "/acquisition/ElectricalSeries"
        assert file["stimulus/presentation/ts_0000/link"].shape == (100,)
        assert (file["processing/ophys/ImageSegmentation/many_chunks"][64:128] >= 1).all()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    pytest.importorskip("anndata")
    folder = tmp_path_factory.mktemp("data")
    data.write(data.atlas(200, 50, 8, seed=0), folder / "S.h5ad", "earliest")
    return folder / "S.h5ad"


def test_the_sparse_file_is_its_model_with_larger_matrices(small, tmp_path):
    data.make_sparse(tmp_path / "L.h5ad", small, length=10_000, chunk=100)
    with h5py.File(tmp_path / "L.h5ad") as sparse, h5py.File(small) as model:
        names, sparse_names = [], []
        model.visit(names.append)
        sparse.visit(sparse_names.append)
        assert sorted(names) == sorted(sparse_names)
        assert sparse["raw/X/data"].id.get_num_chunks() == 100
        assert dict(sparse["X"].attrs)["encoding-type"] == "csr_matrix"
        assert np.array_equal(sparse["obs/total_counts"], model["obs/total_counts"])


# -- tasks and needs -----------------------------------------------------------------------------------------------


def test_every_task_reads_the_same_through_us(small):
    import lindi_bridge as lb

    with h5py.File(small) as expected, lb.open(lb.index(small)) as actual:
        for task in tasks.TASKS.values():
            mine, theirs = task.work(tasks.Ours(), actual), task.work(tasks.Access(), expected)
            assert tasks.digest(mine) == tasks.digest(theirs), task.title


def test_digests_forgive_types_and_see_values():
    same = tasks.digest(np.array([1, 2], "i4"))
    assert same == tasks.digest(np.array([1, 2], "u2"))
    assert same != tasks.digest(np.array([1, 3], "i4"))
    assert same != tasks.digest(np.array([1.0, 2.0]))
    assert tasks.digest([b"ab", "c"]) == tasks.digest(["ab", b"c"]) != tasks.digest(["a", "bc"])


def test_needs_are_within_the_file_and_leave_raw_data_out(small, tmp_path):
    spans = needs.needed_to_index(str(small))
    assert spans == floor.merge(spans)
    assert spans[0][0] == 0
    assert spans[-1][1] <= small.stat().st_size
    path = data.make("C4k", tmp_path)  # 1 MB of values
    needed = sum(stop - start for start, stop in needs.needed_to_index(str(path)))
    assert path.stat().st_size - needed > 900_000


# -- the report ----------------------------------------------------------------------------------------------------


def test_tables_and_markers():
    assert report.table(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"
    begin, end = report.markers("index")
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    new = report.replaced(page, "index", "new")
    assert new == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    assert report.replaced(new, "index", "new") == new
    with pytest.raises(SystemExit, match="marker"):
        report.replaced(page, "read", "new")


def test_the_page_has_the_places_to_write_to():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in ("index", "open", "read", "warm", "decode"):
        assert "new text" in report.replaced(page, name, "new text")


def result(file, tool, wall, remote=True, **more):
    phase = runner.Phase(wall, more.pop("cpu", 0.1), more.pop("rss", 10), Traffic(1, 1, 1, 1))
    return index_bench.Result(file, remote, tool, runner.Run({"index": phase}, {"done": True}, **more))


def test_targets_are_judged():
    results = index_bench.Results(
        [
            result("M", "lindi_bridge", 1.5),
            result("M", "lindi", 2.0),  # does not index all chunks
            result("M", "lindi-all", 15.0),
            result("M", "kerchunk", 30.0),
            result("L", "lindi_bridge", 6.0),
            result("L", "kerchunk", 0.0, error="no answer", hung=True),
            result("C10k", "lindi_bridge", 1, remote=False, cpu=0.1, rss=1_000_000),
            result("C100k", "lindi_bridge", 1, remote=False, cpu=0.19, rss=10_000_000),
            result("C1M", "lindi_bridge", 1, remote=False, cpu=1.09, rss=100_000_000),
        ],
        {"M": floor.Floor(0.5, 0.1, 100, 1000)},
        limit=300,
    )
    lines = index_bench.targets_table(results).splitlines()[2:]
    assert [line.split("|")[-2].strip() for line in lines] == [
        "met",
        "met",
        "**not met**",
        "met",
        "",
        "met",
        "met",
    ]
    assert "10.0 x" in lines[1]
    assert "more than 50.0 x" in lines[3]
    assert "1.00 to 1.00 us; 100 and 100 bytes" in lines[6]
    said = index_bench.verdict(results, "M", remote=True)
    assert "10.0 x as fast" in said
    assert "3.00 x the floor" in said
    assert "failed: no answer" in index_bench.rows_table(results, results.rows[4:6])


def reading(digest, wall, waves=1, requests=1, opening=1.0):
    phases = {"open": runner.Phase(opening), "task": runner.Phase(wall, traffic=Traffic(requests, 99, 1, 1))}
    return runner.Run(phases, {"digest": digest, "waves": waves})


def reading_row(task, ours, net=0.3, decode=0.2, **peers):
    return read_report.Row(task, {"lindi_bridge": ours, **peers}, floor.Floor(net, 0.1, 3, 3), reading("x", decode))


def test_a_wrong_peer_is_marked():
    row = reading_row("obs", reading("x", 1.0), **{"kerchunk": reading("y", 0.1), "h5py-remfile": reading("x", 4.0)})
    text = read_report.summary([row], list(row.outcomes))
    assert "0.100 **wrong**" in text
    assert "| 2.50 | 2.00 |" in text  # (1 + 4) / (1 + 1): the wrong one is not the best peer
    assert "not those of h5py" in read_report.task_table(row)


def test_targets_of_reading_are_judged():
    good = [
        reading_row("obs", reading("x", 0.7, waves=3, requests=12), kerchunk=reading("x", 0.8)),
        reading_row("random", reading("x", 0.5, waves=2), kerchunk=reading("x", 0.9), lindi=reading("y", 0.1)),
        reading_row("stream", reading("x", 0.25, waves=1), decode=0.2, net=0.1),
    ]
    bad = [
        reading_row("obs", reading("x", 0.8, waves=3, requests=13), kerchunk=reading("x", 0.1, opening=0.5)),
        reading_row("random", reading("y", 0.5, waves=2)),  # wrong is not measured
        reading_row("rows", reading("x", 0.1, waves=3)),
        reading_row("stream", reading("x", 0.26, waves=1), decode=0.2, net=0.1),
    ]
    cells = [line.split(" | ") for line in read_report.targets_table({20: good, 50: bad}).splitlines()[2:]]
    verdicts = {title.strip("| "): (first, second.strip("| ")) for title, _, first, _, second in cells}
    assert list(verdicts.values()) == [
        ("met", "**not met**"),  # obs: waves and requests
        ("", "**not met**"),  # rows
        ("met", ""),  # random
        ("", ""),  # obsm
        ("met", "**not met**"),  # the best peer
        ("met", "**not met**"),  # obs by its floors
        ("met", ""),  # random by its floors
        ("met", "**not met**"),  # the rate of reading everything
    ]
    assert "3 and 13 requests" in cells[0][3]
    assert "0.33 x and more (obs as a data frame)" in cells[4][3]


def test_medians():
    runs = [runner.Run({"index": runner.Phase(wall, wall, int(wall))}, {"done": True}) for wall in (3.0, 1.0, 2.0)]
    assert middle(runs).phases["index"].wall == 2.0


def test_every_peer_has_an_environment():
    for tool in [*index_bench.TOOLS.values(), *read_report.TOOLS.values()]:
        assert tool.environment in {"", *ENVIRONMENTS}


# -- all of it -----------------------------------------------------------------------------------------------------


def test_a_whole_run_on_a_tiny_file(small, tmp_path):
    settings = Settings(small.parent, tmp_path, 0.001, 0.0, 1, 60, tmp_path / "log.jsonl")
    session = Session(settings, {"lindi_bridge": index_bench.TOOLS["lindi_bridge"]})
    results = index_bench.measure(session, ["S"], [True])
    text = index_bench.written(session, results, session.header("capacity"))
    assert "### S" in text
    (row,) = results.rows
    assert row.outcome.error == ""
    assert row.phase.traffic.requests > 0
    assert row.document == documents.facts(session.output / "S.remote.lindi_bridge.lindi.json")
    assert row.document.chunks > 10
    assert results.floors["S"].nbytes <= small.stat().st_size
    with session.server() as server:
        rows = read_bench.measure(session, server, "S", ["open", "random"])
    assert all(row.is_right("lindi_bridge") for row in rows)
    assert rows[1].outcomes["lindi_bridge"].result["waves"] == 0, "all of so small a file is in the document"
    text = read_report.written({1: rows}, ["lindi_bridge"], "S", "header")
    assert "fails" not in text
    assert "100 random rows of X, 1 ms" in text
    kinds = [json.loads(line)["what"] for line in settings.log.read_text().splitlines()]
    assert set(kinds) == {"index", "index floor", "read", "read floor"}


def test_every_read_of_what_is_near_is_measured_and_right(tmp_path):
    path = warm_bench.make(tmp_path, columns=8)
    with warm_bench.ways(path) as ways:
        for way in ways:
            for name in warm_bench.LAYOUTS:
                for what in warm_bench.SLICES:
                    if what.title == "100 x 100":
                        continue  # there are eight columns
                    timing = warm_bench.measure(path, way, name, what, 0)
                    assert len(timing.ours) == len(timing.theirs) >= 5
                    assert max(timing.ours) > 0


def test_targets_of_what_is_near():
    timing = warm_bench.Timing([25e-6, 13e-6], [10e-6, 11e-6])
    assert timing.meets("1.3 x")
    assert timing.meets("+ 20 us")
    assert not warm_bench.Timing([31e-6], [10e-6]).meets("+ 20 us")
    assert not warm_bench.Timing([14e-6], [10e-6]).meets("1.3 x")
    assert "**not met**" in warm_bench.line("gzip", warm_bench.SLICES[0], warm_bench.Timing([1.0], [0.5]))


def test_threads_decode_what_libhdf5_decodes(tmp_path):
    with h5py.File(warm_bench.make(tmp_path, columns=8)) as file:
        for threads in (1, 3):
            assert np.array_equal(decode_bench.Threads(file["gzip"], threads)(), file["gzip"])
