"""Ids that change hands while they are queried: nobody ever gets a chunk that was not theirs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from fiscal_rag_plugin.access import Access
from fiscal_rag_plugin.corpus import Corpus
from fiscal_rag_plugin.drafts import Draft
from fiscal_rag_plugin.engines.base import Condition, Record
from fiscal_rag_plugin.ranking import SearchQuery
from fiscal_rag_plugin.view import View

SECONDS = 4.0


def test_an_id_that_changes_scope_and_session_is_never_seen_by_another(tmp_path: Path) -> None:
    store = View(Corpus.open(str(tmp_path / "db"), "fiscal"))
    places: list[tuple[Any, str | None]] = [("public", None), ("private", "A"), ("private", "B")]
    stop, wrong, errors, answers = time.monotonic() + SECONDS, [], [], [0]

    def write(number: int) -> None:
        n = number
        while time.monotonic() < stop:
            scope, session = places[n % 3]
            text = f"de {session}"
            record = Record("x", scope, session, "d", text, {"dueño": str(session)}, "node")
            try:
                store.write([Draft(record, text, [1.0, 0.01 * (n % 7)])])
                owner = store if session is None else store.for_session(session)
                owner.delete(Condition(ids=frozenset(["x"])))
                if n % 5 == 0:
                    store.delete_session("B")
            except Exception as error:
                errors.append(error)
            n += 1

    def ask(session: str) -> None:
        view = store.for_access(Access.session(session))
        while time.monotonic() < stop:
            try:
                records = [hit.record for hit in view.search(SearchQuery([1.0, 0.0], top_k=5)).hits]
                records += view.get(["x"])
                records += list(view.scan())
            except Exception as error:
                errors.append(error)
                continue
            answers[0] += 1
            wrong.extend(r for r in records if r.session_id not in (None, session))
            wrong.extend(
                r
                for r in records
                if r.text != f"de {r.session_id}" or r.metadata["dueño"] != str(r.session_id)
            )

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=ask, args=(session,)) for session in "AB"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert errors == []
    assert wrong == []
    assert answers[0] > 0
