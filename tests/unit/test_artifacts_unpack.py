"""An archive is unpacked whole or not at all, and once."""

import errno
import io
import tarfile
import threading
from pathlib import Path

import pytest

from headrace.errors import NoRoom
from headrace.local.artifacts import Store


def archive_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def archive(repository):
    content = archive_of({"app/run.jar": b"jar", "app/conf/settings": b"x"})
    return repository.add("app", content, extension="tar.gz")


def entries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_archive_is_fetched_and_unpacked(archive, places):
    store = Store(places.cache)
    assert not store.is_unpacked(archive)
    folder = store.unpack(archive)
    assert entries(folder) == ["app/conf/settings", "app/run.jar"]
    assert store.is_unpacked(archive)


def test_an_unpacked_archive_is_reused_without_the_network(archive, repository, places):
    store = Store(places.cache)
    folder = store.unpack(archive)
    repository.close()
    assert store.unpack(archive) == folder
    assert len(repository.requests) == 1


def test_the_archive_itself_is_not_kept(archive, places):
    store = Store(places.cache)
    store.unpack(archive)
    assert not store.path(archive).exists()


@pytest.mark.parametrize("filters", [True, False])
def test_an_archive_that_fails_half_way_leaves_nothing_unpacked(
    repository, places, monkeypatch, filters
):
    if not filters:  # as Python had none before 3.11.4
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    evil = archive_of({"app/run.jar": b"jar", "../../outside": b"evil"})
    archive = repository.add("evil", evil, extension="tar.gz")
    store = Store(places.cache)
    with pytest.raises(tarfile.TarError):
        store.unpack(archive)
    assert not store.is_unpacked(archive)
    assert list((places.cache / "unpacked").iterdir()) == []
    assert not (places.cache / "outside").exists()


def test_what_a_killed_unpacking_left_behind_is_not_taken_for_the_archive(archive, places):
    left_behind = places.cache / "unpacked" / ".unpacking-abc" / "app"
    left_behind.mkdir(parents=True)
    store = Store(places.cache)
    assert not store.is_unpacked(archive)
    assert entries(store.unpack(archive)) == ["app/conf/settings", "app/run.jar"]


def test_a_folder_that_cannot_be_written_is_an_error(archive, places, monkeypatch):
    store = Store(places.cache)
    store.fetch([archive], "app")

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(NoRoom, match="No space left"):
        store.unpack(archive)
    assert not store.is_unpacked(archive)


def test_unpacking_twice_at_once_gives_one_folder(archive, places):
    folders: list[Path] = []
    threads = [
        threading.Thread(target=lambda: folders.append(Store(places.cache).unpack(archive)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 4
    assert len(set(folders)) == 1
    assert [path.name for path in (places.cache / "unpacked").iterdir()] == [folders[0].name]
