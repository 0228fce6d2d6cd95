"""Kafka's codes become errors of the right kind that say what to do next."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.clients.failures import _BAD_INPUT, _BY_CODE, _DENIED, _UNREACHABLE, translate
from headrace.errors import (
    BadInput,
    GroupIsLive,
    GroupNotFound,
    HeadraceError,
    KafkaFailure,
    TopicExists,
    TopicNotFound,
    Unreachable,
)

KINDS = {
    KafkaError._TRANSPORT: Unreachable,
    KafkaError._ALL_BROKERS_DOWN: Unreachable,
    KafkaError._TIMED_OUT: Unreachable,
    KafkaError._TIMED_OUT_QUEUE: Unreachable,
    KafkaError._RESOLVE: Unreachable,
    KafkaError._MSG_TIMED_OUT: Unreachable,
    KafkaError.REQUEST_TIMED_OUT: Unreachable,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: KafkaFailure,
    KafkaError.GROUP_AUTHORIZATION_FAILED: KafkaFailure,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: KafkaFailure,
    KafkaError.INVALID_REPLICATION_FACTOR: BadInput,
    KafkaError.INVALID_PARTITIONS: BadInput,
    KafkaError.INVALID_CONFIG: BadInput,
    KafkaError.TOPIC_EXCEPTION: BadInput,
    KafkaError.INVALID_REQUEST: BadInput,
    KafkaError.POLICY_VIOLATION: BadInput,
    KafkaError.TOPIC_ALREADY_EXISTS: TopicExists,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicNotFound,
    KafkaError._UNKNOWN_TOPIC: TopicNotFound,
    KafkaError.GROUP_ID_NOT_FOUND: GroupNotFound,
    KafkaError.NON_EMPTY_GROUP: GroupIsLive,
    KafkaError.MSG_SIZE_TOO_LARGE: KafkaFailure,
}


@pytest.mark.parametrize(("code", "kind"), KINDS.items())
def test_a_code_becomes_its_error_with_a_hint_and_the_codes_name(code, kind):
    error = translate(KafkaError(code, "the broker's words"), "creating topic x")
    assert type(error) is kind
    assert error.message.startswith("creating topic x")
    assert "the broker's words" in error.message
    assert error.hint
    assert error.facts == {"code": KafkaError(code).name()}


def test_every_code_we_know_is_proven_here():
    assert {*_UNREACHABLE, *_DENIED, *_BAD_INPUT, *_BY_CODE} <= set(KINDS)


def test_every_other_code_becomes_an_error_too():
    codes = [c for c in vars(KafkaError).values() if isinstance(c, int)]
    assert len(codes) > 100
    for code in codes:
        error = translate(KafkaError(code, "x"), "doing it")
        assert isinstance(error, HeadraceError)
        assert error.hint


def test_an_exception_is_translated_by_the_error_inside():
    inner = KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "x")
    assert type(translate(KafkaException(inner), "doing it")) is TopicExists


@pytest.mark.parametrize("error", [KafkaException("text"), ValueError("text")])
def test_an_exception_without_a_code_is_a_failure_that_keeps_its_words(error):
    translated = translate(error, "making a client")
    assert type(translated) is KafkaFailure
    assert translated.message == "making a client failed: text"
