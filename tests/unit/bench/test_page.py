"""The page: what is lost to whom comes first, a loss has no rate, quantiles only where samples carry them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import cli
from bench.comparison.histograms import write_histograms
from bench.comparison.latency import row_name as latency_row
from bench.comparison.throughput import VALUES
from bench.comparison.throughput import row_name as throughput_row
from bench.figure import Bound, Round, make_figure
from bench.latency.distribution import Nanoseconds
from bench.report import marks, plots
from bench.report.charts import CURVES_MAX, curves
from bench.report.losing import losing
from bench.report.page import END, write
from bench.report.results import read
from bench.systems import SYSTEMS

MACHINE = {
    "time": "now", "command": "mesh-bench compare", "cpu": "a CPU", "cores": 2, "kernel": "k",
    "python": "p", "libzmq": "4", "load_average_before": [0.1], "load_average_after": [0.2],
    "disk_sync_p50_us": 300.0, "temporary_directory": "ext4", "loop_10m_s": 0.2,
    "asked": {"runs": 1, "seconds": 3.0, "warm": 1.0}, "versions": {"pynng": "0.9"},
    "notes": ["nng is skipped: no module"], "failures": [],
}  # fmt: skip


def throughput(system: str, cpu: float | None, wrong: int = 0) -> list[dict[str, Any]]:
    run = {"value": cpu, "ratio": 1.0, "wrong": wrong}
    return [
        {"name": throughput_row(system, 1024, words), "value": cpu, "ratio": 1.0, "runs": [run]}
        for words, _ in VALUES.values()
    ]


def latency(system: str, p50_us: float, wrong: int = 0, kept: float = 1.0) -> dict[str, Any]:
    quantiles = {"p50": p50_us * 1e3, "p99": p50_us * 2e3, "max": p50_us * 9e3}
    load = {
        "response": quantiles, "uncorrected": quantiles, "delay": quantiles, "wrong": wrong,
        "kept": kept, "kept_the_schedule": kept > 0.99, "cpu_s_per_million": 50.0, "asked": 100,
        "sent": round(100 * kept),
    }  # fmt: skip
    return {"name": latency_row(system, "L2", "p50"), "value": 1, "runs": [load]}


def results(directory: Path, *figures: dict[str, Any]) -> Path:
    content = {"machine": MACHINE, "commit": "0123456789", "figures": figures}
    (directory / "compare.json").write_text(json.dumps(content))
    return directory


def samples(file: Path, row: Nanoseconds) -> str:
    np.savez(file, response=row, uncorrected=row, delay=row)
    return file.name


def page(directory: Path, *figures: dict[str, Any]) -> str:
    to = directory / "performance.md"
    write(results(directory, *figures), to)
    return to.read_text()


def test_what_was_written_by_hand_below_stays(tmp_path: Path) -> None:
    first = page(tmp_path, *throughput("zenoh", 3.0))
    assert first.endswith(END + "\n")
    (tmp_path / "performance.md").write_text(first + "\n## Marks\n\nHeld.\n")
    second = page(tmp_path, *throughput("mesh-topics", 9.0))
    assert "zenoh" not in second
    assert second.endswith(END + "\n\n## Marks\n\nHeld.\n")


def test_who_sent_nothing_after_the_warm_up_is_said_to_have(tmp_path: Path) -> None:
    slow = latency("nng", 100.0, kept=0.05)
    slow["value"] = None
    slow["runs"][0] |= {"response": {}, "uncorrected": {}, "delay": {}}
    line = next(one for one in page(tmp_path, slow).splitlines() if one.startswith("| nng"))
    assert "| not past the warm-up |" in line
    assert "NO, 5%" in line


def test_losses_to_a_peer_come_first_with_their_reason(tmp_path: Path) -> None:
    text = page(tmp_path, *throughput("mesh-topics", 9.0), *throughput("zenoh", 3.0))
    losing_at, table_at = text.index("## Where the mesh loses"), text.index("## Full throttle")
    assert (
        losing_at
        < text.index("| to | CPU | why |\n|---|---|---|\n| zenoh | 3.0x | 1, 2 |")
        < table_at
    )
    assert "\n1. Routing, credit and delivery of the mesh are Python" in text[losing_at:table_at]
    assert text.index("2. Every link of the mesh is encrypted") < text.index("## Where and how")


def test_ours_is_set_beside_the_best_mode_of_each_peer(tmp_path: Path) -> None:
    text = page(
        tmp_path, *throughput("mesh-topics", 9.0), *throughput("mesh-topics-batch", 4.0),
        *throughput("redis", 30.0), *throughput("redis-pipelined", 8.0), *throughput("zeromq", 3.8),
        *throughput("zeromq-packed", None, wrong=3), *throughput("nng", None, wrong=3),
        *throughput("nats-raw", 1.0), *throughput("jetstream", 1.0),
    )  # fmt: skip
    row = "| 1024 B at full throttle: CPU s / M msg | even with zeromq | 4 topics-batch | **3.8** | none | 8 pipelined |"
    assert "| | the mesh | mesh | zeromq | nng | redis |\n" in text
    assert row in text.splitlines()
    assert text.index(row) < text.index("### To whom it loses")


@pytest.mark.parametrize(
    ("ours", "told", "count"),
    [
        (240.0, "loses 2.4x to nats", "loses 2, wins 0 of 2"),
        (110.0, "even with nats", "loses 0, wins 0 of 2"),
        (50.0, "wins 2.0x over nats", "loses 0, wins 2 of 2"),
    ],
)
def test_who_wins_is_told_by_more_than_a_fifth(
    tmp_path: Path, ours: float, told: str, count: str
) -> None:
    text = page(tmp_path, latency("mesh-requests", ours), latency("nats", 100))
    assert f"### Nothing is stored: {count}\n" in text
    assert f"| L2, 1 KB at 3,000/s: p50, us | {told} |" in text


def test_ours_without_a_figure_loses(tmp_path: Path) -> None:
    text = page(tmp_path, latency("mesh-requests", 50, wrong=3), latency("nats", 100))
    assert "| L2, 1 KB at 3,000/s: p99, us | loses to nats | none | **200** |" in text


def test_a_single_round_is_told_to_say_little_of_a_p99(tmp_path: Path) -> None:
    figures = [latency("mesh-requests", 300), latency("nats", 100)]
    assert "Of a single round, a p99" in page(tmp_path, *figures)
    content = json.loads((tmp_path / "compare.json").read_text())
    content["machine"]["asked"]["runs"] = 5
    (tmp_path / "compare.json").write_text(json.dumps(content))
    write(tmp_path, tmp_path / "page.md")
    assert "Of a single round" not in (tmp_path / "page.md").read_text()


def test_what_each_process_took_is_beside_the_sum(tmp_path: Path) -> None:
    figures = throughput("nats", 8.0)
    spent = {"system_server.0": 1.0, "system_consumer.1": 2.5, "system_producer.2": 0.5}
    figures[0]["runs"][0] |= {"cpu_s": spent, "count": 500_000}
    assert "| 8 | 1 + 5 + 2 | 1.00x |" in page(tmp_path, *figures)


def test_a_peer_with_a_figure_where_ours_lost_messages_wins(tmp_path: Path) -> None:
    text = page(tmp_path, latency("mesh-requests", 50, wrong=3), latency("zeromq", 50))
    assert "| zeromq | ours: none | ours: none | 1 |" in text


@pytest.mark.parametrize(("peer", "why"), [("nats", "Python in an event loop"), ("nng", "in C or")])
def test_a_reason_is_true_of_the_peer(tmp_path: Path, peer: str, why: str) -> None:
    """Found: nats-py, which is asyncio, was said to be in C or a thread that does nothing else."""
    text = page(tmp_path, latency("mesh-requests", 300), latency(peer, 100))
    assert why in next(line for line in text.splitlines() if "A request of the mesh" in line)


def test_who_may_have_many_outstanding_where_ours_may_not_is_told(tmp_path: Path) -> None:
    text = page(
        tmp_path, *throughput("mesh-durable-each", 9.0), *throughput("redis-streams-each", 3.0),
        *throughput("jetstream-each", 3.0),
    )  # fmt: skip
    assert "| redis-streams-each | 3.0x | 1 |" in text
    assert "| jetstream-each | 3.0x | 1, 2 |" in text
    assert "\n2. This peer's server syncs each message of many that are outstanding" in text


@pytest.mark.parametrize(("ours", "theirs", "loses"), [(0.2, 1.0, True), (1.0, 0.2, False)])
def test_a_load_that_was_given_up_is_beside_none(
    tmp_path: Path, ours: float, theirs: float, loses: bool
) -> None:
    """Those sent before are no worse for it: the others, which would have waited, never left."""
    text = page(
        tmp_path, latency("mesh-topics", 50 + 50 * ours, kept=ours), latency("zeromq", 55, kept=theirs)
    )  # fmt: skip
    assert ("| zeromq | ours: none |" in text) is loses
    assert ("| zeromq |" in text.partition("### To whom")[2].partition("## Where and")[0]) is loses
    assert ("1. A run that lost messages, died, or was given up" in text) is loses


def test_only_equal_promises_are_compared(tmp_path: Path) -> None:
    found = read(results(tmp_path, *throughput("mesh-durable", 20.0), *throughput("zenoh", 3.0)))
    assert list(losing(found)) == []


def test_a_difference_within_the_noise_is_no_loss(tmp_path: Path) -> None:
    found = read(results(tmp_path, *throughput("mesh-topics", 3.3), *throughput("zenoh", 3.0)))
    assert not [loss for loss in losing(found) if loss.what.startswith("CPU")]


def test_a_run_that_lost_anything_has_no_rate(tmp_path: Path) -> None:
    text = page(tmp_path, *throughput("zeromq", None, wrong=12), latency("zenoh", 100, wrong=34))
    assert "| zeromq | pyzmq, a payload a message | lost or wrong: 12 |" in text
    assert "| zenoh | memory | no right reply: 34 |" in text
    assert "still waiting: zenoh L2: 34." in text


def test_a_schedule_that_was_not_kept_is_told(tmp_path: Path) -> None:
    text = page(tmp_path, latency("zenoh", 100, kept=0.81), latency("zeromq", 50))
    assert "| zenoh | memory | 100 | 200 |  | 900 |  |  | 200 | 200 | NO, 81% | 50 |" in text
    assert "| zeromq | memory | 50 | 100 |  | 450 |  |  | 100 | 100 | yes | 50 |" in text


def test_rounds_are_told_with_the_least_and_the_most_and_beside_raw_zeromq(tmp_path: Path) -> None:
    rounds = [latency("zenoh", p50_us) for p50_us in (100, 120, 190)]
    runs = [
        {**one["runs"][0], "ratio": ratio}
        for one, ratio in zip(rounds, (2.0, 2.5, 3.0), strict=True)
    ]
    full = {"name": throughput_row("zenoh", 1024, "CPU of all processes"), "value": 4.0, "ratio": 1.5,
            "runs": [{"value": value, "ratio": value / 2, "wrong": 0} for value in (3.0, 4.0, 5.0)]}  # fmt: skip
    text = page(tmp_path, {**rounds[0], "ratio": 2.5, "runs": runs}, full)
    assert (
        "| zenoh | memory | 120 (100 to 190) | 240 (200 to 380) |  | 1,710 | 2.50x (2.00 to 3.00) |  |"
        in text
    )
    assert "| 4 (3 to 5) |  | 1.50x (1.50 to 2.50) |" in text


def test_one_round_has_neither_least_nor_most(tmp_path: Path) -> None:
    one = latency("zenoh", 100)
    one["runs"][0]["ratio"] = 2.0
    text = page(tmp_path, {**one, "ratio": 2.0}, *throughput("zenoh", 4.0))
    assert "| zenoh | memory | 100 | 200 |  | 900 | 2.00x |  |" in text
    assert " to " not in "".join(line for line in text.splitlines() if line.startswith("| zenoh"))


def test_who_was_not_measured_is_named(tmp_path: Path) -> None:
    assert "- nng is skipped: no module" in page(tmp_path, latency("zeromq", 50))


def test_rounds_are_pooled_into_one_histogram(tmp_path: Path) -> None:
    files = [
        samples(tmp_path / f"zeromq-L2-r{number:02}.npz", np.full(100, number * 1_000_000))
        for number in (1, 2)
    ]
    write_histograms(tmp_path, files, keep=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "delay_zeromq-L2.hgrm", "uncorrected_zeromq-L2.hgrm", "zeromq-L2.hgrm",
    ]  # fmt: skip
    assert "Total count    =          200]" in (tmp_path / "zeromq-L2.hgrm").read_text()


@pytest.mark.parametrize("keep", [False, True])
def test_a_run_that_was_cut_short_is_in_no_histogram(tmp_path: Path, keep: bool) -> None:
    """Found: Ctrl-C while samples were saved left half a file, and no histogram of anybody."""
    whole = samples(tmp_path / "zeromq-L2-r01.npz", np.full(100, 1_000_000))
    (tmp_path / "zeromq-L2-r02.npz").write_bytes((tmp_path / whole).read_bytes()[:500])
    write_histograms(tmp_path, [whole], keep=keep)
    assert "Total count    =          100]" in (tmp_path / "zeromq-L2.hgrm").read_text()
    assert [file.name for file in tmp_path.glob("*.npz")] == [whole] * keep


def test_curves_and_growth_are_drawn(tmp_path: Path) -> None:
    files = [
        samples(tmp_path / f"zeromq-{workload}-r01.npz", np.arange(5000, dtype=np.int64) + 1000)
        for workload in ("L2", "L4")
    ]
    write_histograms(tmp_path, files, keep=False)
    axis = {"name": "links", "unit": "links", "lines": {"memory, MB": [[1, 2.0], [2, 3.0]]}}
    scale = {"machine": MACHINE, "commit": "0123456789", "figures": [], "axes": [axis]}
    (tmp_path / "scale.json").write_text(json.dumps(scale))
    text = page(tmp_path, latency("zeromq", 50, wrong=34))
    drawn = (tmp_path / "figures" / "performance" / "L2-direct.svg").read_text()
    assert "zeromq, 34 without a right reply, n=5,000" in drawn
    for name in ("L2-direct", "scale-links", "corrected"):
        assert f"(figures/performance/{name}.svg)" in text
        assert (
            (tmp_path / "figures" / "performance" / f"{name}.svg").read_text().startswith("<?xml")
        )
        png = (tmp_path / "figures" / "performance" / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")


def test_how_costs_grow_is_drawn_without_a_comparison_too(tmp_path: Path) -> None:
    axis = {"name": "links", "unit": "links", "lines": {"memory, MB": [[1, 2.0], [2, 3.0]]}}
    scale = {"machine": MACHINE, "commit": "0123456789", "figures": [], "axes": [axis]}
    (tmp_path / "scale.json").write_text(json.dumps(scale))
    to = tmp_path / "growth.md"
    write(tmp_path, to)
    text = to.read_text()
    assert text.startswith("## How the mesh's costs grow\n")
    assert f"commit 0123456; {MACHINE['cpu']}, 2 cores" in text
    assert "![links](figures/growth/scale-links.svg)" in text
    assert (tmp_path / "figures" / "growth" / "scale-links.png").exists()
    assert "Full throttle" not in text


def curve_of(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The axes on which one system's `count` samples are drawn."""
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, _: drawn.append(figure))
    found = samples(tmp_path / "zeromq-L2-r01.npz", np.arange(count, dtype=np.int64) + 1000)
    write_histograms(tmp_path, [found], keep=False)
    plots.distributions({"zeromq": tmp_path / "zeromq-L2.hgrm"}, "L2", tmp_path / "L2")
    (axes,) = drawn[0].axes
    return axes


