# What the binary tells of itself, without any cluster: completions, man pages, help, its version, and colours on a terminal only.

# As `grep -q`, but it reads all first: whoever writes into a pipe that is closed early fails.
has() {
    local all
    all=$(cat)
    grep -q "$@" <<<"$all"
}

# Completions
for shell in bash zsh fish; do "$SPIRULA" completions $shell >$shell; grep -q trash $shell; done
bash -n bash
complete_words() {
    bash -c "source ./bash; COMP_WORDS=($*); COMP_CWORD=$(( $# - 1 )); _spirula spirula \"\${COMP_WORDS[\$COMP_CWORD]}\" x; printf '%s\n' \"\${COMPREPLY[@]}\""
}
complete_words spirula rbd trash '""' | has -x purge
complete_words spirula rbd snap limit '""' | has -x clear
complete_words spirula rbd trash mv --ex | has -x -- --expires-at
complete_words spirula u | has -x up
! "$SPIRULA" completions nonsense 2>/dev/null

# Man pages
"$SPIRULA" man pages/man1
for page in spirula spirula-up spirula-rbd spirula-rbd-trash-mv spirula-rbd-snap-limit-set spirula-store; do
    grep -q '^\.TH' pages/man1/$page.1
done
grep -q 'expires' pages/man1/spirula-rbd-trash-mv.1
! [ -e pages/man1/spirula-rbd-trash-move.1 ]
touch file
! "$SPIRULA" man file/below 2>refused
grep -q "can't write man pages to file/below" refused

# Help by command, for both ways to ask
"$SPIRULA" rbd help snap create >help
"$SPIRULA" rbd snap create --help | cmp - help
grep -q 'Usage: rbd snap create' help
grep -q -- --skip-quiesce help
! grep -q -- --limit help
"$SPIRULA" rbd help trash | has 'trash purge'
"$SPIRULA" rbd --help | has 'export-diff'
for words in 'help group create' 'group create g' 'mirror pool enable p' 'migration execute p/i' 'trash purge schedule ls'; do
    got=0
    "$SPIRULA" rbd $words >said 2>&1 || got=$?
    [ $got = 95 ]
    grep -q "use Ceph's rbd" said
done
got=0; "$SPIRULA" rbd nonsense >said 2>&1 || got=$?
[ $got = 1 ] && grep -q "unknown option 'nonsense'" said

# The commit that it was built of
if commit=$(git -C "$SOURCE" rev-parse --short=12 HEAD 2>/dev/null); then
    "$SPIRULA" -V | has -E '^spirula [0-9.]+ \(commit [0-9a-f]{12}\)$'
fi
"$SPIRULA" --version | has '^spirula [0-9]'

# Colours on a terminal, and only there
terminal() { script -qec "$1" /dev/null </dev/null; }
escape=$(printf '\033')
terminal "TERM=xterm $SPIRULA rbd help snap create" | has "$escape"
! terminal "TERM=xterm NO_COLOR=1 $SPIRULA rbd help snap create" | has "$escape\[[0-9;]*m"
! grep -q "$escape" help
