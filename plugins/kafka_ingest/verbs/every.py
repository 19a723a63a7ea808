"""All verbs: those of the form, in the order of its list, and those that are commands only."""

from typing import Final

from kafka_ingest.verbs.abandon import Abandon
from kafka_ingest.verbs.adopt import Adopt
from kafka_ingest.verbs.clean import Clean
from kafka_ingest.verbs.copy_tables import CopyTables
from kafka_ingest.verbs.coverage import Coverage
from kafka_ingest.verbs.dead_letters import DeadLetters, GiveUpDeadLetters
from kafka_ingest.verbs.doctor import Doctor
from kafka_ingest.verbs.expire import Expire
from kafka_ingest.verbs.explain import Explain
from kafka_ingest.verbs.fold import Fold
from kafka_ingest.verbs.listings import Batches, Feeds, Gaps, History
from kafka_ingest.verbs.locate import Locate
from kafka_ingest.verbs.lost import Lost
from kafka_ingest.verbs.mend_statistics import MendStatistics
from kafka_ingest.verbs.mirror import Mirror
from kafka_ingest.verbs.partitions import Partitions
from kafka_ingest.verbs.plan import Plan
from kafka_ingest.verbs.preview import PreviewRecords
from kafka_ingest.verbs.rename import Rename
from kafka_ingest.verbs.request import Request
from kafka_ingest.verbs.reset import Reset
from kafka_ingest.verbs.restore import Restore
from kafka_ingest.verbs.skip import Skip
from kafka_ingest.verbs.status import Status
from kafka_ingest.verbs.topic_changed import TopicChanged
from kafka_ingest.verbs.upgrade import Upgrade
from kafka_ingest.verbs.verify import Verify

IN_ORDER: Final[tuple[type[Request], ...]] = (
    *(Plan, Doctor, Coverage, Locate, Explain, PreviewRecords, DeadLetters),
    *(Skip, Reset, TopicChanged, Abandon, Restore, Mirror, Clean, Lost, GiveUpDeadLetters),
    *(Expire, Fold, MendStatistics, Adopt, Rename, Upgrade),
)
COMMANDS_ONLY: Final[tuple[type[Request], ...]] = (
    *(Feeds, Status, Partitions, Batches, History, Gaps, Verify, CopyTables),
)
VERBS: Final = {verb.verb: verb for verb in IN_ORDER}
