"""`stan schema` against a fake of the servers: what is sent of a file, what is shown, and how versions are compared."""

import json

import pytest
from stan_protocol.admin_types import Compatibility, SchemaKind, SchemaStatus
from typer.testing import CliRunner

from stan.cli.main import app
from stan.cli.support import session
from tests.kit.fake_operator import FakeDirect

FIRST = b'{"type":"object","properties":{"id":{"type":"integer"}}}'
NEXT = b'{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'


def version(number, text=FIRST, **more):
    asked = {"pattern": "orders", "kind": SchemaKind.JSON, "schema_version": number, "size": len(text), "text": text}
    return SchemaStatus(**(asked | more))


@pytest.fixture(autouse=True)
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    fake = FakeDirect()
    fake.admin.all_schemas = [version(1), version(3, NEXT), version(1, pattern="invoices.*")]
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake.admin


def stan(*arguments):
    return CliRunner().invoke(app, ["schema", *arguments])


def test_schemas_are_listed_and_shown(servers):
    listed = stan("list").output
    assert "invoices.*" in listed
    assert "3 versions." in listed
    assert [one["schema_version"] for one in json.loads(stan("list", "--json").stdout)["schemas"]] == [1, 3, 1]
    assert json.loads(stan("show", "orders").stdout) == json.loads(NEXT)
    assert json.loads(stan("show", "orders", "--number", "1").stdout) == json.loads(FIRST)
    assert "has no version 2, but 1, 3" in stan("show", "orders", "--number", "2").output.replace("\n", " ")
    assert "No schema is registered for x." in stan("show", "x").output
    servers.all_schemas = []
    assert "No schemas." in stan("list").output


def test_files_are_added_and_checked(servers, tmp_path):
    (tmp_path / "order.json").write_bytes(FIRST)
    (tmp_path / "order.avsc").write_bytes(b'"int"')
    assert "is version 3 of the schema of orders" in stan("add", "orders", "order.json", "--yes").output.replace(
        "\n", " "
    )
    assert servers.asked.pop() == ("add_schema", "orders", FIRST, SchemaKind.JSON, "", None)
    stan("add", "a", "order.avsc", "--message", "m", "--compatibility", "full", "--yes")
    assert servers.asked.pop() == ("add_schema", "a", b'"int"', SchemaKind.AVRO, "m", Compatibility.FULL)
    assert stan("add", "orders", "order.json").exit_code != 0, "nobody has confirmed it"
    assert "can be added" in stan("check", "orders", "order.json").output
    servers.complaints = ["does not read version 1: /id: is gone"]
    done = stan("check", "orders", "order.json")
    assert (done.exit_code, "It does not read version 1: /id: is gone." in done.output) == (1, True)
    assert stan("add", "orders", "nowhere.json", "--yes").exit_code == 2
    assert stan("add", "orders", "order.json", "--compatibility", "some", "--yes").exit_code == 2
    assert stan("add", "a..b", "order.json", "--yes").exit_code == 2


def test_versions_are_compared(servers, tmp_path):
    shown = stan("diff", "orders").output
    assert '+  "required": [' in shown
    assert "version 3 reads what version 1 has written: no" in shown
    assert "/id: is required, and may be missing" in shown
    assert "version 1 reads what version 3 has written: yes" in shown
    (tmp_path / "next.json").write_bytes(FIRST)
    assert "next.json reads what version 3 has written: yes" in stan("diff", "orders", "next.json").output
    assert (
        "next.json reads what version 1 has written: yes" in stan("diff", "orders", "next.json", "--number", "1").output
    )
    assert "give a file" in stan("diff", "invoices.*").output


def test_versions_are_removed(servers):
    assert "2 versions of the schema of orders removed" in stan("remove", "orders", "--yes").output.replace("\n", " ")
    stan("remove", "orders", "--number", "3", "--yes")
    assert servers.asked == [("remove_schema", "orders", 0), ("remove_schema", "orders", 3)]
