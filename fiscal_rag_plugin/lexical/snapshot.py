"""One committed state of the index: exact BM25 of public texts, filtered before the top k."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import tantivy
from tantivy import DocAddress, Occur, Query, Schema, Searcher

from .bm25 import Bag, Statistics, scores
from .facets import ID_PREFIX, MARK, Groups, id_facet

BODY, FACET, ID, LENGTH, STATE = "body", "facet", "id", "length", "state"
MARGIN = 8
"""Candidates beyond k: they show whether the k-th place is tied."""
FIRST_LOOK = 64
"""Candidates looked at first when something above decides which of them are kept."""
ROUNDING = 1.0 + 1e-5
"""More than float32 sums of a question's terms, added in another order, can differ by."""
_MAX_REMEMBERED = 50_000
_PAGE = 5_000
_FEW = 64
"""Ids that are looked up one by one: a set of terms first walks the dictionary, 1 ms for six."""

Keep: TypeAlias = "Callable[[Sequence[str]], Collection[str]]"
"""Which of these ids may be answered."""
Scored: TypeAlias = "tuple[str, float]"


class Snapshot:
    """What one searcher of tantivy sees.

    Values are computed here from the stored tokens and the statistics of the texts that are
    there now, by the routine that also scores a session's texts. Tantivy's own statistics count
    deleted texts until a merge, so they only choose candidates: its term weights are corrected
    by a boost, and its average length bounds how far a text it did not return could be off.
    """

    def __init__(self, schema: Schema, searcher: Searcher) -> None:
        self._schema = schema
        self._searcher = searcher
        self.state = self._state()
        self.count: int = searcher.num_docs - (self.state is not None)
        self._frequencies: dict[str, int] = {}
        self._average, self._stored = self._averages()

    def statistics(self, tokens: Iterable[str]) -> Statistics:
        """Number and average length of all texts, and how many of them have each token."""
        wanted = sorted(set(tokens))
        if len(self._frequencies) > _MAX_REMEMBERED:
            self._frequencies = {}
        frequencies = self._frequencies
        found = {token: frequencies.get(token, -1) for token in wanted}
        for token, frequency in found.items():
            if frequency < 0:
                found[token] = frequencies[token] = self._frequency(token)
        return Statistics(self.count, self._average, found)

    def scores(self, tokens: Iterable[str], ids: Collection[str]) -> dict[str, float]:
        """BM25 of those of these texts that are in the index; 0.0 for one without a token."""
        wanted = sorted(set(tokens))
        found: dict[str, float] = {}
        for page in _pages(ids):
            rows = [self._row(address, wanted) for address in self._addresses(page)]
            values = scores(wanted, [bag for _, bag in rows], self.statistics(wanted)).tolist()
            found.update(zip((id for id, _ in rows), values, strict=True))
        return found

    def search(
        self, tokens: Iterable[str], k: int, required: Groups = (), keep: Keep | None = None
    ) -> list[Scored]:
        """The k best texts with at least one token, by value, then id; fewer when there are fewer.

        ``required`` and ``keep`` apply before the top k, whatever they refuse.
        """
        statistics = self.statistics(tokens)
        known = {token: df for token, df in statistics.frequencies.items() if df}
        if k < 1 or not known or not all(required):
            return []
        query = self._query(known, statistics, required)
        unseen = ROUNDING * max(1.0, self._average / self._stored.average_length)
        rows: dict[tuple[int, int], Scored | None] = {}
        n = k + MARGIN if keep is None else max(FIRST_LOOK, 4 * k)
        while True:
            n = min(n, self._searcher.num_docs + 1)
            hits = self._searcher.search(query, n, count=False).hits
            self._score(rows, [address for _, address in hits], statistics, keep)
            best = sorted((row for row in rows.values() if row), key=lambda row: (-row[1], row[0]))[:k]
            certain = len(best) == k and best[-1][1] > hits[-1][0] * unseen
            if len(hits) < n or certain:
                return best
            n *= 4

    def bodies(self, ids: Collection[str]) -> dict[str, str]:
        """The tokens of those of these texts that are in the index, parted by spaces."""
        found: dict[str, str] = {}
        for page in _pages(ids):
            for address in self._addresses(page):
                document = self._searcher.doc(address)
                found[str(document.get_first(ID))] = str(document.get_first(BODY))
        return found

    def _addresses(self, ids: list[str]) -> list[DocAddress]:
        """Where the texts with these facets of ids are."""
        if len(ids) <= _FEW:
            terms = [(Occur.Should, Query.term_query(self._schema, FACET, id, "basic")) for id in ids]
            query = Query.boolean_query(terms)
        else:
            query = Query.term_set_query(self._schema, FACET, ids)
        return [address for _, address in self._searcher.search(query, len(ids), count=False).hits]

    def ids(self) -> list[str]:
        """The ids of all texts, sorted."""
        terms = self._searcher.terms_with_prefix(FACET, ID_PREFIX, Query.all_query())
        return sorted(term.removeprefix(ID_PREFIX) for term, _ in terms)

    def _score(
        self, rows: dict[tuple[int, int], Scored | None], addresses: Sequence[DocAddress],
        statistics: Statistics, keep: Keep | None,
    ) -> None:  # fmt: skip
        """Add the candidates that are new; None for one that is not kept."""
        new = {key: a for a in addresses if (key := (a.segment_ord, a.doc)) not in rows}
        asked = statistics.frequencies
        # In order of place: neighbours share a block of the store.
        read = {key: self._row(new[key], asked) for key in sorted(new)}
        kept = None if keep is None else set(keep([id for id, _ in read.values()])) if read else set()
        values = scores(statistics.frequencies, [bag for _, bag in read.values()], statistics).tolist()
        for (key, (id, _)), value in zip(read.items(), values, strict=True):
            rows[key] = (id, value) if kept is None or id in kept else None

    def _row(self, address: DocAddress, asked: Iterable[str]) -> tuple[str, Bag]:
        document = self._searcher.doc(address)
        return str(document.get_first(ID)), Bag.of_joined(str(document.get_first(BODY)), asked)

    def _query(self, known: dict[str, int], statistics: Statistics, required: Groups) -> Query:
        terms = []
        for token in known:
            term = Query.term_query(self._schema, BODY, token, "freq")
            stored = Statistics(self._stored.documents, 0.0, {token: self._searcher.doc_freq(BODY, token)})
            boost = float(statistics.weight(token) / stored.weight(token))
            terms.append((Occur.Should, term if boost == 1.0 else Query.boost_query(term, boost)))
        parts = [(Occur.Must, Query.boolean_query(terms))]
        for group in required:
            parts.append((Occur.Must, self._one_of(sorted(group))))
        return parts[0][1] if len(parts) == 1 else Query.boolean_query(parts)

    def _one_of(self, group: list[str]) -> Query:
        """A part that filters and adds 0 to a score; for one facet a term, which is read as it goes."""
        if len(group) == 1:
            return Query.boost_query(Query.term_query(self._schema, FACET, group[0], "basic"), 0.0)
        return Query.const_score_query(Query.term_set_query(self._schema, FACET, group), 0.0)

    def _frequency(self, token: str) -> int:
        if self._stored.documents == self._searcher.num_docs:
            return self._searcher.doc_freq(BODY, token)
        found: Any = self._searcher.search(Query.term_query(self._schema, BODY, token, "freq"), 1)
        return int(found.count)

    def _averages(self) -> tuple[float, Statistics]:
        """The average length now, and what tantivy counts: texts and average, deleted ones included.

        Tantivy tells its own numbers only in an explanation, of any text that has a token.
        """
        some = Query.range_query(self._schema, LENGTH, tantivy.FieldType.Unsigned, 1)
        hits = self._searcher.search(some, 1, count=False).hits
        if not hits:
            return 0.0, Statistics(0, 0.0, {})
        summed = self._searcher.aggregate(Query.all_query(), {"sum": {"sum": {"field": LENGTH}}})
        token = str(self._searcher.doc(hits[0][1]).get_first(BODY)).split()[0]
        query = Query.term_query(self._schema, BODY, token, "freq")
        said = _numbers(json.loads(query.explain(self._searcher, hits[0][1]).to_json()))
        stored = Statistics(int(said["N"]), said["avgdl"], {})
        return summed["sum"]["value"] / self.count, stored

    def _state(self) -> dict[str, str] | None:
        query = Query.term_query(self._schema, FACET, MARK, "basic")
        hits = self._searcher.search(query, 1, count=False).hits
        if not hits:
            return None
        state: dict[str, str] = json.loads(str(self._searcher.doc(hits[0][1]).get_first(STATE)))
        return state


def _pages(ids: Collection[str]) -> Iterator[list[str]]:
    """The facets of ids, few enough for one query."""
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _PAGE):
        yield [id_facet(id) for id in ordered[start : start + _PAGE]]


def _numbers(explanation: dict[str, Any]) -> dict[str, float]:
    """Every value of an explanation by the first word of its description."""
    found = {str(explanation["description"]).split(",")[0]: float(explanation["value"])}
    for detail in explanation.get("details", []):
        found.update(_numbers(detail))
    return found
