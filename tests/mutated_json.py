"""Documents that are nearly good: parts of them left out, moved, or replaced by what nobody expects there."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from repeatable_random import repeatable_random


def copied(node: Any) -> Any:
    """Return a document that shares nothing with another."""
    return json.loads(json.dumps(node))


def places(node: Any) -> list[tuple[Any, Any]]:
    """Return each object and list in a document with each of its keys."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [place for key in keys for place in places(node[key])]


def mutated(
    random_state: int, count: int, good: Sequence[Any], junk: Sequence[Any], keys: Sequence[str]
) -> Iterator[tuple[Any, Any]]:
    """Yield good documents, each with what one to three changes make of it.

    ``junk``: what stands in the place of something else; ``keys``: names under which it is put, too.
    """
    chance = repeatable_random(random_state)
    for _ in range(count):
        before = chance.choice(good)
        node = copied(before)
        for _ in range(chance.randrange(1, 4)):
            if not (found := places(node)):
                break
            holder, key = chance.choice(found)
            match chance.randrange(4), holder:
                case 0, _:
                    del holder[key]
                case 1, dict():
                    holder[chance.choice(keys)] = copied(chance.choice(junk))
                case 2, _:
                    other, other_key = chance.choice(found)
                    holder[key] = copied(other[other_key])
                case _:
                    holder[key] = copied(chance.choice(junk))
        yield before, node
