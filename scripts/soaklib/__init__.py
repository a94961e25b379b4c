"""A daemon under fire: workers are killed, frozen and flooded while clients run turns whose outcome can be checked.

Nothing here looks inside toolsd. What ran is known from files that the tools append to (`sources`), what was answered
from files that the clients append to (`driver`), and `verdict` holds the one against the other.
"""
