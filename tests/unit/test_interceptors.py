"""Interceptors see every record; a broken one harms nobody."""

import logging

from headrace.clients.deliveries import Outgoing
from headrace.clients.interceptors import Interceptor, Interceptors

RECORD = Outgoing("t", b"v")


class Stamp(Interceptor):
    def __init__(self, name):
        self.name = name

    def before_send(self, record):
        return record._replace(headers=[*record.headers, (self.name, None)])


class Broken(Interceptor):
    def __init__(self):
        self.calls = 0

    def before_send(self, record):
        self.calls += 1
        raise ValueError("broken")


class Forgetful(Interceptor):
    def before_send(self, record):
        return None


def test_interceptors_are_called_in_order():
    chain = Interceptors([Stamp("one"), Stamp("two")])
    assert [name for name, _ in chain.before_send(RECORD).headers] == ["one", "two"]


def test_a_broken_one_is_reported_once_and_left_out(caplog):
    broken = Broken()
    chain = Interceptors([Stamp("one"), broken, Stamp("two")])
    with caplog.at_level(logging.ERROR, "headrace.interceptors"):
        results = [chain.before_send(RECORD) for _ in range(3)]
    assert all([name for name, _ in r.headers] == ["one", "two"] for r in results)
    assert broken.calls == 1
    assert chain.broken == [broken]
    assert len([r for r in caplog.records if r.name == "headrace.interceptors"]) == 1


def test_one_that_forgets_to_return_the_record_does_not_lose_it():
    chain = Interceptors([Forgetful()])
    assert chain.before_send(RECORD) == RECORD
    assert not chain


def test_the_base_class_changes_nothing():
    assert Interceptors([Interceptor()]).before_send(RECORD) == RECORD
