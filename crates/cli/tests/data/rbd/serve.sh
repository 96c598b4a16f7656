# Images as network block devices, through QEMU's and libnbd's clients.

# Serves images until `end`: serve ARGS...
serve() {
    rm -f sock
    "$SPIRULA" rbd serve --socket sock "$@" >served 2>&1 &
    server=$!
    for _ in $(seq 400); do
        grep -q '^serving' served && return
        sleep 0.05
    done
    cat served >&2
    return 1
}

end() {
    kill "$server"
    wait "$server"
    ! [ -e sock ]
}

uri() { echo "nbd+unix:///$1?socket=sock"; }

# Commands of qemu-io, one after the other, none of which fails, with its option `mode`: io IMAGE COMMAND...
mode=-n
io() {
    local image=$1 args=()
    shift
    for command; do args+=(-c "$command"); done
    qemu-io "$mode" -f raw "${args[@]}" "$(uri "$image")" >io.log 2>&1 || { cat io.log >&2; return 1; }
    if grep -qi 'failed\|error' io.log; then
        cat io.log >&2
        return 1
    fi
}
