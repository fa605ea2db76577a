"""Settings: what `validate` complains about, URLs of NATS, and secrets that stay out of sight."""

from pathlib import Path

import pytest

from stan import limits as bounds
from stan.config import (
    ChannelLimits,
    ChannelOverride,
    ClusterConfig,
    Config,
    EmbeddedConfig,
    HeartbeatConfig,
    NatsConfig,
    StoreConfig,
    StoreLimits,
    go_duration,
    parse_nats_urls,
)
from stan.errors import ConfigError


def test_default_config_has_original_values_and_no_complaint():
    config = Config()
    assert config.validate() == []
    assert (config.cluster_id, config.discover_prefix) == ("test-cluster", "_STAN.discover")
    assert config.limits.channels == 100
    default = config.limits.for_channel("any")
    assert (default.msgs, default.bytes, default.subscriptions) == (1_000_000, 1_024_000_000, 1000)
    assert (default.age_ns, default.inactivity_ns) == (0, 0)
    beat = config.heartbeat
    assert (beat.interval_ns, beat.timeout_ns, beat.fail_count) == (30_000_000_000, 10_000_000_000, 10)


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        (StoreLimits(channels=-1), "max channels limit cannot be negative (-1)"),
        (StoreLimits(default=ChannelLimits(subscriptions=-2)), "max subscriptions limit cannot be negative (-2)"),
        (StoreLimits(default=ChannelLimits(msgs=-3)), "max messages limit cannot be negative (-3)"),
        (StoreLimits(default=ChannelLimits(bytes=-4)), "max bytes limit cannot be negative (-4)"),
        (StoreLimits(default=ChannelLimits(age_ns=-5_000_000_000)), "max age limit cannot be negative (-5s)"),
        (StoreLimits(default=ChannelLimits(inactivity_ns=-1)), "max inactivity limit cannot be negative (-1ns)"),
    ],
)
def test_negative_limit_is_refused_in_original_words(limits, complaint):
    assert Config(limits=limits).validate() == [complaint]


@pytest.mark.parametrize("name", ["foo.*bar", "foo.**.bar", "foo.>.bar", "foo.", ".foo", "foo/bar"])
def test_invalid_pattern_is_refused_by_name(name):
    limits = StoreLimits(per_channel={name: ChannelOverride(msgs=1)})
    assert Config(limits=limits).validate() == [f'invalid channel name "{name}"']


def test_more_literal_names_than_channels_are_refused():
    both = {"a": ChannelOverride(), "b": ChannelOverride(), "c.*": ChannelOverride(), "d.>": ChannelOverride()}
    text = "too many channels defined (2). The max channels limit is set to 1"
    assert Config(limits=StoreLimits(channels=1, per_channel=both)).validate() == [text]
    assert Config(limits=StoreLimits(channels=2, per_channel=both)).validate() == []
    assert Config(limits=StoreLimits(channels=0, per_channel=both)).validate() == []


def test_all_complaints_come_at_once():
    config = Config(
        cluster_id="a b",
        store=StoreConfig(kind="file", raft_groups=-1),
        limits=StoreLimits(channels=-1),
        heartbeat=HeartbeatConfig(interval_ns=0),
        embedded=EmbeddedConfig(port=70_000),
    )
    complaints = config.validate()
    assert len(complaints) == 6
    assert "for FILE stores, root directory must be specified" in complaints


def test_file_store_with_directory_has_no_complaint():
    assert Config(store=StoreConfig(kind="file", directory=Path("data"))).validate() == []


def clustered(kind="file", directory=Path("data"), **settings):
    return Config(store=StoreConfig(kind=kind, directory=directory), cluster=ClusterConfig(**settings))


def test_cluster_has_eight_groups_and_a_lone_node_one_unless_told():
    assert clustered().store.raft_groups == 8
    assert Config().store.raft_groups == 1
    told = StoreConfig(kind="file", directory=Path("data"), raft_groups=3)
    assert Config(store=told, cluster=ClusterConfig()).store.raft_groups == 3
    assert Config(store=told).store.raft_groups == 3


def test_number_of_groups_is_bounded():
    text = "there must be between 1 and 1024 groups of channels, not 1025"
    assert Config(store=StoreConfig(raft_groups=1025)).validate() == [text]


def test_cluster_needs_a_store_that_lasts_and_its_directory():
    text = "stan: clustering mode not supported with MEMORY store type"
    assert clustered(kind="memory").validate() == [text]
    assert clustered(directory=None).validate() == ["for FILE stores, root directory must be specified"]
    assert clustered().validate() == []


@pytest.mark.parametrize("name", ["a.b", "a b", "*", ">", "", "ä", "a\n", "x" * 256])
def test_names_that_cannot_stand_in_a_subject_are_refused(name):
    complaints = clustered(peers=("a", name, name)).validate()
    assert len(complaints) == 1
    assert complaints[0].startswith("invalid node ID ")
    assert clustered(node_id=name, peers=("a",)).validate() == (complaints if name else [])


