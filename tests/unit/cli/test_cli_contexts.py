"""Contexts: kept so that nobody else reads them, below the environment and options, and secrets never shown."""

import json
import stat

import pytest
from typer.testing import CliRunner

from stan.cli.main import app
from stan.cli.support import contexts
from stan.cli.support.common import CliError, Target
from stan.cli.support.options import resolved


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("STAN_CONTEXT", "STAN_SERVER", "STAN_CLUSTER_ID", "STAN_USER", "STAN_PASSWORD", "STAN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def stan(*arguments, **more):
    return CliRunner().invoke(app, ["context", *arguments], **more)


def test_a_context_is_kept_for_its_owner_alone_and_the_first_is_in_use(home):
    done = stan("add", "prod", "-s", "nats://10.0.0.1:4222", "-c", "orders", "--user", "ops", "--password", "hush")

    assert done.exit_code == 0
    path = home / "stan" / "contexts" / "prod.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert contexts.used() == "prod"
    assert resolved({}) == Target(server="nats://10.0.0.1:4222", cluster_id="orders", user="ops", password="hush")  # noqa: S106


def test_secrets_are_never_shown():
    stan("add", "prod", "-s", "nats://ops:hush@10.0.0.1:4222,nats://tok@10.0.0.2", "--token", "hush")

    for command in (("list",), ("show",), ("list", "--json"), ("show", "--json")):
        done = stan(*command)
        assert done.exit_code == 0
        assert "hush" not in done.output
        assert "tok@" not in done.output
    assert json.loads(stan("show", "--json").stdout)["token"] == contexts.HIDDEN


def test_options_win_over_the_environment_and_that_over_a_context(monkeypatch):
    stan("add", "prod", "-s", "nats://context", "-c", "context")
    stan("add", "other", "-s", "nats://other", "-c", "other")

    assert resolved({"server": "nats://option"}).server == "nats://option"
    assert resolved({}, "other").cluster_id == "other"
    monkeypatch.setenv("STAN_SERVER", "nats://environment")
    done = CliRunner().invoke(app, ["channel", "list", "--context", "nobody"])
    assert done.exit_code == 2
    assert "There are: other, prod" in done.output


def test_who_logs_in_otherwise_leaves_the_contexts_login_alone(home):
    creds = home / "a.creds"
    creds.write_text("x")
    stan("add", "prod", "--user", "ops", "--password", "hush")

    assert resolved({"token": "t"}) == Target(token="t")  # noqa: S106
    assert resolved({"creds": str(creds)}) == Target(creds=creds)
    assert resolved({"password": "new"}) == Target(user="ops", password="new")  # noqa: S106


def test_all_that_cannot_be_is_told_at_once():
    with pytest.raises(CliError) as told:
        resolved({"creds": "/nowhere/a", "tls_key": "/nowhere/k", "password": "p"})
    assert [word in str(told.value) for word in ("--creds", "--tls-key", "--tls-cert", "--user")] == [True] * 4
    assert told.value.code == 2


def test_edit_use_and_remove():
    stan("add", "a", "-s", "nats://a")
    stan("add", "b", "-s", "nats://b", "--use")
    assert contexts.used() == "b"
    assert stan("edit", "a", "-s", "nats://c", "--user", "ops").exit_code == 0
    assert contexts.load("a") == {"server": "nats://c", "user": "ops"}
    assert stan("edit", "a", "--user", "").exit_code == 0
    assert contexts.load("a") == {"server": "nats://c"}
    assert stan("remove", "b").exit_code == 2  # nobody to ask
    assert stan("remove", "b", "--yes").exit_code == 0
    assert (contexts.used(), contexts.names()) == ("", ["a"])
    assert stan("use", "b").exit_code == 2
    assert stan("add", "a").exit_code == 2
    assert stan("list", "--names").stdout == "a\n"


def test_a_damaged_file_is_named_and_others_still_work(home):
    stan("add", "good", "-s", "nats://a")
    path = home / "stan" / "contexts" / "bad.json"
    path.write_text('{"server": 1, "colour": "red"}')

    done = stan("show", "bad")
    assert done.exit_code == 2
    assert "unknown field 'colour'; server is no text" in done.output
    assert stan("list").exit_code == 0


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_impossible_names_are_refused(name):
    assert stan("add", name, "-s", "nats://a").exit_code == 2


def test_an_editor_changes_a_context_or_nothing(home, monkeypatch):
    stan("add", "a", "-s", "nats://a")
    script = home / "edit.sh"
    script.write_text('#!/bin/sh\nsed -i "s/nats:..a/nats:\\/\\/z/" "$1"\n')
    script.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(script))
    assert stan("edit", "a").exit_code == 0
    assert contexts.load("a")["server"] == "nats://z"
    monkeypatch.setenv("EDITOR", "false")
    assert stan("edit", "a").exit_code == 1
