"""A group is moved only while nobody is in it, and only to offsets that exist."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clients.admin import Group, Member, Partition, Topic
from headrace.errors import BadInput, GroupIsLive, GroupNotFound
from headrace.model import AtOffset, AtTime, Earliest, Latest, TopicPartition
from headrace.services.groups import (
    delete_group,
    describe_group,
    execute_reset,
    list_groups,
    plan_reset,
    refuse_if_live,
)

AT = [TopicPartition("clicks", 0), TopicPartition("clicks", 1)]
MEMBER = Member("m-1", "client", "h", (AT[1],))


class Cluster:
    """Topic `clicks` with offsets 10 to 100 and 0 to 5; group `g` has committed in the first."""

    def __init__(self, members: tuple[Member, ...] = (), committed: int | None = 50) -> None:
        self.members = members
        self.moved: dict[TopicPartition, int] = {}
        self.deleted: list[str] = []
        self._committed = {} if committed is None else {AT[0]: committed}

    def group_names(self):
        return ["g"]

    def group(self, name):
        if name != "g":
            raise GroupNotFound(f"there is no group {name}")
        return Group("g", "stable" if self.members else "empty", "classic", self.members)

    def groups(self, names):
        return [self.group(name) for name in names]

    def topic(self, name):
        return Topic(name, (Partition(0, 1, (1,), (1,)), Partition(1, 1, (1,), (1,))))

    def committed(self, name):
        return self._committed

    def offsets(self, partitions, position):
        by_position = {Earliest(): (10, 0), Latest(): (100, 5), AtTime(7): (60, 3)}
        return {p: by_position[position][p.partition] for p in partitions}

    def set_committed(self, name, offsets):
        self.moved = offsets

    def delete_group(self, name):
        self.deleted.append(name)


def planned(to=None, shift=None, **cluster) -> list[tuple[int, int | None, int]]:
    changes = plan_reset(Cluster(**cluster), "g", "clicks", to, shift)
    return [(change.partition, change.before, change.after) for change in changes]


@pytest.mark.parametrize(
    ("to", "after"),
    [
        (Earliest(), (10, 0)),
        (Latest(), (100, 5)),
        (AtTime(7), (60, 3)),
        (AtOffset(3), (10, 3)),
        (AtOffset(1000), (100, 5)),
    ],
)
def test_a_reset_sets_every_partition_within_what_it_has(to, after):
    assert planned(to=to) == [(0, 50, after[0]), (1, None, after[1])]


def test_a_shift_moves_only_what_was_committed():
    assert planned(shift=-5) == [(0, 50, 45)]
    assert planned(shift=5) == [(0, 50, 55)]


@given(shift=st.integers(), committed=st.integers(0, 1000))
def test_a_shift_never_leaves_the_partition(shift, committed):
    ((_, before, after),) = planned(shift=shift, committed=committed)
    assert before == committed
    assert 10 <= after <= 100


def test_a_shift_of_a_group_that_committed_nothing_is_bad_input():
    with pytest.raises(BadInput, match="nothing to shift"):
        planned(shift=1, committed=None)


@pytest.mark.parametrize(("to", "shift"), [(None, None), (Earliest(), 1)])
def test_a_reset_is_either_to_a_position_or_by_a_shift(to, shift):
    with pytest.raises(BadInput, match="either --to or --shift"):
        planned(to=to, shift=shift)


def test_a_live_group_is_not_moved_and_not_deleted():
    admin = Cluster(members=(MEMBER,))
    with pytest.raises(GroupIsLive, match="client") as caught:
        plan_reset(admin, "g", "clicks", Earliest(), None)
    assert caught.value.facts == {"group": "g", "members": 1}
    with pytest.raises(GroupIsLive):
        delete_group(admin, "g")
    assert (admin.moved, admin.deleted) == ({}, [])


def test_a_new_group_may_be_given_offsets_before_its_first_member():
    refuse_if_live(Cluster(), "new")
    changes = plan_reset(Cluster(committed=None), "new", "clicks", Latest(), None)
    assert [change.after for change in changes] == [100, 5]


def test_what_was_planned_is_what_is_moved():
    admin = Cluster()
    changes = plan_reset(admin, "g", "clicks", Earliest(), None)
    assert admin.moved == {}
    execute_reset(admin, "g", changes)
    assert admin.moved == {AT[0]: 10, AT[1]: 0}
    assert changes[0].to_json() == {"topic": "clicks", "partition": 0, "from": 50, "to": 10}


def test_deleting_an_unknown_group_says_so():
    admin = Cluster()
    with pytest.raises(GroupNotFound):
        delete_group(admin, "nosuch")
    delete_group(admin, "g")
    assert admin.deleted == ["g"]


def test_lag_counts_what_is_not_yet_committed():
    detail = describe_group(Cluster(members=(MEMBER,)), "g")
    first, held_only = detail.offsets
    assert (first.committed, first.end, first.lag) == (50, 100, 50)
    assert (held_only.committed, held_only.end, held_only.lag) == (None, 5, None)


def test_lag_is_never_negative():
    assert describe_group(Cluster(committed=120), "g").offsets[0].lag == 0


def test_a_description_has_the_fields_of_the_contract():
    document = describe_group(Cluster(members=(MEMBER,)), "g").to_json()
    assert {"name", "state", "members", "offsets"} <= set(document)
    assert document["members"] == [
        {
            "id": "m-1",
            "client_id": "client",
            "host": "h",
            "partitions": [{"topic": "clicks", "partition": 1}],
        }
    ]
    assert set(document["offsets"][0]) == {"topic", "partition", "committed", "end", "lag"}


def test_groups_are_listed_with_the_number_of_their_members():
    (summary,) = list_groups(Cluster(members=(MEMBER,)))
    assert (summary.name, summary.state, summary.members) == ("g", "stable", 1)
