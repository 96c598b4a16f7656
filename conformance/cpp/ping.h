// The part of `ping` that runs in a process of its own.
#pragma once

// The first argument of that process; the monitor's name follows.
inline constexpr const char *PING_ARGUMENT = "--ping";
// Pings a monitor and prints the result and the length of the answer; returns the exit code.
int print_ping(const char *mon);
