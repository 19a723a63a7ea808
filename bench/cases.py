"""What is measured: each case is a comparison of entries, and each entry one contestant on one topic."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from contestant import OURS
from contestants_of_tables import CONTESTANTS, FILE_WRITERS
from order_values import FORMATS, JSON
from topic_data import TopicData

SMALL_RECORDS = 2_000
HOT_SHARE = 0.9
MEMORY_SHARES = (0.1, 1, 5)
"""Of the number of records that is asked for: 1, 10 and 50 million."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a case's table. Without ``end_offsets`` everything in the topic is read.

    ``caught_up``: the feed has read all of it before, and only the next run is measured.
    """

    label: str
    contestant: str
    data: TopicData
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    caught_up: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Entries that are compared with each other; ``reference`` is the label that the others are set in relation to."""

    name: str
    title: str
    entries: Sequence[Entry]
    reference: str
    repetitions: int

    def topics(self) -> list[TopicData]:
        """Return the topics that it reads."""
        return list({entry.data.name: entry.data for entry in self.entries}.values())

    def in_turn(self, repetition: int) -> list[Entry]:
        """Return the entries in another order for each repetition: none always follows the same one, and its load.

        Rows of a Williams design (1949): in as many repetitions as there are entries, each follows each other one once
        where their number is even, and at most twice where it is odd.
        """
        count = len(self.entries)
        zigzag = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(count)]
        return [self.entries[(each + repetition) % count] for each in zigzag]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    data: TopicData
    repetitions: int
    contestants: Collection[str]

    @property
    def has_ours(self) -> bool:
        """Whether this project takes part."""
        return OURS in self.contestants

    @property
    def small_data(self) -> TopicData:
        """Some thousand records, which show what is paid before the first one."""
        return replace(self.data, name="bench-small", records=SMALL_RECORDS)

    def of_files(self, data: TopicData) -> list[Entry]:
        """Return the contestants that write files, on one topic."""
        return [Entry(name, name, data) for name in self.contestants if name in FILE_WRITERS]

    def of_tables(self, data: TopicData) -> list[Entry]:
        """Return the contestants that write tables, on one topic, and this project's files to compare with."""
        tables = [name for name in self.contestants if name not in FILE_WRITERS and not CONTESTANTS[name].decodes]
        files = [OURS] if self.has_ours and tables else []
        return [Entry(name, name, data) for name in (*files, *tables)]


def big(scale: Scale) -> Case:
    """Compare all that write files on the large topic."""
    return Case("big", f"{scale.data.records:,} records", scale.of_files(scale.data), OURS, scale.repetitions)


def small(scale: Scale) -> Case:
    """Compare the same on some thousand records."""
    return Case("small", f"{SMALL_RECORDS:,} records", scale.of_files(scale.small_data), OURS, scale.repetitions)


def tables(scale: Scale) -> Case:
    """Compare all that write tables on the large topic."""
    title = f"{scale.data.records:,} records into tables"
    return Case("tables", title, scale.of_tables(scale.data), OURS, scale.repetitions)


def small_tables(scale: Scale) -> Case:
    """Compare the same on some thousand records."""
    title = f"{SMALL_RECORDS:,} records into tables"
    return Case("small-tables", title, scale.of_tables(scale.small_data), OURS, scale.repetitions)


def decoding(scale: Scale) -> Case:
    """Compare all that decode records of ten fields, each format on a topic of its own, and this project's raw bytes.

    All take turns in one comparison, so that any two figures in it may be compared.
    """
    topics = {form: replace(scale.data, name=f"bench-{form}", form=form) for form in FORMATS}
    names = [name for name in scale.contestants if CONTESTANTS[name].decodes]
    raw = [Entry(OURS, OURS, topics[JSON])] if scale.has_ours and names else []
    entries = [*raw, *(Entry(name, name, topics[CONTESTANTS[name].decodes]) for name in names)]
    title = f"{scale.data.records:,} records of ten fields, decoded"
    return Case("decoding", title, entries, OURS, scale.repetitions)


def nothing(scale: Scale) -> Case:
    """Run this project where nothing is new."""
    entries = [Entry(OURS, OURS, scale.small_data, caught_up=True)] if scale.has_ours else []
    return Case("nothing", "Nothing new", entries, OURS, scale.repetitions)


def hot(scale: Scale) -> Case:
    """Run this project where one partition holds nearly everything."""
    even = replace(scale.data, name="bench-even", skew=0.0) if scale.data.skew else scale.data
    skewed = replace(scale.data, name="bench-hot", skew=HOT_SHARE)
    entries = [Entry("evenly spread", OURS, even), Entry(f"{HOT_SHARE:.0%} in one partition", OURS, skewed)]
    title = f"A hot partition, {OURS}, {scale.data.records:,} records"
    return Case("hot", title, entries if scale.has_ours else [], "evenly spread", scale.repetitions)


def memory(scale: Scale) -> Case:
    """Measure the peak of memory as the number of records grows: parts of one topic, Flink and this project."""
    sizes = [max(scale.data.partitions, round(scale.data.records * share)) for share in MEMORY_SHARES]
    data = replace(scale.data, name="bench-memory", records=sizes[-1], skew=0.0)
    entries = [
        Entry(f"{actor}, {records:,}", actor, data, data.first_offsets(records))
        for actor in (OURS, "flink")
        if actor in scale.contestants
        for records in sizes
    ]
    return Case("memory", "Memory by number of records, evenly spread", entries, f"{OURS}, {sizes[0]:,}", 1)


CASES: Mapping[str, Callable[[Scale], Case]] = {
    "big": big,
    "small": small,
    "tables": tables,
    "small-tables": small_tables,
    "decoding": decoding,
    "nothing": nothing,
    "hot": hot,
    "memory": memory,
}


def chosen_cases(names: Collection[str], scale: Scale) -> list[Case]:
    """Return the cases of these names that have at least one contestant."""
    return [case for name, make in CASES.items() if name in names and (case := make(scale)).entries]


ALL_CONTESTANTS = tuple(CONTESTANTS)
