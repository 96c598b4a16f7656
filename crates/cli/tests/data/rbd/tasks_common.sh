# What the scripts about the manager's tasks share.

# A value of JSON on standard input: value EXPRESSION, with v for the whole
value() { /usr/bin/python3 -c "import json, sys; v = json.load(sys.stdin); print($1)"; }

# Waits until the manager answers
ready() {
    for _ in $(seq 150); do
        if timeout 15 ceph rbd task list >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "the manager is not ready" >&2
    return 1
}

# Waits until the list of tasks is so, or fails: until_tasks WHAT GREP-ARGUMENTS...
until_tasks() {
    local what=$1
    shift
    for _ in $(seq 300); do
        if ceph rbd task list | grep "$@" >/dev/null; then return; fi
        sleep 0.1
    done
    echo "$what: $(ceph rbd task list)" >&2
    return 1
}

# Waits until no task is left
idle() { until_tasks 'tasks remain' -Fx '[]'; }

# Waits until a task is under way
in_progress() { until_tasks 'no task is under way' '"in_progress": true'; }

# The command fails with this exit code and says this: denied CODE TEXT COMMAND...
denied() {
    local code=$1 text=$2
    shift 2
    fails "$code" "$@"
    if ! grep -qF -- "$text" failed; then
        echo "$* does not say $text: $(cat failed)" >&2
        return 1
    fi
}
