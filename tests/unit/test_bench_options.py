"""What `make bench` can be asked for, who then takes part in which case, and what is refused before anything starts."""

import os
from pathlib import Path

import places
import pytest
from cases import ALL_CONTESTANTS, CASES, Scale, chosen_cases
from contestant import OURS
from contestants_of_tables import CONTESTANTS, FILE_WRITERS
from options import parse_options, scale_of
from topic_data import TopicData

SCALE = Scale(TopicData("bench-big", 1_000, skew=0.5), 2, ALL_CONTESTANTS)


def entries(contestants: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the labels of each case that is measured with these contestants."""
    found = chosen_cases(CASES, Scale(SCALE.data, 2, contestants))
    return {case.name: [entry.label for entry in case.entries] for case in found}


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("--record-bytes 99", "expected --record-bytes from 100 to 10240, found 99"),
        ("--record-bytes 10241", "expected --record-bytes from 100 to 10240, found 10241"),
        ("--skew 1.5", "expected --skew from 0.0 to 0.99, found 1.5"),
        ("--skew -1", "expected --skew from 0.0 to 0.99, found -1.0"),
        ("--skew nan", "expected --skew from 0.0 to 0.99, found nan"),
        ("--skew 0.5 --partitions 1 --cases big", "expected --partitions of 2 or more with --skew, found 1"),
        ("--partitions 0", "expected --partitions of 1 or more, found 0"),
        ("--partitions 1", "expected --partitions of 2 or more for the case hot, found 1"),
        ("--records 0", "expected --records for each of 4 partitions, found 0"),
        ("--records -1", "expected --records for each of 4 partitions, found -1"),
        ("--records 3", "expected --records for each of 4 partitions, found 3"),
        ("--repetitions 0", "expected --repetitions of 1 or more, found 0"),
        ("--cases tiny", "invalid choice: 'tiny'"),
        ("--contestants nobody", "invalid choice: 'nobody'"),
        ("--topic-compression lz4", "invalid choice: 'lz4'"),
        ("--cases nothing hot --contestants flink", "expected a contestant of the cases nothing, hot, found flink"),
        ("--directory /no/such/place", "expected a directory that is there, found /no/such/place, which is none"),
        ("--directory /proc/1/status", "expected a directory that is there, found /proc/1/status, which is none"),
        # Where not even root may write.
        ("--directory /proc", "expected a directory to write to, found /proc: "),
    ],
)
def test_what_cannot_be_measured_is_refused(words: str, reported: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options("", words.split())

    assert ended.value.code == 2
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "--record-bytes 100 --incompressible --topic-compression none --transactional",
        "--record-bytes 10240 --skew 0.99 --topic-compression zstd",
        "--records 4 --repetitions 1",
        "--partitions 1 --cases big small nothing memory",
        "--partitions 1 --contestants flink python",
    ],
)
def test_what_can_be_measured_is_accepted(words: str) -> None:
    parse_options("", words.split())


def test_quick_is_less_unless_options_say_otherwise() -> None:
    quick, reported = (
        parse_options("", ["--quick"]),
        parse_options("", ["--quick", "--records", "50", "--cases", "memory"]),
    )

    assert (quick.records, quick.repetitions, "memory" in quick.cases) == (1_000_000, 2, False)
    assert (reported.records, reported.repetitions, reported.cases) == (50, 2, ["memory"])


def test_every_option_of_the_records_reaches_the_topic() -> None:
    shape = "--records 50 --partitions 2 --record-bytes 300 --skew 0.7"
    form = "--incompressible --topic-compression none --transactional"

    assert scale_of(parse_options("", [*shape.split(), *form.split()])).data == TopicData(
        "bench-big", 50, 2, 300, incompressible=True, compression="none", skew=0.7, transactional=True
    )


def test_a_directory_is_the_same_one_wherever_a_contestant_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse_options("", ["--directory", "."]).directory == tmp_path.resolve()


def test_two_benchmarks_of_one_second_leave_their_results_in_two_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "RESULTS", tmp_path)
    mine = places.new_results()
    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert places.new_results() != mine


def test_without_this_project_the_cases_that_only_it_runs_are_skipped() -> None:
    assert entries(("flink",)) == {
        "big": ["flink"],
        "small": ["flink"],
        "memory": ["flink, 100", "flink, 1,000", "flink, 5,000"],
    }
    assert entries(("python",)) == {"big": ["python"], "small": ["python"]}


def test_with_this_project_alone_no_one_else_runs() -> None:
    found = entries((OURS,))

    assert list(found) == ["big", "small", "nothing", "hot", "memory"]
    assert found["memory"] == [f"{OURS}, 100", f"{OURS}, 1,000", f"{OURS}, 5,000"]


def test_all_that_write_tables_are_compared_with_this_projects_files() -> None:
    taking_part = ("kafka-ingest", "flink", "available-now-delta", "flink-iceberg", "kafka-ingest-delta-s3")
    assert entries(taking_part)["tables"] == [name for name in taking_part if name != "flink"]
    assert "tables" not in entries(("kafka-ingest", "flink"))


def test_all_that_decode_are_compared_with_each_other_and_with_this_projects_raw_bytes() -> None:
    found = entries(("kafka-ingest", "flink", "available-now-json", "kafka-ingest-json", "kafka-ingest-avro"))
    assert found["decoding"] == ["kafka-ingest", "available-now-json", "kafka-ingest-json", "kafka-ingest-avro"]
    assert "decoding" not in entries(("kafka-ingest", "flink"))


def test_each_format_is_read_from_a_topic_of_its_own() -> None:
    [case] = chosen_cases(["decoding"], SCALE)

    others = {OURS: "json", "kafka-ingest-json-delta-s3": "json"}
    assert {entry.contestant: entry.data.form for entry in case.entries} == others | {
        f"{actor}-{form}": form
        for actor, form in [
            *(("kafka-ingest", form) for form in ("json", "avro", "protobuf")),
            *(
                (peer, form)
                for peer in ("available-now-defaults", "available-now", "flink")
                for form in ("json", "avro")
            ),
        ]
    }
    assert sorted(data.name for data in case.topics()) == ["bench-avro", "bench-json", "bench-protobuf"]


@pytest.mark.parametrize("name", ["big", "tables"])
def test_every_contestant_takes_part_in_each_repetition_and_follows_now_one_and_now_another(name: str) -> None:
    [case] = chosen_cases([name], SCALE)
    orders = [[entry.label for entry in case.in_turn(repetition)] for repetition in range(1, 6)]
    labels = [
        each
        for each in ALL_CONTESTANTS
        if each == OURS or ((each in FILE_WRITERS) == (name == "big") and not CONTESTANTS[each].decodes)
    ]

    assert [sorted(order) for order in orders] == [sorted(labels)] * 5
    for label in labels:
        followed = [order[order.index(label) - 1] for order in orders if order[0] != label]
        assert max(followed.count(other) for other in followed) <= 2, followed


def test_cases_that_spread_the_records_themselves_do_so_whatever_skew_is_asked_for() -> None:
    cases = {case.name: case for case in chosen_cases(CASES, SCALE)}

    assert {name: [topic.skew for topic in case.topics()] for name, case in cases.items()} == {
        "big": [0.5],
        "small": [0.5],
        "tables": [0.5],
        "small-tables": [0.5],
        "decoding": [0.5, 0.5, 0.5],
        "nothing": [0.5],
        "hot": [0.0, 0.9],
        "memory": [0.0],
    }
