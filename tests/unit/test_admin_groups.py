"""Groups whose coordinator has just moved, as after a restart of a broker: Admin asks again."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.clients import Admin
from headrace.errors import GroupNotFound, HeadraceError

MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


@pytest.fixture
def deleting(monkeypatch):
    """An admin whose cluster answers `delete_group` with these codes, one after the other."""
    admin, codes = Admin("127.0.0.1:1"), []

    def delete_consumer_groups(names, request_timeout):
        answer = Future()
        code = codes.pop(0)
        if code is None:
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(KafkaError(code)))
        return {names[0]: answer}

    client = type("Client", (), {"delete_consumer_groups": staticmethod(delete_consumer_groups)})
    monkeypatch.setattr(admin, "_client", client)
    return admin, codes


def test_a_group_whose_coordinator_moves_is_deleted_all_the_same(deleting):
    admin, codes = deleting
    codes += [*MOVING, None]
    admin.delete_group("billing")
    assert codes == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError.GROUP_ID_NOT_FOUND, GroupNotFound),
        (KafkaError.NON_EMPTY_GROUP, HeadraceError),
    ],
)
def test_what_time_does_not_change_is_said_at_once(deleting, code, error):
    admin, codes = deleting
    codes += [code, None]
    with pytest.raises(error):
        admin.delete_group("billing")
    assert codes == [None]
