import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelEoSStreamProcessor;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Confluent's parallel consumer on one load; prints what it measured as one line of JSON.
 *
 * <p>Arguments: bootstrap topic group records work_ms concurrency order tuned warm_up
 */
public final class ParallelConsumerPeer {
    private static final Map<String, ProcessingOrder> ORDERS = Map.of(
            "key", ProcessingOrder.KEY,
            "partition", ProcessingOrder.PARTITION,
            "none", ProcessingOrder.UNORDERED);

    private final String bootstrap;
    private final String topic;
    private final int records;
    private final Duration work;
    private final int concurrency;
    private final ProcessingOrder order;
    private final boolean tuned;

    private ParallelConsumerPeer(String[] arguments) {
        bootstrap = arguments[0];
        topic = arguments[1];
        records = Integer.parseInt(arguments[3]);
        work = Duration.ofNanos(Math.round(Double.parseDouble(arguments[4]) * 1e6));
        concurrency = Integer.parseInt(arguments[5]);
        order = ORDERS.get(arguments[6]);
        tuned = arguments[7].equals("yes");
    }

    public static void main(String[] arguments) {
        int status = 0;
        try {
            ParallelConsumerPeer peer = new ParallelConsumerPeer(arguments);
            String group = arguments[2];
            if (arguments[8].equals("yes")) {
                peer.run(group + "-warm-up");
            }
            System.out.println(peer.run(group).json());
        } catch (Exception error) {
            error.printStackTrace();
            status = 1;
        }
        // Threads of the consumer may be left, which would keep the process alive.
        System.exit(status);
    }

    private Tally run(String group) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "max.poll.records", tuned ? 5_000 : 500,
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class));
        Tally tally = new Tally(consumer, topic, records);
        ParallelEoSStreamProcessor<byte[], byte[]> processor =
                new ParallelEoSStreamProcessor<>(ParallelConsumerOptions.<byte[], byte[]>builder()
                        .consumer(consumer)
                        .ordering(order)
                        .maxConcurrency(concurrency)
                        .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                        .messageBufferSize(tuned ? 20_000 : 0)
                        .build());
        processor.subscribe(List.of(topic));
        processor.poll(context -> handle(context.getSingleConsumerRecord(), tally));
        while (!tally.done.await(1, TimeUnit.SECONDS)) {
            if (processor.isClosedOrFailed()) {
                throw new IllegalStateException(
                        "the consumer stopped before the last record", processor.getFailureCause());
            }
        }
        processor.closeDrainFirst();
        return tally;
    }

    private void handle(ConsumerRecord<byte[], byte[]> record, Tally tally) {
        tally.begin();
        if (!work.isZero()) {
            try {
                Thread.sleep(work);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        tally.end(record);
    }

    /** Counts records and keeps the time from the first one's start to the last one's end. */
    private static final class Tally {
        final CountDownLatch done = new CountDownLatch(1);
        private final Map<Integer, byte[]> seen = new HashMap<>();
        private final Map<Integer, Long> firstOffsets = new HashMap<>();
        private final int records;
        private final AtomicLong started = new AtomicLong();
        private final AtomicInteger handled = new AtomicInteger();
        private final AtomicInteger duplicates = new AtomicInteger();
        private volatile long ended;

        Tally(KafkaConsumer<?, ?> consumer, String topic, int records) {
            this.records = records;
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(info -> new TopicPartition(topic, info.partition()))
                    .toList();
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.beginningOffsets(partitions).forEach((partition, first) -> {
                firstOffsets.put(partition.partition(), first);
                seen.put(partition.partition(), new byte[(int) (ends.get(partition) - first)]);
            });
        }

        void begin() {
            if (started.get() == 0) {
                started.compareAndSet(0, System.nanoTime());
            }
        }

        void end(ConsumerRecord<?, ?> record) {
            int place = (int) (record.offset() - firstOffsets.get(record.partition()));
            if (seen.get(record.partition())[place]++ != 0) {
                duplicates.incrementAndGet();
            } else if (handled.incrementAndGet() == records) {
                ended = System.nanoTime();
                done.countDown();
            }
        }

        String json() {
            return String.format(
                    Locale.ROOT,
                    "{\"seconds\": %.6f, \"handled\": %d, \"duplicates\": %d}",
                    (ended - started.get()) / 1e9,
                    handled.get(),
                    duplicates.get());
        }
    }
}
