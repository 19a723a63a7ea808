"""The benchmark's results as people read them: each figure from its measurements, no contestant left out silently."""

from dataclasses import replace

from cases import Case, Entry
from measurement import Measurement
from report import Results, peers_by_format, table, time_besides_spark
from topic_data import TopicData

DATA = TopicData("bench-big", 1_000)
CASE = Case("big", "1,000 records", [Entry(name, name, DATA) for name in ("kafka-ingest", "flink")], "kafka-ingest", 3)
RUN = Measurement(
    case="big",
    label="kafka-ingest",
    contestant="kafka-ingest",
    repetition=1,
    order=0,
    load=0.5,
    seconds=2.0,
    user_s=1.5,
    system_s=0.5,
    broker_s=0.25,
    store_s=None,
    commit_s=None,
    peak_mb=100.0,
    child_s=1.5,
    sampling_s=0.0,
    output_bytes=3_000_000,
    files=4,
    rows=1_000,
    checksum="00ff",
)


def runs(label: str, *seconds: float) -> list[Measurement]:
    return [replace(RUN, label=label, contestant=label, seconds=each) for each in seconds]


def line_of(label: str, lines: list[str]) -> dict[str, str]:
    """Return the cells of a contestant's line by the names of their columns."""
    [line] = [line for line in lines if line.startswith(f"| {label} |")]
    return dict(zip(cells_of(lines[0]), cells_of(line), strict=True))


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def results(*measurements: Measurement, left_out: dict[tuple[str, str], str] | None = None) -> Results:
    return Results({"machine": "a computer"}, [CASE], measurements, left_out or {}, complete=True)


def test_a_line_has_median_minimum_and_maximum_of_all_repetitions_in_whatever_order() -> None:
    cells = line_of("kafka-ingest", table(CASE, {"kafka-ingest": runs("kafka-ingest", 9.0, 2.0, 3.0)}))

    assert cells["seconds"] == "3.00 (2.00 to 9.00)"


def test_of_an_even_number_the_median_is_between_the_middle_ones() -> None:
    found = line_of("flink", table(CASE, {"flink": runs("flink", 1.0, 2.0, 4.0, 9.0)}))

    assert found["seconds"] == "3.00 (1.00 to 9.00)"


def test_every_figure_has_its_median_minimum_and_maximum_and_processor_time_the_brokers_beside_it() -> None:
    found = [
        replace(RUN, user_s=user, broker_s=broker, peak_mb=peak, output_bytes=size)
        for user, broker, peak, size in [
            (1.0, 0.1, 100.0, 3_000_000),
            (2.0, 0.9, 1_200.0, 1_000_000),
            (7.0, 0.4, 90.0, 2_000_000),
        ]
    ]

    cells = line_of("kafka-ingest", table(CASE, {"kafka-ingest": found}))

    assert (cells["CPU s"], cells["broker CPU s"]) == ("2.5 (1.5 to 7.5)", "0.40 (0.10 to 0.90)")
    assert (cells["peak MB"], cells["output MB"]) == ("100 (90 to 1,200)", "2.00 (1.00 to 3.00)")


def test_a_figure_that_only_some_have_is_empty_for_the_others() -> None:
    ours = [replace(RUN, store_s=store, commit_s=commit) for store, commit in [(1.0, 0.25), (0.0, 0.0)]]

    lines = table(CASE, {"kafka-ingest": ours, "flink": runs("flink", 3.0)})

    names = "S3 server CPU s", "commit s"
    assert [line_of("kafka-ingest", lines)[name] for name in names] == ["0.50 (0.00 to 1.00)", "0.12 (0.00 to 0.25)"]
    assert [line_of("flink", lines)[name] for name in names] == ["", ""]


def test_a_figure_that_no_one_has_gets_no_column() -> None:
    assert not {"S3 server CPU s", "commit s"} & line_of("flink", table(CASE, {"flink": runs("flink", 3.0)})).keys()


def test_what_was_the_same_each_time_is_reported_once() -> None:
    assert line_of("flink", table(CASE, {"flink": runs("flink", 3.0, 3.0)}))["seconds"] == "3.00"


def test_what_came_out_is_reported() -> None:
    cells = line_of("kafka-ingest", table(CASE, {"kafka-ingest": [RUN]}))

    reported = cells["output MB"], cells["files"], cells["rows"], cells["checksum"]
    assert reported == ("3.00", "4", "1,000", "`00ff`")


def test_others_are_set_in_relation_to_the_medians_of_the_reference() -> None:
    lines = table(CASE, {"kafka-ingest": runs("kafka-ingest", 2.0, 2.0, 8.0), "flink": runs("flink", 3.0, 3.0, 3.0)})

    assert line_of("kafka-ingest", lines)["times the reference"] == "1.00"
    assert line_of("flink", lines)["times the reference"] == "1.50"
    assert lines[-1] == "Medians of 3, with the smallest and the largest; set in relation to: kafka-ingest."


def test_without_the_reference_there_is_no_relation() -> None:
    lines = table(CASE, {"flink": runs("flink", 3.0)})

    assert line_of("flink", lines)["times the reference"] == ""
    assert "kafka-ingest, the reference, was not measured" in lines[-1]


def test_the_fewest_repetitions_are_reported_where_one_was_interrupted() -> None:
    lines = table(CASE, {"kafka-ingest": runs("kafka-ingest", 2.0, 2.0), "flink": runs("flink", 3.0)})

    assert lines[-1].startswith("Measured once;")


def test_what_was_left_out_is_named_with_its_reason_and_has_no_line() -> None:
    reason = "expected flink to succeed,\n found exit code 1"

    reported = results(
        *runs("kafka-ingest", 2.0), *runs("flink", 3.0), left_out={("big", "flink"): reason}
    ).as_markdown()

    assert "Left out: flink. expected flink to succeed, found exit code 1\n" in reported
    assert "| flink |" not in reported
    assert "| kafka-ingest |" in reported


def test_a_case_that_no_one_finished_is_reported_too() -> None:
    reported = results(left_out={("big", "flink"): "it hung"}).as_markdown()

    assert "Left out: flink. it hung" in reported
    assert "## 1,000 records" not in reported


def test_an_incomplete_benchmark_says_so_first() -> None:
    assert replace(results(RUN), complete=False).as_markdown().startswith("**Not complete")
    assert "Not complete" not in results(RUN).as_markdown()


def test_what_is_spent_beside_spark_is_shown_for_this_project_only() -> None:
    lines = time_besides_spark({"kafka-ingest": [RUN, replace(RUN, seconds=2.5)], "flink": runs("flink", 3.0)})

    assert lines == [
        (
            "- kafka-ingest: Spark 1.50 s, everything but Spark 0.75 (0.50 to 1.00) s, which is 32.5% (25.0% to 40.0%) "
            "of the time"
        ),
        "",
    ]


def test_peers_that_decode_are_set_in_relation_to_this_project_with_the_same_format() -> None:
    seconds = {
        "kafka-ingest": 1.0,
        "kafka-ingest-json": 2.0,
        "kafka-ingest-avro": 4.0,
        "kafka-ingest-protobuf": 5.0,
        "available-now-json": 3.0,
        "flink-json": 5.0,
        "flink-avro": 5.0,
    }

    assert peers_by_format({name: runs(name, each) for name, each in seconds.items()}) == [
        "- json, in times of kafka-ingest-json: available-now-json 1.50, flink-json 2.50",
        "- avro, in times of kafka-ingest-avro: flink-avro 1.25",
        "",
    ]
    assert peers_by_format({"kafka-ingest": runs("kafka-ingest", 1.0), "flink": runs("flink", 1.0)}) == []
