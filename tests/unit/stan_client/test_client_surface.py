"""How much of the client programs see: a few names, all of them documented."""

import pytest
import stan_client
from stan_client.sessions import ClientOptions, Sessions
from stan_client.transport.session import SessionOptions

NAMES_MAX = 21


def public(thing):
    return [name for name in dir(thing) if not name.startswith("_")]


def test_a_client_has_few_public_names() -> None:
    client = stan_client.Client(Sessions(SessionOptions("c", "me"), ClientOptions()))
    assert len(public(client)) <= NAMES_MAX, public(client)
    assert public(client) == public(stan_client.Client), "what it has by itself is private"


@pytest.mark.parametrize(
    "kind",
    [
        *(stan_client.Client, stan_client.Direct, stan_client.Batches, stan_client.Bookmarks, stan_client.Channels),
        *(stan_client.GroupBatch, stan_client.GroupConsumer, stan_client.PartedSubscription, stan_client.PublishWindow),
        *(stan_client.Subscription, stan_client.Transactions),
    ],
    ids=lambda kind: kind.__name__,
)
def test_what_programs_see_is_documented(kind) -> None:
    assert [name for name in public(kind) if not getattr(kind, name).__doc__] == []


def test_a_parted_subscription_has_what_a_subscription_has() -> None:
    of_one_channel = {"inboxes", "last_sequence"}
    assert (
        set(public(stan_client.PartedSubscription)) - {"parts"}
        == set(public(stan_client.Subscription)) - of_one_channel
    )
