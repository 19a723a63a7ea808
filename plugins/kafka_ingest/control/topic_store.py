"""What files for many topics came to: the topics that their plans found, and the feeds that these became."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from kafka_ingest.control.database import Store, transaction
from kafka_ingest.control.schema import feed, file_topic, topics_file
from kafka_ingest.model.control_rows import FilePlan, SeenTopic, TopicMemory
from kafka_ingest.model.documents import read_row


class TopicStore(Store):
    """The rows of files for many topics. No step of the protocol depends on them."""

    def topic_memory(self) -> TopicMemory:
        """Return what plans of all files have found, and which feeds there are."""
        with self.reading() as connection:
            plans = [read_row(FilePlan, row) for row in connection.execute(select(topics_file)).mappings()]
            seen = [read_row(SeenTopic, row) for row in connection.execute(select(file_topic)).mappings()]
            planned = connection.execute(select(feed.c.name, feed.c.topics))
            return TopicMemory(tuple(plans), tuple(seen), tuple((name, frozenset(topics)) for name, topics in planned))

    def note_topics(self, plan: FilePlan, seen: Sequence[SeenTopic]) -> None:
        """Note what a plan of a file has found, and forget those of its topics that are not among it.

        Of two plans at once the later one counts; a topic that became a feed is never forgotten, and how old a topic
        is stays as it was noted first.
        """
        try:
            self._note_topics(plan, seen)
        except IntegrityError:  # of two first plans the other was faster, and its row is there now
            self._note_topics(plan, seen)

    def _note_topics(self, plan: FilePlan, seen: Sequence[SeenTopic]) -> None:
        of_file, topic = file_topic.c.file == plan.file, file_topic.c.topic
        with transaction(self._engine, "write") as connection:
            values = {"planned_at": plan.planned_at, "pattern": plan.pattern}
            # Its row's lock orders plans of one file.
            if not connection.execute(
                update(topics_file).where(topics_file.c.file == plan.file).values(values)
            ).rowcount:
                connection.execute(insert(topics_file).values(file=plan.file, **values))
            known = {row.topic: row for row in connection.execute(select(file_topic).where(of_file))}
            if new := [asdict(each) for each in seen if each.topic not in known]:
                connection.execute(insert(file_topic), new)
            for each in seen:
                was = known.get(each.topic)
                now = {"conn_id": each.conn_id, "topic_id": each.topic_id, "feed": each.feed}
                if was is not None and now != {name: getattr(was, name) for name in now}:
                    connection.execute(update(file_topic).where(of_file, topic == each.topic).values(now))
            for name in known.keys() - {each.topic for each in seen}:
                connection.execute(delete(file_topic).where(of_file, topic == name, file_topic.c.feed.is_(None)))
