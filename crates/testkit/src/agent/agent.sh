# The scripted agent: plays <iteration>.sh, or default.sh where there is none.
# shellcheck disable=SC1090,SC1091
AGENT_DIR=$(cd "$(dirname "$0")" && pwd)
# A sandbox may keep this folder read-only: then nobody counts.
{ printf '%s %s\n' "$RUNNER_ITER" "$RUNNER_NODE_ID" >>"$AGENT_DIR/calls"; } 2>/dev/null || :
. "$AGENT_DIR/lib.sh"
if [ -f "$AGENT_DIR/$RUNNER_ITER.sh" ]; then
    . "$AGENT_DIR/$RUNNER_ITER.sh"
elif [ -f "$AGENT_DIR/default.sh" ]; then
    . "$AGENT_DIR/default.sh"
else
    echo "no script for iteration $RUNNER_ITER" >&2
    exit 97
fi