def test_a_curve_is_dashed_where_fewer_than_ten_samples_lie_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = curve_of(5000, tmp_path, monkeypatch)
    solid, dashed = axes.lines
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert 250 < max(solid.get_xdata()) <= 500  # 1 / (1 - quantile) with 10 of 5,000 beyond it
    assert min(dashed.get_xdata()) == max(solid.get_xdata())
    assert max(dashed.get_xdata()) >= 4000
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert (ticks[0], ticks[-1]) == ("0 %", "99.9999 %")


def test_a_curve_of_fewer_than_ten_samples_is_dashed_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = curve_of(8, tmp_path, monkeypatch)
    solid, dashed = axes.lines
    assert not len(solid.get_xdata())
    assert (min(dashed.get_xdata()), max(dashed.get_xdata())) == (1, 8)


def test_curves_are_drawn_in_groups_that_can_be_told_apart(tmp_path: Path) -> None:
    for name in SYSTEMS:
        (tmp_path / f"{name}-L2.hgrm").touch()
    groups = curves(read(results(tmp_path, latency("zeromq", 50))), "L2")
    drawn = {name for files in groups.values() for name in files}
    assert drawn == set(SYSTEMS)
    assert "mesh-durable" in groups["durable"]
    assert {"zeromq", "mesh-topics", "nats"} <= groups["brokers"].keys()
    assert {"zeromq", "mesh-topics", "nats-raw"} <= groups["floors"].keys()
    for group, files in groups.items():
        measured = [name for name in files if SYSTEMS[name].latency]
        assert len(measured) <= CURVES_MAX, group


