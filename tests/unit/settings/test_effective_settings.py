"""The settings in force, as `.options` and the dashboard show them: values, where they come from, and never a secret."""

from dataclasses import fields, is_dataclass

import pytest

from stan import config as config_module
from stan.config import ChannelLimits, Config
from stan.settings.nats_conf import parse as parse_conf
from stan.settings.settings import parse
from stan.settings.settings_reader import SettingsReader
from tests.unit.settings.test_stream_conf import serve

HIDDEN = "swordfish"


def table(config: Config) -> dict[str, tuple[str, str]]:
    """Value and source by name; each name once."""
    found = {setting.name: (setting.value, setting.source) for setting in config.shown()}
    assert len(found) == len(config.shown())
    return found


def test_settings_are_shown_with_value_and_source():
    shown = table(serve("store_limits {\n max_msgs: 5, max_age: '90s'\n}\nhbi: 2s\nstore: FILE, dir: x", "-hbi", "3s"))
    assert shown["max_msgs"] == ("5", "s.conf:2")
    assert shown["max_age"] == ("1m30s", "s.conf:2")
    assert shown["hb_interval"] == ("3s", "flag")
    assert shown["hb_timeout"] == ("10s", "default")
    assert shown["replace_durable"] == ("false", "default")
    assert shown["raft_groups"] == ("1", "default")
    assert shown["port"] == ("4222", "default")


CLASSES = (ChannelLimits, *(each for each in vars(config_module).values() if is_dataclass(each)))


@pytest.mark.parametrize("of", dict.fromkeys(CLASSES), ids=lambda of: of.__name__)
def test_a_field_that_is_an_option_has_the_default_of_its_flag(of):
    reader = SettingsReader({})
    for each in fields(of):
        if "option" in each.metadata:
            name, bounds = each.metadata["option"]
            assert reader.option(each.type, name, each.default, *bounds) == each.default, each.name
    assert reader.complaints == []


def test_limits_of_single_channels_are_shown():
    shown = table(serve('limits {\n channels {\n "a.>" {\n mm: 3\n ma: "1h"\n}}}'))
    assert shown["channels.a.>.max_msgs"] == ("3", "s.conf:4")
    assert shown["channels.a.>.max_age"] == ("1h0m0s", "s.conf:5")


def test_options_without_effect_are_not_in_force():
    assert (
        not {"cluster_log_cache_size", "help", "signal"} & table(parse(["-cluster_log_cache_size", "1"]).config).keys()
    )


@pytest.mark.parametrize(
    "text",
    [
        f"password: {HIDDEN}",
        f"token: {HIDDEN}",
        f"ns: 'nats://me:{HIDDEN}@host:4222'",
        f"ns: 'nats://{HIDDEN}@host:4222'",
        f"authorization {{ user: u, password: {HIDDEN} }}\nstreaming {{}}",
    ],
)
def test_secrets_of_the_file_are_masked(text):
    config = serve(text)
    assert HIDDEN not in repr(config.shown())
    assert HIDDEN not in repr(config)


def test_secrets_of_flags_are_masked():
    shown = table(
        parse(["-pass", HIDDEN, "-auth", HIDDEN, "-routes", f"nats://u:{HIDDEN}@h:1", "-cluster", "x"]).config
    )
    assert shown["pass"] == shown["auth"] == ("[REDACTED]", "flag")
    assert HIDDEN not in repr(shown)


@pytest.mark.parametrize("name", ["STAN_ENCRYPTION_KEY", "NATS_STREAMING_ENCRYPTION_KEY"])
def test_key_of_the_environment_wins_where_encryption_is_on(name):
    assert table(parse(["-encrypt", "-encryption_key", "x"], environ={name: HIDDEN}).config)["encryption_key"] == (
        "[REDACTED]",
        "environment",
    )
    assert table(parse([], environ={name: HIDDEN}).config)["encryption_key"] == ("", "default")


def test_empty_key_in_the_file_switches_encryption_on_as_any_other():
    file = "s.conf"

    def of(text: str, **environ: str) -> Config:
        return parse(["-sc", file], lambda _: parse_conf(text.encode(), file), environ).config

    given = of("encryption_key: ''", NATS_STREAMING_ENCRYPTION_KEY=HIDDEN)
    assert given.encryption is not None
    assert given.encryption.key == HIDDEN.encode()
    assert table(given)["encrypt"] == ("true", f"{file}:1")
    assert of("encryption_key: ''").validate() == ["encryption key required: give it in NATS_STREAMING_ENCRYPTION_KEY"]
    assert of("encryption_key: '', encrypt: false").encryption is None


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("http: 8222", [], ("0.0.0.0", "environment")),  # noqa: S104 - as the image says
        ('http: "127.0.0.1:8222"', [], ("127.0.0.1", "f:1")),
        ("http: 8222", ["--http_host", "::1"], ("::1", "flag")),
    ],
)
def test_address_of_the_pages_that_the_environment_names_is_a_default(text, flags, expected):
    environ = {"STAN_HTTP_HOST": "0.0.0.0"}  # noqa: S104
    config = parse(["-c", "f", *flags], lambda _: parse_conf(text.encode(), "f"), environ).config
    assert config.monitor.host == expected[0]
    assert table(config)["http_host"] == expected
