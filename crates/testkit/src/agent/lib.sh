# Helpers of the scripted agent. Plain sh; the tree is edited by python.
# shellcheck shell=sh

TREE="$RUNNER_PROJECT_DIR/.runner/state/tree.json"

# out STATUS SUMMARY: writes the answer of the session.
out() {
    case $2 in
    *[\\\"[:cntrl:]]*) _summary=$(json_escape "$2") ;;
    *) _summary=$2 ;; # the usual case, without two more processes
    esac
    printf '{"status":"%s","summary":"%s"}\n' "$1" "$_summary" >"$RUNNER_OUTPUT_PATH"
}

# json_escape TEXT: the inside of a JSON string. Tab and newline are the only
# control characters that it knows.
json_escape() {
    _tab=$(printf '\t')
    printf '%s\n' "$1" |
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e "s/$_tab/\\\\t/g" |
        awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'
}

# tree_edit CODE [ARG...]: runs python over the tree. In scope: t (the root),
# n(id) (finds a node), child(parent, id, order, title, **fields), args.
tree_edit() {
    # -I -S: no environment, no site packages: it starts in a third of the time.
    "$(cat "$AGENT_DIR/python")" -I -S "$AGENT_DIR/tree_edit.py" "$TREE" "$@"
}

# add_child PARENT_ID CHILD_ID ORDER TITLE: adds an open leaf.
add_child() {
    tree_edit 'child(n(args[0]), args[1], int(args[2]), args[3])' "$@"
}
