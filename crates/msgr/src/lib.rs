//! msgr2.1 frames and connections as state machines, with a thin async shell.
