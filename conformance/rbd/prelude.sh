# What the commands of `commands.txt` may use: functions of the shell, as pipes and subshells need them too.

id() { rbd info --format json "$1" 2>/dev/null | sed -E 's/.*"id":"([^"]*)".*/\1/'; }
# The id of an image in the trash: trashed POOL NAME
trashed() { rbd trash ls --all --format json "$1" | grep -oE '"id":"[0-9a-f]+","name":"'"$2"'"' | sed -E 's/"id":"([^"]*)".*/\1/'; }
as() { local who=$1 tool=$2; shift 2; "$tool" -n "client.$who" --keyring "$PWD/$who.keyring" "$@"; }
put() { /usr/bin/python3 "$TOOLS" put "$@"; }
discard() { /usr/bin/python3 "$TOOLS" discard "$@"; }
# Keeps an image open, with its exclusive lock if it has one, until `release`.
hold() { mkfifo ready; /usr/bin/python3 "$TOOLS" hold "$1" >ready 2>/dev/null & echo $! >holder; read -r _ <ready; rm ready; }
release() { kill "$(cat holder)"; while kill -0 "$(cat holder)" 2>/dev/null; do sleep 0.05; done; rm holder; }
# Repeats a command until it prints a line that matches: until_says PATTERN COMMAND...
until_says() {
    local pattern=$1 n; shift
    for n in $(seq 150); do "$@" >said 2>&1; if grep -qE -- "$pattern" said; then echo yes; return 0; fi; sleep 0.2; done
    echo "no: $(cat said)"; return 1
}
