"""What a topic's records of ten fields amount to once they are decoded: known from how they were made."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from order_templates import Template, numbered, templates
from order_values import FIELDS
from positions import Numbers, Positions, hashes, places_of, values_of
from topic_data import TopicData


def decoded(data: TopicData, ends: Mapping[int, int]) -> Positions:
    """Return the rows before the given end offsets, and the checksum of their positions and values.

    It is the same in each format.
    """
    return values_of(_parts(data, ends, templates(data)))


def _parts(
    data: TopicData, ends: Mapping[int, int], made: Sequence[Template]
) -> Iterator[tuple[Numbers, Sequence[Numbers]]]:
    columns = [hashes(template.rest[field] for template in made) for field in range(len(FIELDS) - 1)]
    for (partition, count), (partitions, offsets) in zip(data.counts().items(), data.parts(ends), strict=True):
        batches = list(numbered(data, partition, count, range(len(made))))
        chosen = np.fromiter(chain.from_iterable(batch for _, batch in batches), dtype=np.int64, count=count)
        chosen = chosen[: len(offsets)]
        first = batches[0][0] if batches else 0
        orders = np.arange(first, first + len(chosen), dtype=np.uint64)
        yield places_of(partitions, offsets), [orders, *(column[chosen] for column in columns)]
