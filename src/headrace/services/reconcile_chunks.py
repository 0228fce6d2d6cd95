"""Which chunks the ledger has of which file, and which it lacks."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.services.reconcile import Unsent
from headrace.spark.ingest.chunks import CHUNK_BYTES, End, Extent
from headrace.spark.ledger import FILE_ENTRY, Entry

ID_DIGITS = 16  # of a chunk's name in a row's id


def chunks_of_files(entries: Mapping[str, Entry]) -> tuple[dict[str, str], list[Unsent]]:
    """The file of each chunk, and what of files has no finished chunk."""
    files = {
        name.removeprefix(FILE_ENTRY): End(int(entry.facts["size"]), entry.facts["content"])
        for name, entry in entries.items()
        if name.startswith(FILE_ENTRY)
    }
    done = [e for name, entry in entries.items() if entry.complete and (e := Extent.parse(name))]
    chains = _Chains(files.values(), done)
    paths: dict[str, str] = {}
    unsent: list[Unsent] = []
    for path, file in files.items():
        for link in chains.of(file):
            found = chains.own(path, link)
            if not found:
                unsent.append(Unsent(path, 0, link.end - 1, sure=not link.found))
                break
            if len(found) == 1:
                paths[found[0].content[:ID_DIGITS]] = path
    return paths, unsent


class _Link(NamedTuple):
    """Where a chunk of a file must end, chunks that do, and what comes after it."""

    end: int
    found: Sequence[Extent]
    claim: str


class _Chains:
    """The chunks of files, from their ends to their beginnings.

    A file's entry names its last chunk; the one before it ends where that one begins, and nothing
    says which it is. So a chunk that ends there may be another file's. If there are no fewer of
    them than chunks that follow them, each has its own, and it is left open whose is whose. If
    there are fewer, files begin alike and have some in common, or one was not sent.
    """

    def __init__(self, files: Iterable[End], done: Iterable[Extent]) -> None:
        self._files = set(files)
        self._by_end: dict[int, list[Extent]] = defaultdict(list)
        for extent in done:
            self._by_end[extent.end].append(extent)
        self._claims: dict[int, set[str]] = defaultdict(set)
        for file in self._files:
            for link in self.of(file):
                self._claims[link.end].add(link.claim)

    def of(self, file: End) -> Iterator[_Link]:
        """The chunks of a file, the last first, as far as they can be followed."""
        end, claim = file.at, file.content
        found = [extent for extent in self._by_end[end] if extent.content == file.content]
        while end > 0:
            yield _Link(end, found, claim)
            starts = {extent.start for extent in found}
            if len(starts) != 1:
                return
            if len(found) == 1:
                claim = found[0].content
            end = starts.pop()
            found = self._by_end[end]

    def own(self, path: str, link: _Link) -> Sequence[Extent]:
        """Chunks of which one is surely the file's: the file itself tells, where the ledger does
        not."""
        from headrace.spark.ingest.files import begins_with  # brings Spark's packages with it

        is_last = any(extent.content == link.claim for extent in link.found)
        if is_last or len(self._claims[link.end]) <= len(self._by_end[link.end]):
            return link.found
        if any(self._ends_a_file(extent) for extent in link.found):
            return link.found
        return [extent for extent in link.found if begins_with(path, extent.end, extent.content)]

    def _ends_a_file(self, extent: Extent) -> bool:
        """Whether a file ended there, and only therefore the chunk: then only one that begins with
        that file has a chunk that ends there too."""
        is_short = extent.end - extent.start < CHUNK_BYTES
        return is_short and End(extent.end, extent.content) in self._files
