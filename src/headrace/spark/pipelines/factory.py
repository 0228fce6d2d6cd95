"""The e-bike factory's alerts: all of them, the trend of each stage, each stage's last state.

Three topics, one for each purpose; the alerts have the same shape in all. In real-time mode the
Critical ones go to a topic of their own.
"""

from headrace.spark.pipelines.definition import (
    Count,
    Expect,
    Greatest,
    Latest,
    Pipeline,
    Rows,
    Topic,
    Totals,
    Windows,
)
from headrace.spark.pipelines.fields import Field, Json
from headrace.spark.pipelines.forward_definition import Forward

LEVELS = ("Critical", "Major", "Minor", "Warning")
_VALUE = Json(
    Field("alertId", "long", "alert_id", required=True),
    Field("stageId", "string", "stage_id", required=True),
    Field("alertLevel", "string", "alert_level", required=True),
    Field("alertMessage", "string", "alert_message"),
    Field("time", "time", required=True),
)
_KNOWN_LEVEL = Expect(
    "a known level", f"alert_level in ({', '.join(repr(level) for level in LEVELS)})"
)


def factory(
    audit: str = "kinaction_audit",
    trend: str = "kinaction_alerttrend",
    alert: str = "kinaction_alert",
    critical: str = "kinaction_critical",
) -> Pipeline:
    """The factory's pipeline, over topics of these names.

    >>> [table.name for table in factory().tables]
    ['alerts', 'trend', 'stages']
    """
    return Pipeline(
        "factory",
        source=Topic(audit, _VALUE, also=(trend, alert)),
        time="time",
        expectations=(_KNOWN_LEVEL,),
        rows=Rows("alerts"),
        derived=(
            Totals(
                "trend",
                by={"stage_id": "stage_id", "alert_level": "alert_level"},
                measures={"alerts": Count(), "last": Greatest("time")},
                windows=Windows("10 minutes", every="5 minutes"),
                where=f"kafka_topic = '{trend}'",
            ),
            Latest(
                "stages",
                key="stage_id",
                columns=("alert_id", "alert_level", "alert_message"),
                where=f"kafka_topic = '{alert}'",
            ),
        ),
        realtime=Forward(
            "factory_critical",
            source=Topic(alert, _VALUE),
            to=critical,
            expectations=(_KNOWN_LEVEL,),
            where="alert_level = 'Critical'",
            key="stage_id",
        ),
    )


FACTORY = factory()
