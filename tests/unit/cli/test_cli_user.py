"""`stan user`: the rights of a file's users."""

import json

import pytest
from typer.testing import CliRunner

from stan.cli.main import app

TEXT = """
streaming {
  store: memory
  permissions {
    users: [ { user: alice, password: a-secret }, { user: bob, password: b-secret, clients: ["bob-*"] } ]
    allow: [
      { user: alice, publish: ["orders.>"], subscribe: ["orders.>"] }
      { user: bob, client: "bob-*", subscribe: ["orders.eu"], durable: ["orders.eu"] }
      { subscribe: ["news"] }
    ]
  }
}
"""


@pytest.fixture
def stan(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text(TEXT)

    def run(*arguments, code=0, text=TEXT):
        file.write_text(text)
        done = CliRunner().invoke(app, ["user", *arguments], env={"STAN_CONFIG": str(file)})
        assert done.exit_code == code, done.output
        return done.stdout + done.stderr

    return run


def test_users_are_listed_with_their_rights_and_without_their_secrets(stan):
    text = stan("list")
    assert "secret" not in text
    users = {user["name"]: user for user in json.loads(stan("list", "--json"))["users"]}
    assert users["alice"]["rights"] == ["publish orders.>", "subscribe orders.>", "subscribe news"]
    assert users["bob"]["rights"] == ["subscribe orders.eu as bob-*", "durable orders.eu as bob-*", "subscribe news"]
    assert (users["alice"]["clients"], users["bob"]["clients"]) == ([], ["bob-*"])


def test_a_question_about_a_right_has_an_answer_and_a_reason(stan):
    assert "alice may publish to orders.x: " in stan("can", "alice", "publish", "orders.x")
    assert ":7" in stan("can", "alice", "publish", "orders.x")
    assert "alice may not publish to news." in stan("can", "alice", "publish", "news", code=1)
    assert "alice may not change orders.eu." in stan("can", "alice", "admin_write", "orders.eu", code=1)
    assert "Client ids that may: bob-*" in stan("can", "bob", "subscribe", "orders.eu", code=1)
    assert "bob as bob-7 may read orders.eu" in stan("can", "bob", "subscribe", "orders.eu", "--client-id", "bob-7")
    assert "may not connect" in stan("can", "bob", "subscribe", "news", "--client-id", "me", code=1)
    assert "alice may read orders.>" in stan("can", "alice", "subscribe", "orders.>")
    assert "alice may not read >" in stan("can", "alice", "subscribe", ">", code=1)


def test_all_that_is_wrong_with_a_question_is_said_at_once(stan):
    told = stan("can", "eve", "fly", "a..b", code=2)
    assert "RIGHT is one of publish, subscribe," in told
    assert "Nobody is the user 'eve': alice, bob." in told
    assert "'a..b' is no pattern" in told
    assert "everybody may do everything" in stan("list", code=1, text="streaming { store: memory }")
    assert 'not "rules"' in stan("list", code=1, text=TEXT.replace("allow:", "rules:"))
