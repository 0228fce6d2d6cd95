"""Jars come whole and verified, or not at all."""

import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.errors import ArtifactError, ChecksumMismatch, ConfigError, NoRoom
from headrace.local import artifacts
from headrace.local.artifacts import Artifact, Repository, Store, lock_digest, parse_lock, read_lock


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """The pauses between attempts, noted and not waited for."""
    noted: list[float] = []
    monkeypatch.setattr(artifacts, "time", SimpleNamespace(sleep=noted.append))
    return noted


@pytest.fixture
def store(places, progress):
    return Store(places.cache, progress=progress)


def files_under(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def with_checksum_of(artifact: Artifact, digest: str) -> Artifact:
    return Artifact(*[*vars(artifact).values()][:5], digest, artifact.size)


# --- lock files ---


@pytest.mark.parametrize("name", ["kafka", "registry"])
def test_every_line_of_a_shipped_lock_names_an_artifact_with_checksum_and_size(name):
    locked = read_lock(name)
    assert locked
    assert all(re.fullmatch(r"[0-9a-f]{64}", artifact.sha256) for artifact in locked)
    assert all(artifact.size > 0 for artifact in locked)
    assert len({artifact.path for artifact in locked}) == len(locked)


@pytest.mark.parametrize("name", ["kafka", "registry"])
def test_a_shipped_lock_names_no_host(name):
    text = (Path(artifacts.__file__).parent / "locks" / f"{name}.lock").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    coordinates = r"[\w.-]+(:[\w.-]+){2,3}(@[\w.]+)?"
    assert "//" not in text
    assert all(re.fullmatch(rf"{coordinates} [0-9a-f]{{64}} \d+", line) for line in lines)


def test_a_lock_line_gives_the_path_in_a_maven_repository():
    text = f"# a comment\n\norg.x.y:tool:1.2:all@tar.gz {'0' * 64} 42\norg.z:lib:3 {'1' * 64} 7\n"
    archive, jar = parse_lock(text)
    assert archive.path == "org/x/y/tool/1.2/tool-1.2-all.tar.gz"
    assert (archive.sha256, archive.size) == ("0" * 64, 42)
    assert jar.path == "org/z/lib/3/lib-3.jar"


def test_the_digest_of_a_lock_changes_with_any_artifact():
    first, second = parse_lock(f"a:b:1 {'0' * 64} 1\na:c:1 {'1' * 64} 1")
    assert lock_digest([first, second]) != lock_digest([first])
    assert lock_digest([first, second]) == lock_digest([first, second])


# --- fetching ---


def test_missing_artifacts_are_fetched_and_returned_in_order(repository, store):
    wanted = [repository.add(f"lib-{n}", bytes([n]) * 1000) for n in range(20)]
    paths = store.fetch(wanted, "libraries")
    assert [path.name for path in paths] == [artifact.file_name for artifact in wanted]
    assert [path.read_bytes() for path in paths] == [bytes([n]) * 1000 for n in range(20)]


def test_artifacts_are_fetched_in_parallel(repository, store, monkeypatch):
    wanted = [repository.add(f"lib-{n}", b"x") for n in range(4)]
    all_here = threading.Barrier(4, timeout=60)  # broken, hence an error, unless four are at work
    answer = repository._answer

    def answer_together(request):
        all_here.wait()
        answer(request)

    monkeypatch.setattr(repository, "_answer", answer_together)
    assert len(store.fetch(wanted, "libraries")) == 4
    assert not all_here.broken


def test_progress_adds_up_to_the_total(repository, store, progress):
    wanted = [repository.add("small", b"x" * 10), repository.add("large", b"y" * 1_000_000)]
    store.fetch(wanted, "libraries")
    assert progress.totals == [1_000_010]
    assert sum(progress.advances) == 1_000_010
    assert progress.ended == 1


def test_what_is_in_the_cache_needs_no_repository(repository, store, progress):
    wanted = [repository.add("lib", b"content")]
    store.fetch(wanted, "libraries")
    repository.close()
    (path,) = store.fetch(wanted, "libraries")
    assert path.read_bytes() == b"content"
    assert len(repository.requests) == 1
    assert progress.warnings == []


def test_only_what_is_missing_is_fetched(repository, store):
    first, second = repository.add("first", b"1"), repository.add("second", b"2")
    store.fetch([first], "libraries")
    store.fetch([first, second], "libraries")
    assert repository.paths == [first.path, second.path]


@pytest.mark.parametrize("damage", [b"contenT", b"cont", b""], ids=["bit", "short", "empty"])
def test_a_damaged_jar_in_the_cache_is_fetched_anew_with_a_warning(
    repository, store, progress, damage
):
    artifact = repository.add("lib", b"content")
    (path,) = store.fetch([artifact], "libraries")
    path.write_bytes(damage)
    assert not store.has(artifact)
    store.fetch([artifact], "libraries")
    assert path.read_bytes() == b"content"
    assert progress.warnings == ["lib-1.0.jar in the cache is damaged, fetching it anew"]


def test_a_folder_can_be_the_repository(repository, store, monkeypatch, tmp_path):
    artifact = repository.add("lib", b"content")
    folder = tmp_path / "a folder #1"
    (folder / artifact.path).parent.mkdir(parents=True)
    (folder / artifact.path).write_bytes(b"content")
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", str(folder))
    assert store.fetch([artifact], "libraries")[0].read_bytes() == b"content"
    assert repository.requests == []


def test_two_fetches_at_once_do_not_disturb_each_other(repository, places):
    wanted = [repository.add(f"lib-{n}", bytes([n]) * 100_000) for n in range(8)]
    outcomes: list[list[Path]] = []

    def fetch():
        outcomes.append(Store(places.cache).fetch(wanted, "libraries"))

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 3
    assert Store(places.cache).missing(wanted) == []
    assert len(files_under(places.cache)) == 8


# --- what can go wrong ---


def test_wrong_bytes_are_a_checksum_mismatch_and_do_not_enter_the_cache(repository, store, places):
    good = repository.add("good", b"good")
    bad = with_checksum_of(repository.add("bad", b"altered"), "f" * 64)
    with pytest.raises(ChecksumMismatch) as caught:
        store.fetch([good, bad], "libraries")
    assert caught.value.facts["expected"] == "f" * 64
    assert caught.value.facts["artifact"] == bad.path
    assert "bad-1.0.jar" not in files_under(places.cache)
    assert set(files_under(places.cache)) <= {"good-1.0.jar"}  # no half-written files either


def test_a_checksum_mismatch_is_not_asked_for_again(repository, store, waits):
    bad = with_checksum_of(repository.add("bad", b"altered"), "f" * 64)
    with pytest.raises(ChecksumMismatch):
        store.fetch([bad], "libraries")
    assert (len(repository.requests), waits) == (1, [])


def test_an_artifact_the_repository_lacks_is_an_error_at_once(repository, store, places, waits):
    lacking = repository.add("lib", b"content")
    repository.files.clear()
    with pytest.raises(ArtifactError, match="it answered 404") as caught:
        store.fetch([lacking], "libraries")
    assert caught.value.facts["artifact"] == lacking.path
    assert "HEADRACE_MAVEN_REPOSITORY" in caught.value.hint
    assert (len(repository.requests), waits) == (1, [])
    assert files_under(places.cache) == []


def test_no_network_and_an_empty_cache_is_an_error_with_a_next_step(
    repository, store, places, waits
):
    artifact = repository.add("lib", b"content")
    repository.close()
    with pytest.raises(ArtifactError, match=r"(?i)refused") as caught:
        store.fetch([artifact], "libraries")
    assert "check the network" in caught.value.hint
    assert waits == [0.5, 1.0]
    assert files_under(places.cache) == []


@pytest.mark.parametrize("fault", [500, 503, 429, "cut"])
def test_a_passing_fault_is_overcome_by_another_attempt(
    repository, store, progress, waits, places, fault
):
    artifact = repository.add("lib", b"content" * 1000)
    repository.faults[artifact.path] = [fault]
    (path,) = store.fetch([artifact], "libraries")
    assert path.read_bytes() == b"content" * 1000
    assert waits == [0.5]
    assert sum(progress.advances) == artifact.size  # what came before the cut is taken back
    assert files_under(places.cache) == ["lib-1.0.jar"]


def test_a_connection_that_is_cut_every_time_is_told_as_such(repository, store, places):
    artifact = repository.add("lib", b"content" * 1000)
    repository.faults[artifact.path] = ["cut"] * 3
    with pytest.raises(ArtifactError, match="the connection was cut after 3,500 bytes") as caught:
        store.fetch([artifact], "libraries")
    assert not isinstance(caught.value, ChecksumMismatch)
    assert files_under(places.cache) == []


def test_a_cache_folder_that_cannot_be_made_is_an_error_with_a_next_step(
    repository, places, progress
):
    places.cache.write_text("a file where a folder is expected")
    artifact = repository.add("lib", b"content")
    with pytest.raises(ArtifactError, match="cannot be made") as caught:
        Store(places.cache).fetch([artifact], "libraries")
    assert "HEADRACE_CACHE" in caught.value.hint


def test_a_place_in_the_cache_that_cannot_be_written_is_an_error(repository, store, places):
    artifact = repository.add("lib", b"content")
    (places.cache / "maven").mkdir(parents=True)
    (places.cache / "maven" / "org").write_text("a file where a folder is expected")
    with pytest.raises(ArtifactError, match="cannot be stored") as caught:
        store.fetch([artifact], "libraries")
    assert caught.value.hint


def test_too_little_room_is_told_before_anything_is_fetched(repository, store, tmp_path):
    artifact = repository.add("lib", b"content")
    absurd = Artifact(*[*vars(artifact).values()][:6], 1 << 60)
    with pytest.raises(NoRoom) as caught:
        store.fetch([absurd], "libraries")
    assert caught.value.facts["needed"] > 1 << 60
    assert caught.value.facts["free"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.5)
    assert repository.requests == []


# --- whose repository ---


def test_user_and_password_are_sent_decoded(repository, store, monkeypatch):
    artifact = repository.add("lib", b"content")
    address = f"http://anna:s%23cret@{repository.host}/maven2/"
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", address)
    store.fetch([artifact], "libraries")
    assert repository.requests == [(artifact.path, "Basic YW5uYTpzI2NyZXQ=")]


def test_user_and_password_never_show_in_errors(repository, store, monkeypatch):
    artifact = repository.add("lib", b"content")
    repository.files.clear()
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", f"http://anna:hunter2@{repository.host}/maven2")
    with pytest.raises(ArtifactError) as caught:
        store.fetch([artifact], "libraries")
    told = f"{caught.value.message} {caught.value.hint} {caught.value.facts}"
    assert "hunter2" not in told
    assert "anna" not in told
    assert repository.host in told


@pytest.mark.parametrize("separator", ["/", "?", "#"])
def test_a_password_that_breaks_the_address_is_refused_without_showing_it(
    repository, store, monkeypatch, separator
):
    address = f"http://anna:hun{separator}ter@{repository.host}/maven2"
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", address)
    with pytest.raises(ConfigError) as caught:
        store.fetch([repository.add("lib", b"content")], "libraries")
    assert "hun" not in f"{caught.value.message} {caught.value.hint}"


def test_a_redirect_does_not_carry_the_password_along(repository, store, monkeypatch):
    artifact = repository.add("lib", b"content")
    repository.files["elsewhere"] = b"content"
    repository.redirects[artifact.path] = f"http://{repository.host}/maven2/elsewhere"
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", f"http://anna:x@{repository.host}/maven2")
    store.fetch([artifact], "libraries")
    assert repository.requests[1] == ("elsewhere", None)


def test_an_unknown_scheme_is_a_config_error_that_names_it(monkeypatch):
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", "ftp://example.org/maven2")
    with pytest.raises(ConfigError, match="'ftp'") as caught:
        Repository.from_environment()
    assert "http" in caught.value.hint


def test_without_a_variable_the_default_repository_is_meant():
    repository = Repository.from_environment()
    assert repository.address.startswith("https://")
    assert repository.named == "the default Maven repository"
    assert repository.authorization is None
