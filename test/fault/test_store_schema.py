# SPDX-License-Identifier: MIT
"""sql/store.postgres.sql, which people read, is the schema that the program makes."""

import pathlib

import pytest

from support import postgres
from support.gateway import Gateway
from support.postgres import Postgres

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not postgres.BIN, reason="PostgreSQL is not installed (scripts/deps test installs it)")
OURS = "c.relnamespace = 'samekey_store'::regnamespace AND c.relname !~ '^result_[0-9]+'"
FACTS = {
    "relations": f"SELECT c.relname, c.relkind, coalesce(c.reloptions::text, '') FROM pg_class c WHERE {OURS} ORDER BY 1",
    "columns": "SELECT c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
               " coalesce(pg_get_expr(d.adbin, d.adrelid), '') FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
               " LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
               f" WHERE {OURS} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 3",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'samekey_store' AND tablename !~ '^result_[0-9]+'"
               " ORDER BY 1",
    "constraints": "SELECT o.conname, pg_get_constraintdef(o.oid) FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid"
                   f" WHERE {OURS} ORDER BY 1",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'samekey_store' ORDER BY 1",
    "sequences": "SELECT sequencename, data_type, start_value, min_value, max_value, cycle FROM pg_sequences"
                 " WHERE schemaname = 'samekey_store' ORDER BY 1",
    "functions": "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'samekey_store'::regnamespace"
                 " ORDER BY 1",
}


def test_the_schema_for_reading_is_the_one_that_is_made(tmp_path):
    server = Postgres()
    try:
        url = server.create_database("made")
        gateway = Gateway(tmp_path, {"plain": {"upstream": ["http://127.0.0.1:1"]}}, store=url)
        assert gateway.stop() == 0
        server.create_database("written")
        server.sql((ROOT / "sql" / "store.postgres.sql").read_text(encoding="utf-8"), "written")
        for what, question in FACTS.items():
            made = server.sql(question, "made")
            assert made and server.sql(question, "written") == made, what
        said = (ROOT / "sql" / "store.postgres.sql").read_text(encoding="utf-8")
        version = server.value("SELECT version FROM samekey_store.meta", "made")
        assert f"version {version} (samekey_store.meta.version)" in said
    finally:
        server.close()
