"""What is kept of a published batch permanently, to rebuild lost tables: plan, receipt, origin of its offsets."""

from collections.abc import Mapping
from typing import Any

from kafka_ingest.foundation.foreign_json import moment, read_as_ours, said, whole
from kafka_ingest.model.batch import BatchPlan, canonical_json, require_version
from kafka_ingest.model.event import Event
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt

PUBLISHED_RECEIPT_VERSION = 1


def published_document(published: PublishedReceipt) -> bytes:
    """Return what is kept of a published batch: plan, receipt, and where its offsets came from."""
    return canonical_json(
        {
            "version": PUBLISHED_RECEIPT_VERSION,
            "plan_fingerprint": published.plan.fingerprint,
            "plan": published.plan.as_document(),
            "receipt": published.receipt.as_document(),
            "ledger": [
                {"event_id": event.event_id, "kind": event.kind, "at": event.at.isoformat(), "who": event.actor}
                | {"detail": dict(event.detail)}
                for event in published.ledger
            ],
        }
    )


@read_as_ours()
def published_of(document: Mapping[str, Any]) -> PublishedReceipt:
    """Read back what is kept of a published batch; raises ForeignJsonError where it is damaged."""
    require_version(document, PUBLISHED_RECEIPT_VERSION, "published receipt")
    plan = BatchPlan.from_document(document["plan"])
    if plan.fingerprint != document["plan_fingerprint"]:
        raise ValueError(f"expected plan fingerprint {document['plan_fingerprint']}, found {plan.fingerprint}")
    receipt = Receipt.from_document(document["receipt"])
    if problems := receipt.contradictions(plan):
        raise ValueError("; ".join(problems))
    return PublishedReceipt(plan, receipt, list(map(event_of, document["ledger"])))


def event_of(entry: Mapping[str, Any]) -> Event:
    if not isinstance(entry["detail"], dict):
        raise TypeError(f"expected what a line of the journal says as an object, found {str(entry['detail'])[:100]}")
    at = moment(entry, "at")
    return Event(whole(entry, "event_id"), said(entry, "kind"), at, said(entry, "who"), None, entry["detail"])
