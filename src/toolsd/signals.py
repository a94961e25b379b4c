"""The two signals a node sends into a living worker. Real-time signals, so that a tool's USR1 and USR2 stay its own.

Their default action ends a process, so a worker installs its handlers before it greets.
"""

from signal import SIGRTMIN

# "Look at the cancel word of the flight recorder": raises BatchCancelled in blocked code, if that batch still runs.
CANCEL = SIGRTMIN + 7
# "Write the stacks of all threads into the flight recorder": handled in C, so it works while C code holds the GIL.
STACKS = SIGRTMIN + 8
