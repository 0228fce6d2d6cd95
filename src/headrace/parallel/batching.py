"""How a batch handler's records are gathered."""

from dataclasses import dataclass

from headrace.errors import ConfigError


@dataclass(frozen=True)
class Batch:
    """Give a handler up to `size` records at once, after at most `wait` seconds.

    A batch is of one partition, in its order. With `same_key` it is of one key too. It is one
    turn: it succeeds or fails as a whole, and the next batch of its keys starts after it.

    >>> Batch(size=100, wait=0.05, same_key=True)
    Batch(size=100, wait=0.05, same_key=True)
    """

    size: int = 100
    wait: float = 0.05
    same_key: bool = False

    def __post_init__(self) -> None:
        if self.size < 1 or self.wait < 0:
            raise ConfigError(
                f"Batch(size={self.size}, wait={self.wait}) gathers nothing",
                hint="give a size of 1 or more, and a wait of 0 seconds or more",
            )
