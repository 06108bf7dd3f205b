"""The same commands on a server."""

import re

from tests.cli.conftest import Cli
from tests.servers.databases import PostgresServer


def test_commands_work_on_postgres_and_hide_its_password(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.create_database()
    cli = Cli(dsn)

    item_id = cli.remember("Mia is allergic to peanuts", "--tag", "health")
    cli.ok("edit", item_id, "Mia is allergic to nuts", "--expect", "1")
    cli.ok("forget", item_id)
    restored = cli.json("restore", item_id, "--version", "1")

    assert restored["content"] == "Mia is allergic to peanuts"
    assert [hit["item"]["id"] for hit in cli.json("recall", "peanuts")["hits"]] == [item_id]
    assert cli.json("list", "--where", '{"tags": {"$contains": "health"}}')["items"]
    assert cli.json("stats")["store"]["items"] == 1
    assert cli.json("doctor")["ok"] is True
    assert cli("backup", "copy.db").exit_code == 1
    wrong = re.sub(r":[^:@/]+@", ":wr0ng@", dsn)
    refused = cli("list", "--url", wrong)
    assert refused.exit_code == 1
    assert "wr0ng" not in refused.output
    postgres_server.drop_database(dsn)
