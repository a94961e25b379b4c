"""Tools of every kind that a conversation has to carry: plain, failing, with pictures, with a name not all may use."""

from __future__ import annotations

import toolsd

source = toolsd.Source("weather")
# The smallest PNG there is: one pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360606000000004000109f62a4d"
    "0000000049454e44ae426082"
)


@source.tool
def forecast(city: str, days: int = 3) -> dict[str, object]:
    """Forecast the weather.

    Args:
        city: The city's name.
        days: How many days to look ahead.
    """
    if days > 14:
        raise toolsd.ToolError("nobody knows the weather beyond 14 days")
    return {"city": city, "sky": ["sun"] * days}


@source.tool(name="radar.picture")
def radar_picture(city: str) -> list[object]:
    """The radar picture of a city."""
    return [f"radar of {city}", toolsd.Image(PIXEL)]


@source.tool
def note(input: str) -> str:
    """Write something down, in any form."""
    return f"noted: {input}"
