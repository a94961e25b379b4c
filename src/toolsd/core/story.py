"""Stories: the last events of one turn or worker, kept so that an impossible transition explains itself.

Owns the form of a story and of the error made from it. Knows nothing of what the states mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from toolsd.errors import InternalError

STORY_LENGTH = 24

# When, what, and the number of the batch or worker it was about (0: none).
Story = deque[tuple[float, str, int]]
Table = Mapping[str, frozenset[str]]


def new_story() -> Story:
    """An empty story; it forgets its beginning when it grows beyond `STORY_LENGTH`."""
    return deque(maxlen=STORY_LENGTH)


def broken(subject: str, wanted: str, story: Story) -> InternalError:
    """The error of `subject` when it was asked to do what its table does not allow."""
    lines = (
        "\n".join(f"  {at:.6f} {what} {number or ''}".rstrip() for at, what, number in story)
        or "  (nothing happened yet)"
    )
    return InternalError(
        f"{subject} cannot {wanted}. Its last events:\n{lines}",
        hint="this is a bug in toolsd; please report this text whole",
    )