def test_names_of_letters_digits_dash_and_underscore_are_taken():
    assert clustered(node_id="Node_1-a", peers=("Node_1-a", "0", "x" * 255)).validate() == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"replica": True, "bootstrap": True}, "a read replica does not vote, so it cannot bootstrap a cluster"),
        ({"join": True, "bootstrap": True}, "a node either joins a running cluster or bootstraps a new one"),
        (
            {"join": True, "peers": ("a",)},
            "a node that joins learns its peers from the running cluster; give either",
        ),
        ({"replicas": 0}, "each group needs at least one replica, not 0"),
        ({"peers": tuple(f"n{number}" for number in range(65))}, "a node has at most 64 peers, not 65"),
    ],
)
def test_settings_of_a_cluster_that_exclude_each_other_are_refused(settings, text):
    assert clustered(**settings).validate() == [text]


def test_all_complaints_about_a_cluster_come_at_once():
    config = clustered("memory", node_id="a.b", peers=("c d",), bootstrap=True, join=True, replica=True, replicas=-1)
    assert len(config.validate()) == 7


def test_node_without_peers_or_bootstrap_joins():
    assert ClusterConfig().joins
    assert ClusterConfig(replica=True).joins
    assert ClusterConfig(join=True).joins
    assert not ClusterConfig(peers=("a",)).joins
    assert not ClusterConfig(bootstrap=True).joins


def test_voters_are_the_peers_and_the_node_itself_unless_it_is_a_replica():
    assert ClusterConfig(peers=("c", "a")).voters("b") == ("a", "b", "c")
    assert ClusterConfig(peers=("c", "b", "a", "a")).voters("b") == ("a", "b", "c")
    assert ClusterConfig(peers=("c", "b", "a"), replica=True).voters("b") == ("a", "c")
    assert ClusterConfig(bootstrap=True).voters("b") == ("b",)


def test_known_limits_stay_bounded(monkeypatch):
    monkeypatch.setattr(bounds, "CHANNEL_LIMITS_CACHED_MAX", 3)
    limits = StoreLimits(per_channel={"a.>": ChannelOverride(msgs=5)})
    for number in range(10):
        assert limits.for_channel(f"a.{number}").msgs == 5
    assert len(limits._known) <= 3


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("nats://localhost:4222", ("nats://localhost:4222",)),
        ("tls://h:1", ("tls://h:1",)),
        ("nats://[::1]:4222", ("nats://[::1]:4222",)),
        ("nats://u:p@a:1, nats://b:2,", ("nats://u:p@a:1", "nats://b:2")),
    ],
)
def test_nats_urls_are_split_as_the_original_does_and_tls_stays_asked_for(text, urls):
    assert parse_nats_urls(text) == urls


@pytest.mark.parametrize("text", ["127.0.0.1:5223", " ", ""])
def test_nats_url_without_scheme_is_malformed(text):
    with pytest.raises(ConfigError, match=f"^malformed url: {text}$"):
        parse_nats_urls(text)


@pytest.mark.parametrize("text", ["nats://127.0.0.1", "nats://[::1]", "nats://host:", "nats://host:port"])
def test_nats_url_without_port_is_refused(text):
    with pytest.raises(ConfigError, match="missing port in address"):
        parse_nats_urls(text)


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1500, "1.5µs"),
        (250_000_000, "250ms"),
        (1_000_000_000, "1s"),
        (1_050_000_000, "1.05s"),
        (60_000_000_000, "1m0s"),
        (5_400_000_000_000, "1h30m0s"),
        (3_600_000_000_001, "1h0m0.000000001s"),
        (-2_000_000_000, "-2s"),
    ],
)
def test_duration_is_shown_as_go_shows_it(nanos, text):
    assert go_duration(nanos) == text


def test_repr_shows_no_secret():
    config = Config(
        nats=NatsConfig(urls=("nats://u:hush@h:1",), password="hush", token="hush"),  # noqa: S106
        embedded=EmbeddedConfig(password="hush", token="hush", extra_args=("--routes=nats://a:hush@b",)),  # noqa: S106
    )
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    "prefix",
    [
        "my.inbox",
        ".",
        "my..inbox.",
        "a b.",
        "*.",
        ">.",
        "_STAN.",
        "_STAN.acks.x.",
        "_INBOX._STAN.",
        "$SYS.",
        "x" * 200 + ".",
    ],
)
def test_reply_prefix_on_which_servers_might_listen_is_refused(prefix):
    (complaint,) = Config(reply_prefixes=(prefix,)).validate()
    assert complaint.startswith(f'invalid reply prefix "{prefix}": ')


def test_reply_prefixes_are_few():
    assert Config(reply_prefixes=("my.inbox.", "_R_.")).validate() == []
    (complaint,) = Config(reply_prefixes=tuple(f"p{number}." for number in range(9))).validate()
    assert complaint == "there may be at most 8 reply prefixes, not 9"
