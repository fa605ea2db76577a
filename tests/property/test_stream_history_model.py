"""A stream that keeps so many messages of each subject and a model of one: whatever is published, deleted, purged and expires,
readers see the same, before a restart and behind it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import jetstream as js
from tests.kit.consumers import consumer, pull, served

SUBJECTS = ("b.x", "b.y", "b.z")
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(("publish",) * 6 + ("roll up", "delete", "purge", "restart")), st.integers(0, 11)),
    max_size=25,
)


class Model:
    """Messages of each subject, the newest so many; deleted ones count."""

    def __init__(self, history):
        self.history = history
        self.stored = {subject: [] for subject in SUBJECTS}
        self.gone = set()
        self.last = 0

    def store(self, subject, *, alone=False):
        self.last += 1
        known = [] if alone else self.stored[subject]
        self.stored[subject] = [*known, self.last][-self.history :]

    def of(self, subject):
        return [at for at in self.stored[subject] if at not in self.gone]

    @property
    def shown(self):
        return sorted(at for subject in SUBJECTS for at in self.of(subject))


def compare(broker, model, round_):
    told = js.api(broker, "STREAM.INFO.B", {"subjects_filter": ">"})["state"]
    assert told["messages"] == len(model.shown)
    assert told.get("subjects", {}) == {one: len(model.of(one)) for one in SUBJECTS if model.of(one)}
    for subject in SUBJECTS:
        answer = js.api(broker, "STREAM.MSG.GET.B", {"last_by_subj": subject})
        assert answer.get("message", {}).get("seq") == max(model.of(subject), default=None)
    for sequence in range(1, model.last + 1):
        answer = js.api(broker, "STREAM.MSG.GET.B", {"seq": sequence})
        assert ("error" not in answer) == (sequence in model.shown)
    name = f"reader{round_}"
    assert consumer(broker, name, "B")["num_pending"] == len(model.shown)
    found = pull(broker, name, 100, "B", no_wait=True)
    assert [one.sequence for one in found if not one.status] == model.shown


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), OPERATIONS)
def test_readers_see_what_the_model_has(history, operations):
    broker, model = served(("b.*",), "B", max_msgs_per_subject=history, allow_rollup_hdrs=True), Model(history)
    for operation, number in operations:
        subject = SUBJECTS[number % len(SUBJECTS)]
        if operation in ("publish", "roll up"):
            fields = [("Nats-Rollup", "sub")] if operation == "roll up" else ()
            model.store(subject, alone=operation == "roll up")
            assert js.publish(broker, subject, b"", fields=fields)[0]["seq"] == model.last
        elif operation == "delete" and model.shown:
            sequence = model.shown[number % len(model.shown)]
            model.gone.add(sequence)
            assert js.api(broker, "STREAM.MSG.DELETE.B", {"seq": sequence})["success"]
        elif operation == "purge":
            keep = number // 4
            gone = model.of(subject)[: -keep or None]
            model.gone.update(gone)
            asked = {"filter": subject, "keep": keep}
            assert js.api(broker, "STREAM.PURGE.B", asked)["purged"] == len(gone)
        elif operation == "restart":
            broker.restart()
    compare(broker, model, 1)
    broker.restart()
    compare(broker, model, 2)
