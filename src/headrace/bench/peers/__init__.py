"""Other parallel consumers, run on the same brokers and records as ours.

Each runs in a process of its own under a group of its own, from the topic's beginning, with
commits on and only in-process concurrency. The program itself takes the time, from the start of
the first handler's call to the end of the last one; starting it and joining the group do not
count. By default all is as the peer would want it: `tuned` gives it larger buffers than it has by
default, and `warm_up` lets Java handle the whole topic once before it is measured.
"""

from headrace.bench.peers.load import Load, Order, PeerResult
from headrace.bench.peers.parallel_consumer import java_parallel_consumer
from headrace.bench.peers.pyrallel import pyrallel_consumer

__all__ = ["Load", "Order", "PeerResult", "java_parallel_consumer", "pyrallel_consumer"]
