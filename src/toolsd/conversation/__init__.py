"""Tools on their way to a model, and results on their way back, each in the shapes a provider takes: pure.

`offer` makes the `tools=` value of a request, `messages` what is appended to the conversation after a turn. What the
model streams in between is `toolsd.streams`. Knows no SDK, no link and no clock; every value it makes is plain data.

Layout
    offer, names, schemas       tools -> `tools=`: names and schemas that the provider accepts
    reply, ids, pieces          calls and results -> messages
    said, listener              what the model wrote beside its calls
    formats/                    one module per provider format, which owns that provider's shapes and limits
"""

from toolsd.conversation.formats import FORMATS
from toolsd.conversation.listener import Listener
from toolsd.conversation.offer import Cut, Offer, offer
from toolsd.conversation.reply import messages

__all__ = ["FORMATS", "Cut", "Listener", "Offer", "messages", "offer"]
