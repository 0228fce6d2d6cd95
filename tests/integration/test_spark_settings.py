"""Settings that hold for a while leave a session as it was found."""

import pytest

pytest.importorskip("pyspark")
from headrace.spark.settings import ROWS_UNMEASURED, set_meanwhile

NAMES = ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone", *ROWS_UNMEASURED)


def settings(spark):
    return {name: spark.conf.get(name, None) for name in NAMES}


@pytest.mark.parametrize("ends", ["well", "in a failure"])
def test_what_the_owner_had_set_or_left_alone_is_there_again(spark, ends):
    before = settings(spark)
    assert before["spark.sql.shuffle.partitions"] is not None
    assert before[NAMES[-1]] is None, "a setting that nobody has touched"
    try:
        with set_meanwhile(spark, {NAMES[0]: "3"} | ROWS_UNMEASURED):
            assert settings(spark) == before | {NAMES[0]: "3"} | ROWS_UNMEASURED
            if ends == "in a failure":
                raise RuntimeError("the query failed")
    except RuntimeError:
        pass
    assert settings(spark) == before


def test_a_value_that_spark_refuses_changes_nothing(spark):
    before = settings(spark)
    with (
        pytest.raises(Exception, match="partitions"),
        set_meanwhile(spark, {NAMES[1]: "Asia/Tokyo", NAMES[0]: "none"}),
    ):
        raise AssertionError("it was taken")
    assert settings(spark) == before