def figure(name: str, value: float) -> dict[str, Any]:
    run = Round(value, 2.0)
    return make_figure(name, "M/s", [run], [Bound("ratio", "at least", 1.0)]).as_json()


def marks_of(directory: Path, *figures: dict[str, Any]) -> None:
    content = {"machine": {**MACHINE, "dirty": False}, "commit": "c" * 40, "figures": figures}
    (directory / "mesh.json").write_text(json.dumps(content))


def test_marks_are_written_anew_and_all_else_of_the_page_stays(tmp_path: Path) -> None:
    to = tmp_path / "page.md"
    to.write_text(
        f"top\n\n{END}\n\nby hand\n\n{marks.BEGIN}\nearlier\n{marks.END}\n\nmore by hand\n"
    )
    marks_of(tmp_path, figure("good", 4.0), figure("bad", 1.0))
    write(tmp_path, to)
    text = to.read_text()
    for words in ("top\n", "by hand\n", "more by hand\n", "at ccccccc", "mesh-bench compare"):
        assert text.count(words) >= 1
    assert "earlier" not in text
    assert "| good | 4 M/s | 2 | 2.00 | ratio at least 1 | yes |" in text
    assert "| bad | 1 M/s | 2 | 0.50 | ratio at least 1 | NO |" in text
    write(tmp_path, to)
    assert to.read_text() == text


