"""``rename-feed``: another name for a feed, which keeps its offsets and history."""

from typing import Annotated

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.errors import WrongUseError
from kafka_ingest.settings.feed import NAME
from kafka_ingest.settings.form_fields import Text
from kafka_ingest.verbs.request import Argument, Call, Deciding, InForm, Request


class Rename(Request):
    """Rename a feed and keep its offsets and history. Then change `name` in its file: until then its runs stop."""

    verb = "rename"
    command = "rename-feed"
    does = "gives a feed another name, and keeps its offsets"
    deciding = Deciding.REASON
    command_names_feed = False

    old: Annotated[str, Argument("The feed's name in the control tables.", "OLD")] = ""
    new: Annotated[str, Argument("Its name in its file from now on.", "NEW")] = ""
    new_name: Annotated[Text, InForm("New name", "The name that the feed's file is to have from now on.", "rename")] = (
        None
    )
    old_name: Annotated[
        Text, InForm("Or its old name", "Where the file has the new name already: the one before.", "rename")
    ] = None

    def answer(self, call: Call) -> Answer:
        """Rename a feed; by form the one that was chosen, or another to its name, where its file has been changed."""
        old, new = self.old, self.new
        if not call.is_shell:
            if (self.new_name is None) == (self.old_name is None):
                raise call.missing("either new_name or old_name")
            old, new = self.old_name or call.feed_name, self.new_name or call.feed_name
        control, decided = call.control, call.decided
        feed = known_feed(control, old)
        if control.feed(new) is not None:
            raise WrongUseError(
                f"the control tables know a feed {new!r} already; a name is one feed's. Nothing was changed."
            )
        if not NAME.fullmatch(new):
            raise WrongUseError(f"expected a name that a feed file can have, found {new!r}. Nothing was changed.")
        executed = decided is not None
        if decided is not None:
            control.rename_feed(feed, new, reason=decided.reason, actor=decided.actor)
        text = f"feed {old} {'is now' if executed else 'would be'} {new}; its offsets and batches are kept"
        document = {"feed_id": str(feed.feed_id), "was": old, "is": new, "executed": executed}
        return Answer(document, [Line(text)], only_shown=not executed)
