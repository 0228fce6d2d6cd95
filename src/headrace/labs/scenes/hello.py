"""Four lines sent to a new topic are read back from the beginning, and stand in a file on disk.

What a broker stores is no secret: the partition is a folder, the folder holds log segments, and
Kafka's own tool prints the records in them.
"""

from headrace.clients import Producer
from headrace.labs.stage import Stage

NEEDS_FAULTS = True
LINES = ("Hello World", "Hallo Welt", "Bonjour le monde", "こんにちは世界")


def run(stage: Stage) -> None:
    topic = stage.topic("kinaction_helloworld")
    leader = stage.admin.topic(topic).partitions[0].leader or 1
    folder = stage.cluster.data_folder(leader) / f"{topic}-0"
    segment = folder / f"{0:020}.log"
    stage.wait_until(segment.exists, "the leader has made the partition's folder")
    size_before = segment.stat().st_size

    stage.say(f"sending {len(LINES)} lines")
    with Producer(stage.connection) as producer:
        for line in LINES:
            producer.send(topic, line)

    stage.say("reading them from the beginning")
    values = [(record.value or b"").decode() for record in stage.records(topic)]

    stage.say("opening the log segment with Kafka's own tool")
    dump = stage.cluster.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", str(segment)
    )
    on_disk = [line.partition("payload: ")[2] for line in dump.splitlines() if "payload: " in line]

    stage.fact("topic", topic)
    stage.fact("read", values)
    stage.fact("folder", folder.name)
    stage.fact("files", sorted(path.name for path in folder.iterdir()))
    stage.fact("segment_bytes_before", size_before)
    stage.fact("segment_bytes_after", segment.stat().st_size)
    stage.fact("records_on_disk", on_disk)
    stage.check("the four lines are read back in order", values == list(LINES))
    stage.check("the log segment was empty and grew", 0 == size_before < segment.stat().st_size)
    stage.check("the same four records stand in the segment", on_disk == list(LINES))
