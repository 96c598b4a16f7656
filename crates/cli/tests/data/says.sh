# Runs a command that must end with this code, and whose output has this text.
says() {
    local code=$1 text=$2 out rc=0
    shift 2
    out=$("$@" 2>&1) || rc=$?
    if [ $rc != "$code" ] || ! grep -F -- "$text" <<<"$out" >/dev/null; then
        echo "'$*' says $rc: $out" >&2
        return 1
    fi
}

