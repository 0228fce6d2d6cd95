"""Which dead letters are the same ones, sent again: those of one job."""

import pytest

from headrace.clients import Connection

pytest.importorskip("pyspark")

from headrace.spark.pipelines.dead_letters import DeadLetters
from headrace.spark.pipelines.lake import Commit


def job(*, lake="/lakes/one", app="headrace/clicks/0", topic_id="a", batch=1):
    info = {"batch": batch, "so_far": {"topic_ids": {"clicks": topic_id}}}
    dead_letters = DeadLetters("clicks.dead", Connection("127.0.0.1:9092"), lake)
    return dead_letters.job(Commit(app, batch, info))


def test_all_batches_of_a_pipeline_in_a_lake_are_one_job_in_every_run():
    assert job(batch=1) == job(batch=2)


def test_another_lake_pipeline_generation_or_topic_is_another_job():
    others = [
        job(lake="/lakes/two"),
        job(app="headrace/orders/0"),
        job(app="headrace/clicks/1"),
        job(topic_id="b"),
    ]
    assert len({job(), *others}) == 5
