// Pings of monitors by processes of their own.
//
// librados 16.2 connects to the monitor before it has made what answers the monitor's banner
// (`MonClient::ping_monitor` sets `pinger->mc` after `connect_to_mon`). If its thread is held up in between, it dies
// of signal 11: with a busy machine in one of 300 pings of Ceph's own monitor, too. So a ping that dies is repeated.
#include "ping.h"

#include "harness.h"

#include <rados/librados.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int print_ping(const char *mon) {
  rados_t client;
  rados_create(&client, "admin");
  rados_conf_read_file(client, getenv("CEPH_CONF"));
  rados_conf_set(client, "admin_socket", "");
  char *answer = nullptr;
  size_t length = 0;
  int r = rados_ping_monitor(client, mon, &answer, &length);
  printf("%d %zu\n", r, length);
  fflush(stdout);
  rados_shutdown(client);
  return 0;
}

std::pair<int, bool> ping(const std::string &mon) {
  for (int attempt = 0; attempt < 10; attempt++) {
    int ends[2];
    if (pipe(ends) < 0) return {-errno, false};
    pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execl("/proc/self/exe", "suite", PING_ARGUMENT, mon.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    FILE *printed = fdopen(ends[0], "r");
    int r = 0;
    size_t length = 0;
    int values = fscanf(printed, "%d %zu", &r, &length);
    fclose(printed);
    int status = 0;
    waitpid(child, &status, 0);
    if (values == 2 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {r, length > 0};
    if (!WIFSIGNALED(status)) return {-ECHILD, false};
  }
  return {-ECHILD, false};
}
