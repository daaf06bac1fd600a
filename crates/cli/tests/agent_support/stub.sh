#!/bin/sh
# The frame of a stub: notes how it was called where a contained session may write,
# then plays the scene of this iteration, else the default one.
here=$(dirname "$0")
seen=$here/../out/seen-$RUNNER_ITER
mkdir -p "$seen"
for word in "$@"; do printf '%s\0' "$word"; done >"$seen/args"
env -0 >"$seen/env"
cat >"$seen/prompt"
refuse() {
    echo "stub: $*" >&2
    exit 64
}
. "$here/flags.sh"
scene=$here/scenes/$RUNNER_ITER
[ -d "$scene" ] || scene=$here/scenes/default
. "$scene/before.sh"
cat "$scene/stderr" >&2
cat "$scene/stream"
. "$scene/after.sh"
