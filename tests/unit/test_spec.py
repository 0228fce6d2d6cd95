"""cluster.json is the cluster's identity: read back as written, or refused with a reason."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadInput, ForeignData
from headrace.local.spec import (
    KAFKA_VERSION,
    BrokerSpec,
    ClusterSpec,
    Owner,
    check_broker_count,
    check_name,
    check_port,
    controller_count,
    load,
    new_cluster_id,
    require_same_kafka,
    save,
)

some_port = st.integers(1, 65_535)
brokers = st.lists(
    st.builds(BrokerSpec, st.integers(1, 9), some_port, st.none() | some_port), min_size=1
).map(tuple)
specs = st.builds(
    ClusterSpec,
    name=st.text(),
    cluster_id=st.text(),
    kafka_version=st.text(),
    brokers=brokers,
    fixed_ports=st.booleans(),
    registry_port=st.none() | some_port,
    connect_port=st.none() | some_port,
    owner=st.none() | st.builds(Owner, st.integers(1), st.floats(0, 1e10)),
)


def spec_of(version: str = KAFKA_VERSION) -> ClusterSpec:
    return ClusterSpec("default", "id", version, (BrokerSpec(1, 9092, 20_000),))


@settings(max_examples=50)
@given(spec=specs)
def test_a_saved_cluster_is_read_back_equal(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    save(folder, spec)
    assert load(folder) == spec


def test_a_folder_without_a_cluster_holds_none(tmp_path):
    assert load(tmp_path) is None
    assert load(tmp_path / "missing") is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", "{}", '{"layout": 1}', '{"layout": 1, "brokers": 5, "owner": 1}'],
)
def test_a_damaged_file_is_foreign_data_that_names_the_file(tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ForeignData) as caught:
        load(tmp_path)
    assert caught.value.facts["path"] == str(tmp_path / "cluster.json")
    assert caught.value.hint


@given(data=st.binary())
def test_any_bytes_in_the_file_are_a_cluster_or_foreign_data(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "cluster.json").write_bytes(data)
    with pytest.raises(ForeignData):
        load(folder)


def test_a_truncated_file_is_foreign_data(tmp_path):
    save(tmp_path, spec_of())
    path = tmp_path / "cluster.json"
    whole = path.read_text()
    for length in range(len(whole.rstrip())):
        path.write_text(whole[:length])
        with pytest.raises(ForeignData):
            load(tmp_path)


def test_a_file_that_cannot_be_read_is_foreign_data(tmp_path):
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(ForeignData, match="cannot be read"):
        load(tmp_path)


def test_a_field_of_another_version_is_foreign_data(tmp_path):
    save(tmp_path, spec_of())
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"unheard_of": 1}))
    with pytest.raises(ForeignData):
        load(tmp_path)


def test_another_layout_is_foreign_data_that_names_the_layout(tmp_path):
    (tmp_path / "cluster.json").write_text('{"layout": 99, "anything": true}')
    with pytest.raises(ForeignData, match="layout 99") as caught:
        load(tmp_path)
    assert caught.value.facts["layout"] == 99


def test_data_of_another_kafka_version_is_refused(tmp_path):
    require_same_kafka(spec_of(), tmp_path)
    with pytest.raises(ForeignData, match=r"4\.1\.0") as caught:
        require_same_kafka(spec_of("4.1.0"), tmp_path)
    assert caught.value.facts["version"] == "4.1.0"
    assert "--fresh" in caught.value.hint


@given(name=st.text() | st.from_regex(r"[a-z0-9._/\\-]{0,60}"))
def test_an_accepted_name_is_a_plain_folder_name(name):
    try:
        check_name(name)
    except BadInput:
        return
    assert 1 <= len(name) <= 48
    assert not {"/", "\\", "\0", "\n", " "} & set(name)
    assert not name.startswith((".", "-"))


@pytest.mark.parametrize("name", ["default", "demo-2", "a.b_c", "0", "x" * 48])
def test_a_plain_name_is_accepted(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "Default", "x" * 49, "a\n"])
def test_a_name_that_is_not_plain_is_bad_input(name):
    with pytest.raises(BadInput):
        check_name(name)


@given(count=st.integers())
def test_a_cluster_has_one_to_nine_brokers(count):
    if 1 <= count <= 9:
        assert check_broker_count(count) == count
    else:
        with pytest.raises(BadInput):
            check_broker_count(count)


@given(port=st.integers(-5, 70_000), count=st.integers(1, 9))
def test_accepted_ports_are_all_valid(port, count):
    try:
        check_port(port, count)
    except BadInput:
        assert port < 1 or port + count - 1 > 65_535
    else:
        assert port >= 1
        assert port + count - 1 <= 65_535


def test_no_port_is_fine():
    assert check_port(None, 9) is None


@pytest.mark.parametrize("count", range(1, 10))
def test_controllers_are_odd_in_number_and_at_most_five(count):
    assert controller_count(count) % 2 == 1
    assert controller_count(count) <= min(5, count)


def test_cluster_ids_are_kafka_uuids_and_never_look_like_an_option():
    ids = {new_cluster_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)


def test_a_cluster_knows_its_address_and_all_its_ports():
    spec = ClusterSpec(
        "x", "id", "1", (BrokerSpec(1, 1, 11), BrokerSpec(2, 2, None)), registry_port=3
    )
    assert spec.bootstrap == "127.0.0.1:1,127.0.0.1:2"
    assert spec.ports == [1, 11, 2, 3]
