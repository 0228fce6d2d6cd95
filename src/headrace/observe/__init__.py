"""What long operations tell while they run."""

from headrace.observe.progress import Progress, Silent

__all__ = ["Progress", "Silent"]