def test_a_comparison_keeps_the_marks_of_its_page(tmp_path: Path) -> None:
    to, own, others = tmp_path / "page.md", tmp_path / "own", tmp_path / "others"
    own.mkdir()
    others.mkdir()
    marks_of(own, figure("good", 4.0))
    for directory in (results(others, *throughput("zeromq", 1.0)), own, others):
        write(directory, to)
    assert "| good |" in to.read_text()
    assert "# Performance" in to.read_text()


def test_a_file_of_somebody_else_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "compare.json").write_text("{")
    assert cli.main(["page", str(tmp_path), "--to", str(tmp_path / "page.md")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}: not what mesh-bench writes" in line


def test_each_file_tells_where_it_is_from_and_what_it_lacks(tmp_path: Path) -> None:
    """Found: of full throttle and loads in one directory the page told the first file's settings and failures."""
    for name, asked, figures in (
        ("throughput", {"count": 1234567, "seconds_max": 4.0}, throughput("zeromq", 3.0)),
        ("latency", {"seconds": 9.0, "warm": 2.0, "samples": 70_000}, [latency("zeromq", 50)]),
    ):
        machine = {**MACHINE, "command": f"mesh-bench {name}", "asked": {"runs": 1, **asked},
                   "versions": {f"of {name}": "1"}, "failures": [f"{name} died"]}  # fmt: skip
        content = {"machine": machine, "commit": f"{name[:3]}0000", "figures": figures}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    scale = {"machine": {**MACHINE, "failures": ["64 nodes died"], "dirty": True}, "commit": "sca0000", "axes": [],
             "figures": [{"name": "8 links: memory", "runs": [{"wrong": 3}]}]}  # fmt: skip
    (tmp_path / "scale.json").write_text(json.dumps(scale))
    to = tmp_path / "page.md"
    write(tmp_path, to)
    text = to.read_text()
    for words in (
        "measured at thr0000, lat0000 (", "Commit thr0000, ", "Commit lat0000, ", "commit sca0000 and what differs from it", "of throughput 1, of latency 1",
        "- not measured: throughput died\n", "- not measured: latency died\n",
        "- not measured: 64 nodes died\n", "- 8 links: memory: lost or wrong: 3\n",
        "9 s of each load after 2 s, at least 70,000 requests of each;",
        "`mesh-bench throughput --size 1024 --count 1234567 --seconds-max 4`",
        "`mesh-bench latency --workloads L2 --seconds 9 --warm 2 --samples 70000`",
    ):  # fmt: skip
        assert words in text, words


def test_short_runs_are_told_to_be_no_figures(tmp_path: Path) -> None:
    content = json.loads((results(tmp_path, latency("zeromq", 50)) / "compare.json").read_text())
    content["machine"]["asked"]["quick"] = True
    (tmp_path / "compare.json").write_text(json.dumps(content))
    to = tmp_path / "page.md"
    write(tmp_path, to)
    assert "to try the bench: no figures to quote**" in to.read_text()
    assert "`mesh-bench latency --workloads L2 --seconds 3 --warm 1 --quick`" in to.read_text()


def test_nothing_is_won_where_nothing_was_measured(tmp_path: Path) -> None:
    """Found: "Nowhere by more than a fifth." of peers alone, and where all of ours had died."""
    assert "To nobody by more" in page(
        tmp_path, *throughput("zeromq", 3.0), *throughput("mesh-topics", 3.0)
    )
    alone = page(tmp_path, *throughput("zeromq", 3.0), *throughput("mesh-durable", 3.0))
    assert "Not measured: no figure of ours beside one of a peer" in alone
    dead = [
        {**figure, "runs": [], "failed": 1, "value": None}
        for figure in throughput("mesh-topics", None)
    ]
    assert "| zeromq | ours: none | ours: none | 1 |" in page(
        tmp_path, *throughput("zeromq", 3.0), *dead
    )


def test_no_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="in "):
        read(tmp_path)
